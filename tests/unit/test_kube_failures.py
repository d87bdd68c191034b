"""The API server's refusals, in its own words, and what they mean to us."""

from __future__ import annotations

import json

import pytest

from clockhand import errors
from clockhand.kube import failures

PODS = {"name": "p", "kind": "pods"}


def translate(code: int, message: str, *, write: bool = True, **more: object) -> errors.ClockhandError:
    body = json.dumps({"kind": "Status", "code": code, "message": message, **more}).encode()
    return failures.translate(failures.read_status(code, body), write=write, retry_after=None)


@pytest.mark.parametrize(
    ("code", "message", "refusal"),
    [
        (401, "Unauthorized", failures.Refusal.UNAUTHENTICATED),
        (
            403,
            'pods is forbidden: User "bob" cannot create resource "pods" in API group "" in the namespace "a"',
            failures.Refusal.RIGHTS,
        ),
        (403, 'pods "p" is forbidden: exceeded quota: q, requested: pods=1', failures.Refusal.QUOTA),
        (
            403,
            'pods "p" is forbidden: violates PodSecurity "restricted:latest": privileged',
            failures.Refusal.POD_SECURITY,
        ),
        (403, 'admission webhook "a.b.c" denied the request: no', failures.Refusal.POLICY),
        (400, 'admission webhook "a.b.c" denied the request: no', failures.Refusal.POLICY),
        (
            422,
            "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'x' with binding 'y' denied request: no",
            failures.Refusal.POLICY,
        ),
        (403, 'pods "p" is forbidden: maximum cpu usage per Container is 1', failures.Refusal.POLICY),
        (
            500,
            'Internal error occurred: failed calling webhook "a.b.c": connection refused',
            failures.Refusal.WEBHOOK_DOWN,
        ),
        (405, "the server does not allow this method", failures.Refusal.UNSUPPORTED),
    ],
)
def test_a_refusal_is_told_apart(code: int, message: str, refusal: failures.Refusal) -> None:
    error = translate(code, message)
    assert isinstance(error, failures.ApiRefused)
    assert error.refusal is refusal
    assert error.message == message


def test_a_terminating_namespace_is_known_by_its_cause() -> None:
    causes = [{"reason": "NamespaceTerminating", "message": "being terminated", "field": "metadata.namespace"}]
    error = translate(403, "forbidden", reason="Forbidden", details={**PODS, "causes": causes})
    assert isinstance(error, failures.ApiRefused)
    assert error.refusal is failures.Refusal.NAMESPACE_TERMINATING
    assert error.reason == "Forbidden"
    assert error.causes[0].field == "metadata.namespace"


def test_a_missing_object_is_not_a_missing_resource() -> None:
    assert type(translate(404, 'pods "p" not found', details=PODS)) is errors.NotFound
    plain = failures.translate(failures.read_status(404, b"404 page not found\n"), write=False)
    assert isinstance(plain, failures.ResourceMissing)


def test_a_taken_name_is_not_a_changed_object() -> None:
    taken = translate(409, "already exists", reason="AlreadyExists")
    changed = translate(409, "modified", reason="Conflict")
    assert isinstance(taken, failures.ApiConflict)
    assert isinstance(changed, failures.ApiConflict)
    assert (taken.already_exists, changed.already_exists) == (True, False)


def test_an_old_version_is_expired() -> None:
    assert isinstance(translate(410, "too old", reason="Expired"), failures.Expired)


def test_a_wrong_object_names_its_field() -> None:
    causes = [{"reason": "FieldValueInvalid", "message": "Invalid value", "field": "spec.containers[0].name"}]
    error = translate(422, "Pod is invalid", details={**PODS, "causes": causes})
    assert isinstance(error, failures.ApiInvalid)
    assert (error.field, error.sentence) == ("spec.containers[0].name", "Invalid value")


def test_a_misspelt_field_is_found_in_the_text() -> None:
    error = translate(400, 'strict decoding error: unknown field "spec.containers[0].imge"')
    assert isinstance(error, failures.ApiInvalid)
    assert error.field == "spec.containers[0].imge"


@pytest.mark.parametrize("code", [500, 502, 503, 504])
def test_a_failing_server_may_have_carried_out_a_write_but_not_a_read(code: int) -> None:
    assert isinstance(translate(code, "etcd"), errors.Uncertain)
    assert isinstance(translate(code, "etcd", write=False), errors.Unavailable)


def test_a_busy_server_has_not() -> None:
    body = b"slow down"
    error = failures.translate(failures.read_status(429, body), write=True, retry_after=3.0)
    assert isinstance(error, errors.Unavailable)
    assert error.retry_after == 3.0
    assert "slow down" in str(error)


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff\xfe", b"[]", b'{"details": 1}'])
def test_an_answer_that_is_no_status_becomes_a_message(body: bytes) -> None:
    status = failures.read_status(502, body)
    assert status.code == 502
    assert status.reason == ""
