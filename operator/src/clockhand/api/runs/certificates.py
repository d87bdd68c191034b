"""The serving certificate, made and renewed without anybody's help and shared by all replicas.

A CA and a leaf lie in a Secret; whoever finds it missing or old writes new ones, and of two that do so at once the loser
reads what the winner wrote. The CA goes into the APIService, by which the front API server then verifies every replica.
"""

from __future__ import annotations

import base64
import contextlib
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from clockhand import errors
from clockhand.kube import client as clients

LEAF_LIFE = timedelta(days=90)
CA_LIFE = timedelta(days=3650)
_RENEW_LEAF = timedelta(days=30)
_RENEW_CA = timedelta(days=365)
_CLOCK_SLACK = timedelta(minutes=10)
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Serving:
    """PEM texts: what to serve with, and the CA that verifies it."""

    certificate: bytes
    key: bytes
    ca: bytes


@dataclass(frozen=True, slots=True)
class _Stored:
    serving: Serving
    ca_key: bytes
    secret: dict[str, Any]


class SecretCertificate:
    """The certificate of `service` in `namespace`, kept in the Secret `<service>-tls`."""

    def __init__(self, client: clients.Client, *, namespace: str, service: str) -> None:
        self._client = client
        self._secrets = f"/api/v1/namespaces/{clients.path_part(namespace)}/secrets"
        self._name = f"{service}-tls"
        self._hosts = host_names(service, namespace)

    async def current(self, now: datetime) -> Serving:
        """A certificate that is good for weeks from `now`, by a new one where need be."""
        for _ in range(_TRIES):
            stored = await self._read()
            if stored is not None and is_good(stored.serving, self._hosts, now):
                return stored.serving
            with contextlib.suppress(errors.Conflict, errors.Uncertain):
                return await self._renew(stored, now)
        raise errors.Unavailable(f"the Secret {self._name} keeps changing under our hands")

    async def _renew(self, stored: _Stored | None, now: datetime) -> Serving:
        ca_key = stored.ca_key if stored else b""
        fresh, fresh_key = issue(self._hosts, now, ca=stored.serving.ca if stored else b"", ca_key=ca_key)
        await self._write(fresh, fresh_key, stored)
        return fresh

    async def _read(self) -> _Stored | None:
        try:
            answer = await self._client.get(f"{self._secrets}/{clients.path_part(self._name)}")
        except errors.NotFound:
            return None
        secret = msgspec.json.decode(answer)
        data = {key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()}
        serving = Serving(data.get("tls.crt", b""), data.get("tls.key", b""), data.get("ca.crt", b""))
        return _Stored(serving, data.get("ca.key", b""), secret)

    async def _write(self, serving: Serving, ca_key: bytes, stored: _Stored | None) -> None:
        texts = {"tls.crt": serving.certificate, "tls.key": serving.key, "ca.crt": serving.ca, "ca.key": ca_key}
        data = {key: base64.b64encode(text).decode() for key, text in texts.items()}
        if stored is None:
            metadata = {"name": self._name}
            body = {
                "apiVersion": "v1",
                "kind": "Secret",
                "type": "kubernetes.io/tls",
                "metadata": metadata,
                "data": data,
            }
            await self._client.write("POST", self._secrets, clients.encode(body))
        else:
            # whole, with the version that was read: a write of another replica in between is a conflict
            body = {**stored.secret, "data": data}
            await self._client.write("PUT", f"{self._secrets}/{clients.path_part(self._name)}", clients.encode(body))


def host_names(service: str, namespace: str) -> Sequence[str]:
    """By what names a Service is called; the front API server uses the second one."""
    return (service, f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.cluster.local", "localhost")


def is_good(serving: Serving, hosts: Sequence[str], now: datetime) -> bool:
    """Whether it can be served for weeks to come under all of `hosts`, which are names or addresses."""
    try:
        leaf = x509.load_pem_x509_certificate(serving.certificate)
        ca = x509.load_pem_x509_certificate(serving.ca)
        leaf.verify_directly_issued_by(ca)
        key = serialization.load_pem_private_key(serving.key, password=None)
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    return (
        key.public_key() == leaf.public_key()
        and set(hosts) <= {str(name.value) for name in names}
        and leaf.not_valid_after_utc - now > _RENEW_LEAF
        and ca.not_valid_after_utc - now > _RENEW_LEAF
    )


def issue(hosts: Sequence[str], now: datetime, *, ca: bytes = b"", ca_key: bytes = b"") -> tuple[Serving, bytes]:
    """A new leaf by the given CA if it is good for long enough, else by a new one; with the CA's key."""
    authority = _loaded(ca, ca_key, now) or _new_authority(now)
    authority_certificate, authority_key = authority
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
    leaf = (
        _builder(subject, authority_certificate.subject, key, until=now + LEAF_LIFE, now=now)
        .add_extension(x509.SubjectAlternativeName([_name(host) for host in hosts]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    return Serving(_pem(leaf), _key_pem(key), _pem(authority_certificate)), _key_pem(authority_key)


def _loaded(ca: bytes, ca_key: bytes, now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None:
    try:
        certificate = x509.load_pem_x509_certificate(ca)
        key = serialization.load_pem_private_key(ca_key, password=None)
    except (ValueError, TypeError):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        return None
    return (certificate, key) if certificate.not_valid_after_utc - now > _RENEW_CA else None


def _new_authority(now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"clockhand-runs-{int(now.timestamp())}")])
    certificate = (
        _builder(name, name, key, until=now + CA_LIFE, now=now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    return certificate, key


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, until: datetime, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before((now - _CLOCK_SLACK).astimezone(UTC))
        .not_valid_after(until.astimezone(UTC))
    )


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
