"""The spec of a WorkerPool: what is refused with which sentence, and what follows from what is not."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Any

import pytest
import yaml

from clockhand import errors
from clockhand.domain import workerpool

POD = {"containers": [{"name": "worker"}]}
UID = uuid.UUID(int=7)
PAGES = sorted((Path(__file__).parents[2] / "docs").glob("*.md"))


def seen(spec: object = None, *, name: str = "mailers", **metadata: object) -> dict[str, Any]:
    """The object as the API server shows it."""
    known = {"uid": str(UID), "namespace": "team-a", "name": name, "resourceVersion": "12", "generation": 3}
    return {"metadata": {**known, **metadata}, "spec": {} if spec is None else spec}


@pytest.mark.parametrize(
    ("spec", "field", "sentence"),
    [
        ({"image": "one", "template": {"spec": POD}}, "spec.image", workerpool.IMAGE_OR_TEMPLATE),
        ({"replicas": 2, "maxReplicas": 3}, "spec.replicas", workerpool.FIXED_OR_SCALED),
        ({"minReplicas": 2}, "spec.minReplicas", workerpool.ONLY_SCALED),
        ({"minReplicas": 3, "maxReplicas": 2}, "spec.maxReplicas", workerpool.LESS_THAN_MIN),
        ({"leaseSeconds": 60}, "spec.heartbeatSeconds", workerpool.TOO_SELDOM),
        ({"external": True, "image": "one"}, "spec.image", workerpool.NOT_EXTERNAL),
        ({"external": True, "replicas": 1}, "spec.replicas", workerpool.NOT_EXTERNAL),
        ({"replica": 1}, "spec.replica", "did you mean replicas?"),
        ({"handlers": ["a b"]}, "spec.handlers[0]", "such as email.send"),
        ({"allowedNamespaces": ["A"]}, "spec.allowedNamespaces[0]", "is no name of a namespace"),
        ({"execCommands": {"../x": ["true"]}}, "spec.execCommands", "is no name of a command"),
        ({"execCommands": {"x": []}}, "spec.execCommands.x", "must not be empty"),
        ({"execCommands": {"x": "true"}}, "spec.execCommands.x", "must be a list"),
        ({"http": {"allowedHosts": ["https://one/path"]}}, "spec.http.allowedHosts[0]", "without a path"),
        ({"http": {"allowedNetworks": ["10.0.0.1"]}}, "spec.http.allowedNetworks[0]", "such as 10.1.0.0/16"),
        ({"http": {"secretName": "A"}}, "spec.http.secretName", "is no name of a Secret"),
        ({"image": "a b"}, "spec.image", "leave white space out"),
        ({"template": {"spec": {}}}, "spec.template.spec.containers", "at least one container"),
        (
            {"template": {"spec": {"containers": [{"name": "worker", "env": "A=b"}]}}},
            "spec.template.spec.containers[0].env",
            "must be a list of objects",
        ),
        ({"template": {"spec": {**POD, "restartPolicy": "Never"}}}, "spec.template.spec.restartPolicy", "Always"),
    ],
)
def test_what_is_refused(spec: dict[str, object], field: str, sentence: str) -> None:
    with pytest.raises(errors.InvalidInput) as refused:
        workerpool.parse(spec)
    assert refused.value.field == field
    assert sentence in refused.value.sentence


@pytest.mark.parametrize(
    ("spec", "fewest", "most"),
    [
        ({}, 1, 1),
        ({"replicas": 0}, 0, 0),
        ({"replicas": 4}, 4, 4),
        ({"maxReplicas": 5}, 1, 5),
        ({"minReplicas": 0, "maxReplicas": 5}, 0, 5),
    ],
)
def test_how_many_workers(spec: dict[str, object], fewest: int, most: int) -> None:
    pool = workerpool.parse(spec)
    assert (pool.fewest, pool.most) == (fewest, most)


def test_whose_jobs_may_name_the_pool() -> None:
    assert workerpool.parse({}).allowed_owners == ()
    assert workerpool.parse({"allowedNamespaces": ["team-b", "*"]}).allowed_owners == ("k8s/team-b", "*")


@pytest.mark.parametrize(
    ("spec", "account"),
    [
        ({}, "clockhand-pool-mailers"),
        ({"template": {"spec": {**POD, "serviceAccountName": "own"}}}, "own"),
        ({"external": True}, None),
        ({"replica": 1}, None),
    ],
)
def test_whose_tokens_act_for_the_pool(spec: dict[str, object], account: str | None) -> None:
    pool = workerpool.from_object(seen(spec))
    assert pool is not None
    assert pool.service_account == account


def test_an_object_that_cannot_be_used_says_why() -> None:
    pool = workerpool.from_object(seen({"replicas": -1}))
    assert pool is not None
    assert pool.key == "k8s/team-a/mailers"
    assert pool.spec is None
    assert pool.fault == "spec.replicas: must be at least 0, not -1"
    dotted = workerpool.from_object(seen(name="a.b"))
    assert dotted is not None
    assert dotted.fault == f"metadata.name: {workerpool.NO_DOTS}"


def test_an_object_that_goes_away_is_no_pool() -> None:
    assert workerpool.from_object(seen(deletionTimestamp="2026-01-01T00:00:00Z")) is None
    with pytest.raises(errors.InvalidInput):
        workerpool.from_object({"metadata": {"name": "x"}})


def test_the_pools_that_pages_show_are_good() -> None:
    blocks = [block for page in PAGES for block in re.findall(r"```yaml\n(.+?)```", page.read_text(), re.DOTALL)]
    found = [
        body
        for block in blocks
        for body in yaml.safe_load_all(block)
        if isinstance(body, dict) and body.get("kind") == "WorkerPool"
    ]
    assert len(found) >= 2
    for body in found:
        workerpool.parse(body["spec"])
