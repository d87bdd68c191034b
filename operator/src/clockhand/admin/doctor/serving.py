"""The certificate that the runs API serves with, looked at as the API server does before it believes an answer."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import Mapping
from typing import Any

from cryptography import x509

from clockhand import errors
from clockhand.admin.doctor import cluster
from clockhand.admin.doctor.patient import Patient
from clockhand.domain import findings, instants, rights
from clockhand.domain.findings import Finding
from clockhand.kube import installed

_SECONDS = 5.0
_EXPIRED, _OTHER_NAME = 10, 62
"""As OpenSSL numbers what is wrong with a certificate."""


async def certificate(patient: Patient) -> Finding:
    """The API server calls the runs API as long as it believes the certificate that is shown there."""
    try:
        found = await installed.api_service(patient.api, rights.API_SERVICE)
    except errors.NotFound:
        return findings.skipped(f"APIService {rights.API_SERVICE} is not there")
    spec: Mapping[str, Any] = found["spec"]
    service = spec.get("service")
    if not service:
        return findings.skipped("the API server answers for runs by itself")
    if spec.get("insecureSkipTLSVerify"):
        return findings.warning(
            "the API server believes whoever answers for runs: spec.insecureSkipTLSVerify of the APIService",
            "give it a caBundle instead",
        )
    return await _look(patient, f"{service['name']}.{service['namespace']}.svc", service.get("port", 443), spec)


async def _look(patient: Patient, host: str, port: int, spec: Mapping[str, Any]) -> Finding:
    try:
        shown = await _shown(patient.reach(host), port, host=host, context=_context(spec.get("caBundle", "")))
    except ssl.SSLCertVerificationError as error:
        return findings.error(
            f"the API server refuses the certificate of {host}: {error.verify_message}",
            _advice(error.verify_code, host),
        )
    except ssl.SSLError as error:
        return findings.error(f"TLS with {host} fails: {error}", "see what listens there, and that caBundle is PEM")
    except OSError as error:
        return findings.skipped(
            f"{host}:{port} cannot be reached from here: {str(error) or 'it does not answer'}. "
            "Run the doctor in a pod of the operator"
        )
    end = shown.not_valid_after_utc
    if end < patient.here() + cluster.SOON:
        return findings.warning(f"it expires at {instants.rfc3339(end)}", cluster.RENEWAL)
    return findings.ok(f"it is believed, until {instants.rfc3339(end)}")


def _context(bundle: str) -> ssl.SSLContext:
    """Trust as the API server has it: the bundle alone, and without one what its host trusts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # any certificate of the bundle may be where a chain ends
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    if bundle:
        # between certificates there may be comments of any kind
        context.load_verify_locations(cadata=base64.b64decode(bundle).decode("ascii", "ignore"))
    else:
        context.load_default_certs()
    return context


async def _shown(address: str, port: int, *, host: str, context: ssl.SSLContext) -> x509.Certificate:
    async with asyncio.timeout(_SECONDS):
        _, writer = await asyncio.open_connection(address, port, ssl=context, server_hostname=host)
    try:
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(der)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def _advice(code: int, host: str) -> str:
    if code == _EXPIRED:
        return cluster.RENEWAL
    if code == _OTHER_NAME:
        return f"issue it for {host}, by which the API server calls"
    return (
        "put the authority that signed it into spec.caBundle of the APIService: `clockhand api --runs` does so for its own, "
        "cert-manager for those of its mode, and the chart's runs.certificate.caBundle is yours"
    )
