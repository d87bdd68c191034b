"""Events on a real API server, made with the operator's own rights: what `kubectl describe` and `get events` show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from tests.support import installation, light, postgres
from tests.support.crd_cases import job
from tests.support.kubectl import Kubectl, wait_for

Json = dict[str, Any]


@pytest.fixture(scope="module")
def team() -> Iterator[Kubectl]:
    """A namespace that takes one pod and no more, under an installation of one operator."""
    with (
        light.LightCluster() as cluster,
        postgres.server() as server,
        closing(installation.Processes(cluster, server)) as installed,
    ):
        installed.install(operators=1)
        team = Kubectl(cluster.kubeconfig).create_namespace("told")
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "one"}}
        team.apply({**quota, "spec": {"hard": {"pods": "1"}}})
        team.run("wait", "--for=jsonpath={.status.hard.pods}=1", "quota/one", "--timeout=60s")
        yield team


def hanging() -> Json:
    asked = {"test.clockhand.dev/outcome": "hang"}
    return {"metadata": {"annotations": asked}, "spec": {"containers": [{"name": "main", "image": "any"}]}}


def told(team: Kubectl, name: str, reason: str) -> Json:
    selector = f"--field-selector=involvedObject.name={name},reason={reason}"
    found: list[Json] = wait_for(f"{reason} of {name}", lambda: team.items("events", selector))
    return found[0]


def test_a_pod_that_the_quota_refuses_is_told_where_people_look(team: Kubectl) -> None:
    team.apply(job("greedy", schedule=None, every="1s", template=hanging(), retry={"maxAttempts": 1}))
    refused = told(team, "greedy", "PodRefused")
    uid = team.get("sjob", "greedy")["metadata"]["uid"]
    assert refused["type"] == "Warning"
    assert "QuotaExceeded" in refused["message"]
    assert "exceeded quota: one" in refused["message"]
    about = refused["involvedObject"]
    assert (about["apiVersion"], about["kind"], about["uid"]) == ("clockhand.dev/v1alpha1", "ScheduledJob", uid)
    assert "exceeded quota: one" in team.run("describe", "sjob", "greedy").out
    listed = team.run("get", "events").out
    assert "scheduledjob/greedy" in listed
    events = team.get("events.v1.events.k8s.io", f"--field-selector=regarding.uid={uid}")["items"]
    assert {one["reportingController"] for one in events} == {"clockhand-operator"}
