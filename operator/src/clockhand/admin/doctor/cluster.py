"""The cluster: what is installed there, and what this account may do."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509

from clockhand import errors
from clockhand.admin.doctor.patient import Patient
from clockhand.domain import crd, definition, findings, instants, jobclass_crd, rights, workerpool_crd
from clockhand.domain.findings import Finding, counted
from clockhand.kube import access, failures, installed

RESOURCES = (crd.RESOURCE, workerpool_crd.RESOURCE, jobclass_crd.RESOURCE)
SOON = timedelta(days=14)
"""Certificates that we make are renewed 30 days before their end."""
_CALLS_AT_ONCE = 8


async def kubernetes(patient: Patient) -> Finding:
    """The API server answers, and knows us."""
    if patient.cluster is None:
        return patient.clusterless or findings.skipped("there is no cluster")
    try:
        version = await installed.version(patient.cluster)
        user = await installed.whoami(patient.cluster)
    except (errors.Unavailable, errors.Refused) as error:
        return findings.error(
            f"the API server does not answer us: {error}",
            "see that it can be reached from here, and that the kubeconfig or the service account is good",
        )
    return findings.ok(f"Kubernetes {version}, as {user}")


async def permissions(patient: Patient) -> Finding:
    """The operator's account may do what the operator does."""
    gate = asyncio.Semaphore(_CALLS_AT_ONCE)

    async def missing(right: rights.Right, verb: str, namespace: str) -> str | None:
        resource, _, subresource = right.resource.partition("/")
        action = access.Action(verb, right.group, resource, namespace=namespace, subresource=subresource)
        async with gate:
            allowed = await installed.may_i(patient.api, action)
        return None if allowed else f"{verb} {right.resource}{f' in {namespace}' if namespace else ''}"

    spaces = patient.settings.namespaces or ("",)
    asked = [(right, verb, space) for right, verb in rights.calls(rights.NEEDED) for space in spaces]
    lacking = [one for one in await asyncio.gather(*(missing(*each) for each in asked)) if one is not None]
    if not lacking:
        return findings.ok(f"all {counted(len(asked), 'right')} of the operator")
    if len(lacking) == len(asked):
        return findings.skipped(
            "this account has none of the operator's rights: run the doctor in a pod of the operator"
        )
    return findings.error(
        f"{counted(len(lacking), 'right')} of the operator missing",
        "apply the manifests of this release again",
        lacking,
    )


async def definitions(patient: Patient) -> Finding:
    """The API server checks objects by the definitions of this release."""
    wrong = []
    for resource in RESOURCES:
        name = f"{resource.plural}.{definition.GROUP}"
        try:
            stored = await installed.definition(patient.api, name)
        except errors.NotFound:
            wrong.append(f"{name} is not there")
        else:
            wrong += [f"{name} {what}" for what in _differences(definition.build(resource), stored)]
    if wrong:
        return findings.error(
            f"{counted(len(wrong), 'difference')} to what this release needs",
            "clockhand crds | kubectl apply --server-side -f -",
            wrong,
        )
    return findings.ok("the definitions are those of this release")


async def runs_api(patient: Patient) -> Finding:
    """`kubectl get runs` is answered, and no namespace waits for it to be deleted."""
    try:
        found = await installed.api_service(patient.api, rights.API_SERVICE)
    except errors.NotFound:
        return findings.warning(
            f"APIService {rights.API_SERVICE} is not there: nobody answers `kubectl get runs`",
            "install it, if it is wanted",
        )
    available = _condition(found, "Available")
    if available.get("status") != "True":
        return findings.error(
            f"it is not available, and no namespace can be deleted: {available.get('message') or 'nobody answers for it'}",
            "see that `clockhand api --runs` runs and the API server reaches it; else delete the APIService",
        )
    return findings.ok("it is available")


async def certificates(patient: Patient) -> Finding:
    """What expires in the cluster takes the runs API with it."""
    ends = []
    for what, certificate in (*await _authority(patient), *_file(patient)):
        if certificate is None:
            return findings.error(f"{what} holds no certificate", "see what wrote it: it has to be PEM")
        ends.append((certificate.not_valid_after_utc, what))
    if not ends:
        return findings.skipped("there is no certificate to look at")
    soon = [f"{what}, at {instants.rfc3339(at)}" for at, what in sorted(ends) if at < patient.here() + SOON]
    if any(at < patient.here() for at, _ in ends):
        return findings.error("a certificate has expired", RENEWAL, soon)
    if soon:
        return findings.warning("a certificate expires within two weeks", RENEWAL, soon)
    return findings.ok(f"the first one ends at {instants.rfc3339(min(ends)[0])}")


async def admission(patient: Patient) -> Finding:
    """Nobody gains rights through a pod template."""
    wrong = []
    for name in rights.POLICIES:
        try:
            policy, binding = await installed.policy(patient.api, name)
        except failures.ResourceMissing:
            return findings.skipped("this API server knows no admission policies")
        except errors.NotFound:
            wrong.append(f"{name} or its binding is not there")
            continue
        if _at(policy, "spec", "failurePolicy") != "Fail":
            wrong.append(f"{name} lets pass what it cannot judge")
        if "Deny" not in (_at(binding, "spec", "validationActions") or ()) or _at(binding, "spec", "matchResources"):
            wrong.append(f"{name} is not enforced everywhere")
    if wrong:
        return findings.error(
            "whoever may create a job may run pods as anybody",
            "apply the admission policies of this release again",
            wrong,
        )
    return findings.ok("authors of pod templates are checked")


RENEWAL = "see that `clockhand api --runs` runs, which renews its own; one that you give it is yours to renew"


async def _authority(patient: Patient) -> Sequence[tuple[str, x509.Certificate | None]]:
    try:
        found = await installed.api_service(patient.api, rights.API_SERVICE)
    except errors.NotFound:
        return ()
    bundle = _at(found, "spec", "caBundle")
    return [("the caBundle of the APIService", _read(_decoded(bundle)))] if bundle else []


def _file(patient: Patient) -> Sequence[tuple[str, x509.Certificate | None]]:
    path = patient.settings.runs_tls_cert
    if path is None:
        return ()
    try:
        return [(path, _read(Path(path).read_bytes()))]
    except OSError:
        return [(path, None)]


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except binascii.Error:
        return b""


def _read(pem: bytes) -> x509.Certificate | None:
    """Of several the first to end."""
    try:
        return min(x509.load_pem_x509_certificates(pem), key=_end)
    except ValueError:
        return None


def _end(certificate: x509.Certificate) -> datetime:
    return certificate.not_valid_after_utc


def _differences(wanted: Mapping[str, Any], stored: Mapping[str, Any]) -> Sequence[str]:
    [mine] = wanted["spec"]["versions"]
    found = [one for one in stored["spec"]["versions"] if one["name"] == mine["name"]]
    if not found:
        return [f"has no version {mine['name']}"]
    wrong = [f"has another {part}" for part in mine if part != "name" and found[0].get(part) != mine[part]]
    if _condition(stored, "Established").get("status") != "True":
        wrong.append("is not established")
    return wrong


def _condition(found: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    conditions = _at(found, "status", "conditions") or ()
    return next((one for one in conditions if one["type"] == kind), {})


def _at(found: Mapping[str, Any], *path: str) -> Any:
    value: Any = found
    for key in path:
        value = (value or {}).get(key)
    return value
