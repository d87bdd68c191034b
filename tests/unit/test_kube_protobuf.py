"""Objects as kubectl sends them in protobuf."""

from __future__ import annotations

import base64
import contextlib

import pytest

from clockhand import errors
from clockhand.standalone.kube import protobuf

SECRET = "io.k8s.api.core.v1.Secret"
OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
# what `kubectl create secret generic s --from-literal=a=b` sends
SENT = (
    b"k8s\x00\n\x0c\n\x02v1\x12\x06Secret\x12\x1d\n\x11\n\x01s\x12\x00\x1a\x00\"\x00*\x002\x008\x00B\x00"
    b"\x12\x06\n\x01a\x12\x01b\x1a\x00\x1a\x00\"\x00"
)  # fmt: skip


def decoded(body: bytes, schema: str) -> object:
    return protobuf.decode(body, protobuf.message_of(schema))


def test_secret_of_kubectl() -> None:
    assert decoded(SENT, SECRET) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "generation": 0},
        "data": {"a": base64.b64encode(b"b").decode()},
    }


def test_options_of_a_deletion() -> None:
    message = b'\x08\x05\x12\x05\n\x03uid"\x0aBackground*\x03All'
    body = b"k8s\x00\x0a\x00\x12" + bytes([len(message)]) + message
    assert decoded(body, OPTIONS) == {
        "apiVersion": "",
        "kind": "",
        "gracePeriodSeconds": 5,
        "preconditions": {"uid": "uid"},
        "propagationPolicy": "Background",
        "dryRun": ["All"],
    }


@pytest.mark.parametrize("cut", range(len(SENT) - 1))
def test_what_ends_too_early_is_refused_or_is_less(cut: int) -> None:
    with contextlib.suppress(errors.InvalidInput):
        assert isinstance(decoded(SENT[:cut], SECRET), dict)


@pytest.mark.parametrize("body", [b"", b"{}", b"k8s\x00\xff", b"k8s\x00" + b"\x80" * 20, b"k8s\x00\x12\x02\x0b\x00"])
def test_what_is_no_protobuf_is_refused(body: bytes) -> None:
    with pytest.raises(errors.InvalidInput):
        decoded(body, SECRET)
