"""What a JobClass leaves to its users, and that nothing else of its pods is theirs."""

from __future__ import annotations

import copy
import re
from decimal import Decimal
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies

from clockhand import errors
from clockhand.domain import jobclass, quantities, spec

Json = dict[str, Any]
TEMPLATE: Json = {
    "metadata": {"labels": {"team": "reports"}},
    "spec": {
        "serviceAccountName": "reporter",
        "containers": [
            {"name": "proxy", "image": "proxy:1"},
            {
                "name": "main",
                "image": "reports:1",
                "args": ["all"],
                "env": [{"name": "TARGET", "value": "lake"}],
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
            },
        ],
    },
}
TEMPLATE["metadata"]["annotations"] = {"kubectl.kubernetes.io/default-container": "main"}
OPEN: Json = {
    "namespaces": ["team-a", "team-b"],
    "template": TEMPLATE,
    "allow": ["Command", "Args", "Env"],
    "images": ["reports:*", "registry.example.org/*/nightly"],
    "maxResources": {"cpu": "2", "memory": "1Gi"},
}
FROM: Json = copy.deepcopy(OPEN)
FROM["template"]["spec"]["containers"][1]["envFrom"] = [{"secretRef": {"name": "keys"}}]
CLOSED: Json = {"namespaces": ["*"], "template": TEMPLATE}


def made(named: Json, namespace: str = "team-a", **run: object) -> Json:
    job = spec.parse({"schedule": "@daily", "run": {"class": "batch", **run}})
    assert job.run is not None
    return jobclass.template(jobclass.parse(named), job.run, namespace=namespace)


def test_without_more_the_pod_is_that_of_the_class() -> None:
    assert made(CLOSED) == TEMPLATE
    assert made(OPEN, "team-b") == TEMPLATE


def test_what_users_set_is_of_the_main_container() -> None:
    before = copy.deepcopy(TEMPLATE)
    found = made(
        OPEN,
        image="reports:2",
        command=["report"],
        args=[],
        env=[{"name": "DAY", "value": "monday"}, {"name": "EMPTY"}],
        resources={"requests": {"cpu": "2000m"}, "limits": {"memory": "1024Mi", "cpu": "2"}},
    )
    wanted = copy.deepcopy(TEMPLATE)
    wanted["spec"]["containers"][1] |= {
        "image": "reports:2",
        "command": ("report",),
        "args": (),
        "env": [
            {"name": "TARGET", "value": "lake"},
            {"name": "DAY", "value": "monday"},
            {"name": "EMPTY", "value": ""},
        ],
        "resources": {"requests": {"cpu": "2000m", "memory": "64Mi"}, "limits": {"memory": "1024Mi", "cpu": "2"}},
    }
    assert found == wanted
    assert before == TEMPLATE


def test_a_class_may_lack_what_users_set() -> None:
    bare = {"spec": {"containers": [{"name": "main", "image": "any"}]}}
    found = made({**OPEN, "template": bare}, env=[{"name": "DAY"}], resources={"limits": {"cpu": "1"}})
    [main] = found["spec"]["containers"]
    assert main == {
        "name": "main",
        "image": "any",
        "env": [{"name": "DAY", "value": ""}],
        "resources": {"limits": {"cpu": "1"}},
    }


@pytest.mark.parametrize(
    ("named", "run", "field", "sentence"),
    [
        (OPEN, {"image": "other:1"}, "image", "does not let its users choose other:1: choose one of reports:*, "),
        (OPEN, {"image": "evil/reports:1"}, "image", "does not let its users choose evil/reports:1"),
        (OPEN, {"image": "registryXexample.org/a/nightly"}, "image", "does not let its users choose"),
        (CLOSED, {"image": "reports:1"}, "image", "does not let its users choose reports:1: leave it out"),
        (CLOSED, {"command": ["sh"]}, "command", "does not leave it to its users: leave it out"),
        (CLOSED, {"args": []}, "args", "does not leave it to its users: leave it out"),
        (CLOSED, {"env": [{"name": "A"}]}, "env", "does not leave it to its users: leave it out"),
        (OPEN, {"env": [{"name": "A"}, {"name": "TARGET"}]}, "env", "sets TARGET itself: leave it out"),
        (CLOSED, {"resources": {"limits": {"cpu": "1"}}}, "resources.limits", "does not let its users choose cpu"),
        (
            OPEN,
            {"resources": {"requests": {"memory": "1.1Gi"}}},
            "resources.requests",
            "lets its users have 1Gi of memory at most, not 1.1Gi",
        ),
        (OPEN, {"resources": {"limits": {"cpu": "0"}}}, "resources.limits", "cannot have 0 of cpu as its limit"),
        (OPEN, {"resources": {"limits": {"memory": "0.0Gi"}}}, "resources.limits", "cannot have 0 of memory"),
        (FROM, {"env": [{"name": "A"}]}, "env", "takes variables by envFrom, which others could replace"),
        (OPEN, {"resources": {"limits": {"nvidia.com/gpu": "1"}}}, "resources.limits", "choose nvidia.com/gpu"),
    ],
)
def test_what_is_not_left_to_users_is_refused(named: Json, run: Json, field: str, sentence: str) -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        made(named, **run)
    assert caught.value.field == f"spec.run.{field}"
    assert caught.value.sentence.startswith("JobClass batch ")
    assert sentence in caught.value.sentence


def test_variables_taken_from_elsewhere_concern_the_main_container_alone() -> None:
    assert made(FROM)["spec"]["containers"][1]["envFrom"]
    beside = copy.deepcopy(OPEN)
    beside["template"]["spec"]["containers"][0]["envFrom"] = [{"secretRef": {"name": "keys"}}]
    assert made(beside, env=[{"name": "A"}])["spec"]["containers"][1]["env"][-1] == {"name": "A", "value": ""}


def test_to_ask_for_nothing_is_no_limit_of_nothing() -> None:
    assert (
        made(OPEN, resources={"requests": {"cpu": "0"}})["spec"]["containers"][1]["resources"]["requests"]["cpu"] == "0"
    )


def test_a_quantity_ends_where_its_text_does() -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        made(OPEN, resources={"limits": {"cpu": "1\n"}})
    assert caught.value.field == "spec.run.resources.limits.cpu"


def permits(pattern: str, image: str) -> bool:
    try:
        made({**OPEN, "images": [pattern]}, image=image)
    except errors.InvalidInput:
        return False
    return True


@hypothesis.settings(max_examples=400, deadline=None)
@hypothesis.given(strategies.text("ab/*", min_size=1, max_size=7), strategies.text("ab/", min_size=1, max_size=7))
@hypothesis.example("ab*b", "ab")
@hypothesis.example("a*", "a")
@hypothesis.example("a*a/*a", "aa/aa")
@hypothesis.example("reports:*", "reports:5000/x")
def test_a_star_stands_for_any_text(pattern: str, image: str) -> None:
    as_expression = ".*".join(map(re.escape, pattern.split("*")))
    assert permits(pattern, image) == (re.fullmatch(as_expression, image) is not None)


def test_many_stars_take_no_more_than_their_share() -> None:
    assert not permits("*a" * 500 + "*b", "a" * 1_000)


def test_other_namespaces_are_refused() -> None:
    with pytest.raises(
        errors.InvalidInput, match=r"spec\.run\.class: JobClass batch is not for jobs of namespace team-c"
    ):
        made(OPEN, "team-c")


@pytest.mark.parametrize(
    ("fields", "field", "sentence"),
    [
        ({"namespaces": None}, "spec.namespaces", "is missing"),
        ({"namespaces": []}, "spec.namespaces", "must not be empty"),
        ({"namespaces": ["Team"]}, "spec.namespaces[0]", "is no name of a namespace"),
        ({"template": None}, "spec.template", "is missing"),
        ({"template": {"spec": {"containers": []}}}, "spec.template.spec.containers", "at least one container"),
        (
            {"template": {"spec": {"containers": [{"name": "a", "image": "b", "env": "c"}]}}},
            "spec.template.spec.containers.env",
            "must be a list of names and values",
        ),
        (
            {"template": {"spec": {"containers": [{"name": "a", "image": "b", "env": [{"name": ["c"]}]}]}}},
            "spec.template.spec.containers.env",
            "must be a list of names and values",
        ),
        (
            {"template": {"spec": {"containers": [{"name": "a", "image": "b", "resources": {"limits": 1}}]}}},
            "spec.template.spec.containers.resources",
            "must be an object with requests and limits",
        ),
        (
            {"template": {"spec": {**TEMPLATE["spec"], "restartPolicy": "Always"}}},
            "spec.template.spec.restartPolicy",
            "must be Never",
        ),
        (
            {"template": {**TEMPLATE, "metadata": {"labels": {"clockhand.dev/job": "x"}}}},
            "spec.template.metadata.labels.clockhand.dev/job",
            "are set by Clockhand",
        ),
        ({"allow": ["Image"]}, "spec.allow[0]", "is not a known value"),
        ({"images": ["a b"]}, "spec.images[0]", "leave white space out"),
        ({"maxResources": {"cpu": "lots"}}, "spec.maxResources.cpu", "is no quantity"),
        ({"volumes": []}, "spec.volumes", "is not a known field"),
    ],
)
def test_a_wrong_class_is_refused(fields: Json, field: str, sentence: str) -> None:
    document = {name: value for name, value in {**OPEN, **fields}.items() if value is not None}
    with pytest.raises(errors.InvalidInput) as caught:
        jobclass.parse(document)
    assert caught.value.field == field
    assert sentence in caught.value.sentence


def test_an_object_is_read() -> None:
    body: Json = {"metadata": {"name": "batch", "uid": "1"}, "spec": OPEN}
    found = jobclass.from_object(body)
    assert found is not None
    shuffled = dict(reversed(OPEN.items()))
    assert found == jobclass.from_object({"spec": shuffled, "metadata": {"name": "batch", "labels": {"a": "b"}}})
    other = jobclass.from_object({**body, "spec": CLOSED})
    assert other is not None
    assert other.hash != found.hash
    assert jobclass.from_object({**body, "metadata": {"name": "batch", "deletionTimestamp": "now"}}) is None
    with pytest.raises(errors.InvalidInput, match="metadata"):
        jobclass.from_object({"spec": OPEN})
    unkept = jobclass.from_object({**body, "spec": {**OPEN, "images": ["a\x00"]}})
    assert unkept is not None
    assert unkept.spec_json == "{}"


@pytest.mark.parametrize(
    ("text", "value"),
    [("2", "2"), ("500m", "0.5"), ("1.5Gi", "1610612736"), ("3k", "3000"), ("1Ei", str(2**60)), ("0", "0")],
)
def test_a_quantity_has_a_value(text: str, value: str) -> None:
    assert quantities.value(text) == Decimal(value)
