"""What the small API server answers instead of doing something, in the words of the real one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clockhand.api.runs import status
from clockhand.standalone.kube import kinds

Json = dict[str, Any]
_FIXED = (
    "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def not_found(kind: kinds.Kind, name: str) -> status.Failure:
    return status.Failure(404, "NotFound", f'{kind.resource} "{name}" not found', details=_about(kind, name))


def already_exists(kind: kinds.Kind, name: str) -> status.Failure:
    return status.Failure(409, "AlreadyExists", f'{kind.resource} "{name}" already exists', details=_about(kind, name))


def modified(kind: kinds.Kind, name: str) -> status.Failure:
    sentence = "the object has been modified; please apply your changes to the latest version and try again"
    return _conflict(kind, name, sentence)


def other_uid(kind: kinds.Kind, name: str, wanted: str, found: str) -> status.Failure:
    sentence = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
    return _conflict(kind, name, sentence)


def not_as_demanded(kind: kinds.Kind, name: str, what: str, wanted: str, found: str) -> status.Failure:
    """A deletion whose precondition does not hold."""
    tail = "deleted and then recreated" if what == "UID" else "modified"
    sentence = f"the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). "
    message = f'Operation cannot be fulfilled on {kind.qualified} "{name}": {sentence}The object might have been {tail}'
    return status.Failure(409, "Conflict", message, details={**_about(kind, name), "kind": kind.kind})


def terminating(kind: kinds.Kind, name: str, namespace: str) -> status.Failure:
    why = f"namespace {namespace} is being terminated"
    cause = {"reason": "NamespaceTerminating", "message": why, "field": "metadata.namespace"}
    sentence = f"unable to create new content in namespace {namespace} because it is being terminated"
    return _forbidden(kind, name, sentence, causes=[cause])


def no_account(kind: kinds.Kind, name: str, namespace: str, account: str) -> status.Failure:
    sentence = f'error looking up service account {namespace}/{account}: serviceaccount "{account}" not found'
    return _forbidden(kind, name, sentence)


def protected(kind: kinds.Kind, name: str) -> status.Failure:
    return _forbidden(kind, name, "this namespace may not be deleted")


def pod_is_fixed(kind: kinds.Kind, name: str) -> status.Failure:
    cause = {"reason": "FieldValueForbidden", "message": _FIXED.partition(": ")[2], "field": "spec"}
    details = {**_about(kind, name), "kind": kind.kind, "causes": [cause]}
    return status.Failure(422, "Invalid", f'{kind.qualified} "{name}" is invalid: {_FIXED}', details=details)


def not_allowed(user: str, verb: str, kind: kinds.Kind, namespace: str) -> status.Failure:
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    what = f'cannot {verb} resource "{kind.plural}" in API group "{kind.group}" {where}'
    message = f'{kind.resource} is forbidden: User "{user}" {what}'
    return status.Failure(403, "Forbidden", message, details={"group": kind.group, "kind": kind.plural})


def _about(kind: kinds.Kind, name: str) -> Json:
    return {"name": name, **({"group": kind.group} if kind.group else {}), "kind": kind.plural}


def _conflict(kind: kinds.Kind, name: str, why: str) -> status.Failure:
    message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return status.Failure(409, "Conflict", message, details=_about(kind, name))


def _forbidden(kind: kinds.Kind, name: str, why: str, causes: Sequence[Json] = ()) -> status.Failure:
    details = {**_about(kind, name), **({"causes": list(causes)} if causes else {})}
    return status.Failure(403, "Forbidden", f'{kind.resource} "{name}" is forbidden: {why}', details=details)
