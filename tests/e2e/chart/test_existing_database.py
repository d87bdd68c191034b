"""With a Secret and nothing else, by Helm 3."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support import helm, release, steady
from tests.support.kubectl import Kubectl, wait_for

VALUES = {**release.IMAGES, **helm.DATABASE}
UPGRADED = {**VALUES, "logFormat": "text"}


@pytest.fixture(scope="module")
def one(kubeconfig: Path, namespace: Callable[[str], Kubectl]) -> release.Release:
    made = release.Release("helm3", kubeconfig)
    made.make_namespace()
    give_secret(made, database_in(namespace("database")))
    made.install(VALUES)
    return made


def database_in(there: Kubectl) -> str:
    """The URL of a server that is no part of the release: the chart's own one, elsewhere."""
    made = helm.Helm("helm4", namespace=there.namespace).template(release.DEMO)
    part = "app.kubernetes.io/component"
    there.apply(*(thing for thing in made if thing["metadata"]["labels"].get(part) == "postgres"))
    there.run("rollout", "status", "statefulset/clockhand-postgres", "--timeout=180s", seconds=190)
    password = base64.b64decode(there.get("secret", "clockhand-database")["data"]["password"]).decode()
    return f"postgresql://clockhand:{password}@clockhand-postgres.{there.namespace}/clockhand"


def give_secret(one: release.Release, url: str) -> None:
    one.own.run("create", "secret", "generic", "clockhand-database", f"--from-literal=url={url}")


def test_helm_test_passes(one: release.Release) -> None:
    assert "Succeeded" in one.test()


def test_an_upgrade_under_load_loses_and_doubles_nothing(one: release.Release, team: Kubectl) -> None:
    before = set(one.pods())
    steady.account_for_every_slot(team, lambda: one.upgrade(UPGRADED))
    # those that were replaced may still be draining
    wait_for("the pods of before to go", lambda: not before & set(one.pods()))


def test_an_uninstall_leaves_nothing_but_the_definitions(one: release.Release) -> None:
    one.uninstall()
    assert not one.left()
    one.kubectl.run("delete", "namespace", helm.NAMESPACE, "--timeout=120s", seconds=130)
