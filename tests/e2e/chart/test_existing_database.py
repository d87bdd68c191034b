"""With a Secret and nothing else, by Helm 3."""

from __future__ import annotations

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
    made.give_secret(release.database_in(namespace("database")))
    made.install(VALUES)
    return made


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
