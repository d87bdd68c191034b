"""Names, bodies and identities of pods."""

from __future__ import annotations

import copy
import json
import re
import uuid
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clockhand import errors
from clockhand.domain import observed, pods

RUN = pods.RunFacts(
    run_id=uuid.UUID("0199c0de-0000-8000-8000-000000000001"),
    run_name="nightly-20261101t053000z",
    job_uid=uuid.UUID("11111111-2222-4333-8444-555555555555"),
    attempt=2,
    token=-9_223_372_036_854_775_808,
    fencing_token=4_294_967_297,
    shard=17,
    scheduled_at=datetime(2026, 11, 1, 5, 30, tzinfo=UTC),
    payload=b'{"to":"a@b","n":1}',
)
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def template(**spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "main", "image": "busybox"}], **spec}}


def body(source: dict[str, Any], run: pods.RunFacts = RUN) -> dict[str, Any]:
    rendered = pods.render_template(source, namespace="team-a", job="nightly")
    decoded: dict[str, Any] = json.loads(rendered.body_for(run))
    return decoded


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in container["env"]}


def decode(value: dict[str, Any]) -> observed.Pod:
    return msgspec.json.decode(json.dumps(value), type=observed.Pod)


@given(
    st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?", fullmatch=True),
    st.uuids(),
    st.integers(1, 99_999_999),
)
def test_a_pod_name_is_a_dns_label(job: str, run_id: uuid.UUID, attempt: int) -> None:
    name = pods.pod_name(job, run_id, attempt)
    assert LABEL.fullmatch(name)
    assert len(name) <= 63
    assert name.endswith(f"-{attempt}")


def test_a_pod_name_never_changes() -> None:
    assert pods.pod_name("nightly-report", RUN.run_id, 1) == "nightly-report-4hddi5j26scrv-1"
    assert pods.pod_name("x" * 39 + "-tail", RUN.run_id, 3) == "x" * 39 + "-4hddi5j26scrv-3"


def test_names_differ_by_run_and_attempt() -> None:
    names = {pods.pod_name("job", uuid.UUID(int=run), attempt) for run in range(200) for attempt in range(1, 6)}
    assert len(names) == 1000


def test_the_body_says_whose_it_is() -> None:
    pod = body(template())
    assert pod["apiVersion"] == "v1"
    assert pod["kind"] == "Pod"
    assert pod["metadata"] == {
        "name": pods.pod_name("nightly", RUN.run_id, 2),
        "namespace": "team-a",
        "labels": {"app.kubernetes.io/managed-by": "clockhand", "clockhand.dev/job": "nightly"},
        "annotations": {
            "clockhand.dev/keep": "60/3",
            "clockhand.dev/run-id": str(RUN.run_id),
            "clockhand.dev/job-uid": str(RUN.job_uid),
            "clockhand.dev/attempt": "2",
            "clockhand.dev/token": "-9223372036854775808",
            "clockhand.dev/shard": "17",
        },
    }
    assert pod["spec"]["restartPolicy"] == "Never"


def test_every_container_knows_its_run() -> None:
    source = template(initContainers=[{"name": "prepare", "image": "busybox"}])
    source["spec"]["containers"].append({"name": "sidecar", "image": "busybox", "env": None})
    pod = body(source)
    containers = [*pod["spec"]["containers"], *pod["spec"]["initContainers"]]
    assert len(containers) == 3
    for container in containers:
        assert environment(container) == {
            "CLOCKHAND_RUN_ID": str(RUN.run_id),
            "CLOCKHAND_RUN_NAME": "nightly-20261101t053000z",
            "CLOCKHAND_JOB": "nightly",
            "CLOCKHAND_NAMESPACE": "team-a",
            "CLOCKHAND_SCHEDULED_AT": "2026-11-01T05:30:00Z",
            "CLOCKHAND_ATTEMPT": "2",
            "CLOCKHAND_FENCING_TOKEN": "4294967297",
            "CLOCKHAND_PAYLOAD": '{"to":"a@b","n":1}',
        }


def test_the_claim_token_is_no_part_of_the_environment() -> None:
    pod = body(template())
    assert str(RUN.token) not in json.dumps(pod["spec"])


def test_the_users_environment_stays_but_cannot_pass_for_ours() -> None:
    source = template()
    source["spec"]["containers"][0]["env"] = [
        {"name": "CLOCKHAND_RUN_ID", "value": "forged"},
        {"name": "MINE", "value": "$(CLOCKHAND_RUN_ID)"},
        {"name": "CLOCKHAND_URL", "value": "http://x"},
    ]
    entries = body(source)["spec"]["containers"][0]["env"]
    names = [entry["name"] for entry in entries]
    assert len(names) == len(set(names)) == 10
    assert environment({"env": entries})["CLOCKHAND_RUN_ID"] == str(RUN.run_id)
    assert names.index("CLOCKHAND_RUN_ID") < names.index("MINE"), "a value can only refer to what is before it"


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.none(), max_size=4))
def test_any_payload_arrives_as_it_is(payload: dict[str, Any]) -> None:
    text = msgspec.json.encode(payload)
    pod = body(template(), _with_payload(text))
    value = environment(pod["spec"]["containers"][0])["CLOCKHAND_PAYLOAD"]
    assert expand(value) == text.decode()


@pytest.mark.parametrize("text", [b'"$(CLOCKHAND_JOB)"', b'"$$(A) $ $$$"', b'"a$"', '"é\\u0000☃"'.encode()])
def test_dollar_signs_survive_the_expansion_of_kubernetes(text: bytes) -> None:
    pod = body(template(), _with_payload(text))
    assert expand(environment(pod["spec"]["containers"][0])["CLOCKHAND_PAYLOAD"]) == text.decode()


def test_rendering_leaves_the_template_as_it_was() -> None:
    source = template(initContainers=[{"name": "prepare", "image": "busybox", "env": [{"name": "A"}]}])
    source["metadata"] = {"labels": {"app": "x"}, "annotations": {"note": "y"}}
    before = copy.deepcopy(source)
    pods.render_template(source, namespace="team-a", job="nightly")
    assert source == before


def test_of_the_templates_metadata_only_labels_and_annotations_count() -> None:
    source = template() | {
        "metadata": {
            "name": "mine",
            "namespace": "kube-system",
            "generateName": "mine-",
            "finalizers": ["example.com/hold"],
            "ownerReferences": [{"kind": "Job", "name": "x", "uid": "y", "apiVersion": "v1"}],
            "labels": {"app": "report", "app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"note": "kept"},
        }
    }
    metadata = body(source)["metadata"]
    assert set(metadata) == {"name", "namespace", "labels", "annotations"}
    assert metadata["namespace"] == "team-a"
    assert metadata["labels"]["app"] == "report"
    assert metadata["labels"]["app.kubernetes.io/managed-by"] == "clockhand"
    assert metadata["annotations"]["note"] == "kept"


def test_text_that_looks_like_a_gap_is_only_text() -> None:
    first = pods.render_template(template(), namespace="team-a", job="nightly")
    source = template()
    source["metadata"] = {"annotations": {"a": ":name", "b": f"{'0' * 64}:token", "c": first.gaps[0]}}
    annotations = body(source)["metadata"]["annotations"]
    assert annotations["a"] == ":name"
    assert annotations["b"] == f"{'0' * 64}:token"
    assert annotations["c"] == first.gaps[0]


@pytest.mark.parametrize(
    ("source", "field"),
    [
        ({"spec": {}}, "spec.template.spec.containers"),
        ({}, "spec.template.spec.containers"),
        ({"spec": {"containers": "main"}}, "spec.template.spec.containers"),
        ({"spec": {"containers": ["main"]}}, "spec.template.spec.containers"),
        ({"spec": []}, "spec.template.spec"),
        (template(restartPolicy="Always"), "spec.template.spec.restartPolicy"),
        (template(restartPolicy="OnFailure"), "spec.template.spec.restartPolicy"),
        (template(initContainers={"a": 1}), "spec.template.spec.initContainers"),
        (
            template() | {"metadata": {"labels": {"clockhand.dev/job": "x"}}},
            "spec.template.metadata.labels.clockhand.dev/job",
        ),
        (
            template() | {"metadata": {"annotations": {"clockhand.dev/token": "1"}}},
            "spec.template.metadata.annotations.clockhand.dev/token",
        ),
        (
            template() | {"metadata": {"annotations": {observed.DEFAULT_CONTAINER: "gone"}}},
            f"spec.template.metadata.annotations.{observed.DEFAULT_CONTAINER}",
        ),
        (
            {"spec": {"containers": [{"name": "main", "env": {"A": "b"}}]}},
            "spec.template.spec.containers.env",
        ),
        (
            {"spec": {"containers": [{"name": "main", "env": [{"name": ["A"]}]}]}},
            "spec.template.spec.containers.env",
        ),
        (
            {"spec": {"containers": [{"name": "main", "env": [{"value": "b"}]}]}},
            "spec.template.spec.containers.env",
        ),
        (
            template(initContainers=[{"name": "prepare", "env": [{"name": {"A": "b"}}]}]),
            "spec.template.spec.initContainers.env",
        ),
    ],
)
def test_a_template_that_cannot_work_is_refused(source: dict[str, Any], field: str) -> None:
    with pytest.raises(errors.InvalidInput) as refused:
        pods.render_template(source, namespace="team-a", job="nightly")
    assert refused.value.field == field


def test_no_init_containers_may_be_null() -> None:
    assert body(template(initContainers=None))["spec"]["initContainers"] is None


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.just("name") | TEXTS, inner, max_size=3),
    max_leaves=6,
)
ENTRIES = ANY | st.lists(ANY | st.fixed_dictionaries({"name": ANY}), max_size=3)
CONTAINERS = ANY | st.lists(ANY | st.fixed_dictionaries({}, optional={"name": ANY, "env": ENTRIES}), max_size=2)
ODD = st.fixed_dictionaries(
    {},
    optional={
        "metadata": ANY | st.fixed_dictionaries({}, optional={"labels": ANY, "annotations": ANY}),
        "spec": ANY
        | st.fixed_dictionaries(
            {"containers": CONTAINERS},
            optional={"initContainers": CONTAINERS, "volumes": ANY, "restartPolicy": ANY},
        ),
    },
)


@settings(max_examples=400, deadline=None)
@given(ODD)
def test_whatever_a_template_holds_it_is_rendered_or_refused(source: dict[str, Any]) -> None:
    try:
        rendered = pods.render_template(source, namespace="team-a", job="nightly")
    except errors.InvalidInput:
        return
    assert json.loads(rendered.body_for(RUN))["kind"] == "Pod"


def test_the_main_container_is_the_annotated_one_else_the_first() -> None:
    source = template()
    source["spec"]["containers"].insert(0, {"name": "proxy", "image": "busybox"})
    assert pods.render_template(source, namespace="a", job="j").main_container == "proxy"
    source["metadata"] = {"annotations": {observed.DEFAULT_CONTAINER: "main"}}
    assert pods.render_template(source, namespace="a", job="j").main_container == "main"


def test_a_pod_belongs_to_the_attempt_it_was_made_for() -> None:
    pod = decode(body(template()))
    assert pods.belongs_to(pod, RUN)
    assert pods.identity_of(pod) == pods.PodIdentity(RUN.run_id, RUN.job_uid, 2, RUN.token, 17)


@pytest.mark.parametrize(
    ("mark", "value", "ours"),
    [
        ("run-id", str(uuid.UUID(int=5)), False),
        ("job-uid", str(uuid.UUID(int=5)), False),
        ("attempt", "3", False),
        ("token", "1", False),
        ("token", "", False),
        ("run-id", "nonsense", False),
        ("shard", "18", True),
    ],
)
def test_a_pod_with_another_mark_is_not_ours(mark: str, value: str, ours: bool) -> None:
    pod = body(template())
    pod["metadata"]["annotations"][f"clockhand.dev/{mark}"] = value
    assert pods.belongs_to(decode(pod), RUN) is ours


def test_a_pod_without_marks_has_no_identity() -> None:
    pod = body(template())
    del pod["metadata"]["annotations"]
    assert pods.identity_of(decode(pod)) is None


def _with_payload(text: bytes) -> pods.RunFacts:
    return pods.RunFacts(RUN.run_id, RUN.run_name, RUN.job_uid, 2, RUN.token, 1, 17, RUN.scheduled_at, payload=text)


def expand(value: str) -> str:
    """What the kubelet makes of an environment value when no variable of that name exists."""
    result = []
    at = 0
    while at < len(value):
        if value[at] == "$" and value[at + 1 : at + 2] == "$":
            at += 1
        elif value[at] == "$" and value[at + 1 : at + 2] == "(":
            raise AssertionError("the kubelet would take this for a variable")
        result.append(value[at])
        at += 1
    return "".join(result)
