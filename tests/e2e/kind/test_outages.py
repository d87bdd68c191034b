"""Clockhand without its database must not hold up the cluster, and catches up when it is back."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from tests.support import runs
from tests.support.installation import Installation
from tests.support.kubectl import Kubectl, wait_for

pytestmark = pytest.mark.outage
MINUTE = timedelta(minutes=1)


@pytest.fixture(scope="module")
def without_postgres(installation: Installation) -> Iterator[datetime]:
    """Since when it is down."""
    since = datetime.now(UTC)
    installation.stop_postgres()
    yield since
    installation.start_postgres()


@pytest.fixture(scope="module")
def with_a_wrong_password(installation: Installation) -> Iterator[None]:
    installation.give_runs_api_a_wrong_password()
    yield
    installation.give_runs_api_its_password()


@pytest.mark.usefixtures("with_a_wrong_password")
def test_a_namespace_goes_after_an_install_with_a_wrong_password(admin: Kubectl) -> None:
    assert_a_namespace_can_be_deleted(admin)
    assert "ServiceUnavailable" in admin.refusal("get", "runs")


def test_runs_are_served_once_the_password_is_right(fleet: Kubectl, installation: Installation) -> None:
    wait_for("runs to be served", lambda: runs.of_job(fleet, "minutely"))


@pytest.mark.usefixtures("without_postgres")
def test_a_namespace_goes_while_postgres_is_down(admin: Kubectl) -> None:
    assert_a_namespace_can_be_deleted(admin)


@pytest.mark.usefixtures("without_postgres")
def test_data_requests_answer_503_while_postgres_is_down(admin: Kubectl) -> None:
    assert "ServiceUnavailable" in admin.refusal("get", "runs")
    assert "runs" in admin.run("api-resources", "--api-group=runs.clockhand.dev").out


def assert_a_namespace_can_be_deleted(admin: Kubectl) -> None:
    name = f"e2e-unrelated-{secrets.token_hex(2)}"
    inside = admin.create_namespace(name)
    inside.run("create", "configmap", "something")
    # discovery of every API group is asked for afresh
    admin.run("delete", "namespace", name, "--timeout=90s", seconds=100)
    assert admin.find("namespace", name) is None
