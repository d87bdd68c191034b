"""One command and a database that comes along, by Helm 4; in this order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support import helm, objects, release, steady
from tests.support.kubectl import Kubectl, wait_for

VALUES = {**release.DEMO, "networkPolicy": {"enabled": True}}
UPGRADED = {**VALUES, "pods": {"annotations": {"example.com/upgraded": "yes"}}}


@pytest.fixture(scope="module")
def one(kubeconfig: Path) -> release.Release:
    made = release.Release("helm4", kubeconfig)
    made.make_namespace()
    made.install(VALUES)
    return made


def test_helm_test_passes(one: release.Release) -> None:
    assert "Succeeded" in one.test()


def test_an_upgrade_under_load_loses_and_doubles_nothing(one: release.Release, team: Kubectl) -> None:
    before = set(one.pods())
    steady.account_for_every_slot(team, lambda: one.upgrade(UPGRADED))
    # those that were replaced may still be draining
    wait_for("the pods of before to go", lambda: not before & set(one.pods()))


def test_who_is_not_admitted_cannot_reach_the_database(
    one: release.Release, namespace: Callable[[str], Kubectl]
) -> None:
    stranger = namespace("stranger")
    # the same pod is admitted elsewhere: it is not the network that is broken
    assert called(stranger, "rest", f"clockhand-api.{helm.NAMESPACE}", 8080)
    if called(stranger, "database", f"clockhand-postgres.{helm.NAMESPACE}", 5432):
        pytest.skip("skipped, not enforced: the network of this cluster knows no policies")
    one.test()


def test_an_uninstall_leaves_definitions_and_jobs_and_nothing_else(one: release.Release, team: Kubectl) -> None:
    team.apply(objects.job("kept"))
    one.uninstall()
    assert not one.left()
    assert team.find("sjob", "kept")
    one.kubectl.run("delete", "namespace", helm.NAMESPACE, "--timeout=120s", seconds=130)


def called(stranger: Kubectl, name: str, host: str, port: int) -> bool:
    """Whether a connection from a pod there comes about."""
    script = f"import socket; socket.create_connection(('{host}', {port}), timeout=10)"
    body = objects.template("true")["spec"]
    body["containers"][0]["command"] = ["python3", "-c", script]
    stranger.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {**body, "restartPolicy": "Never"}}
    )

    def over() -> Any:
        phase = stranger.get("pod", name)["status"].get("phase")
        return phase if phase in ("Succeeded", "Failed") else None

    return bool(wait_for(f"the pod {name} to end", over) == "Succeeded")
