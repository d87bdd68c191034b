"""Clockhand without its database must not hold up the cluster, and catches up when it is back."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator

import pytest
from tests.support import runs
from tests.support.installation import Installation
from tests.support.kubectl import Kubectl, wait_for

pytestmark = pytest.mark.outage


@contextlib.contextmanager
def wrong_password(installation: Installation) -> Iterator[None]:
    installation.give_runs_api_a_wrong_password()
    try:
        yield
    finally:
        installation.give_runs_api_its_password()


@contextlib.contextmanager
def postgres_down(installation: Installation) -> Iterator[None]:
    installation.stop_postgres()
    try:
        yield
    finally:
        installation.start_postgres()


def test_a_namespace_goes_after_an_install_with_a_wrong_password(
    admin: Kubectl, fleet: Kubectl, installation: Installation
) -> None:
    with wrong_password(installation):
        assert_a_namespace_can_be_deleted(admin)
        assert "ServiceUnavailable" in admin.refusal("get", "runs")
    wait_for("runs to be served", lambda: runs.of_job(fleet, "minutely"))


def test_a_namespace_goes_while_postgres_is_down(admin: Kubectl, fleet: Kubectl, installation: Installation) -> None:
    with postgres_down(installation):
        assert_a_namespace_can_be_deleted(admin)
        assert "ServiceUnavailable" in admin.refusal("get", "runs")
        assert "runs" in admin.run("api-resources", "--api-group=runs.clockhand.dev").out
    wait_for("runs to be served", lambda: runs.of_job(fleet, "minutely"))


def assert_a_namespace_can_be_deleted(admin: Kubectl) -> None:
    name = f"e2e-unrelated-{secrets.token_hex(2)}"
    inside = admin.create_namespace(name)
    inside.run("create", "configmap", "something")
    # discovery of every API group is asked for afresh
    admin.run("delete", "namespace", name, "--timeout=90s", seconds=100)
    assert admin.find("namespace", name) is None
