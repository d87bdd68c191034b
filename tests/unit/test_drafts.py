"""Jobs as they are sent over REST: flat, and every mistake named where its writer sees it."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from clockhand import errors
from clockhand.domain import drafts, ids, pointers, resources, spec

JOB: dict[str, Any] = {"schedule": "0 2 * * *", "handler": "email.send"}


def read(**fields: Any) -> drafts.Draft:
    return drafts.read({**JOB, **fields}, new=True)


def wrong(document: object, *, new: bool = True) -> errors.InvalidInput:
    with pytest.raises(errors.InvalidInput) as caught:
        drafts.read(document, new=new)
    return caught.value


def test_a_job_is_flat() -> None:
    draft = read(name="nightly", labels={"acme.com/team": "a"}, payload={"to": "you"}, retry={"maxAttempts": 5})
    assert draft.name == "nightly"
    assert draft.labels == {"acme.com/team": "a"}
    assert draft.spec.payload_json == '{"to":"you"}'
    stored = spec.decode(draft.spec.spec_json)
    assert (stored.schedule, stored.handler, stored.retry.max_attempts) == ("0 2 * * *", "email.send", 5)


def test_what_was_read_may_be_sent_back() -> None:
    first = read(retry={"rules": [{"onErrors": ["TimeoutError"], "action": "Fail"}]}, payload=[1, "two", None])
    shown = {
        **{name: "the server's" for name in resources.SERVER_FIELDS},
        **drafts.shown(first.spec.spec_json),
        "payload": json.loads(first.spec.payload_json),
    }
    assert drafts.read(shown, new=False) == first


@pytest.mark.parametrize("name", ["runAt", "run_at", "at"])
def test_one_instant_has_several_names(name: str) -> None:
    draft = drafts.read({"handler": "x", name: "2030-01-01T00:00:00Z"}, new=True)
    assert draft.spec.job.at == "2030-01-01T00:00:00Z"
    assert draft.spec.job.ttl_seconds_after_finished == resources.TTL_SECONDS


def test_a_one_shot_stays_where_its_maker_says_so() -> None:
    once = {"handler": "x", "at": "2030-01-01T00:00:00Z", "ttlSecondsAfterFinished": None}
    assert drafts.read(once, new=True).spec.job.ttl_seconds_after_finished is None
    del once["ttlSecondsAfterFinished"]
    assert drafts.read(once, new=False).spec.job.ttl_seconds_after_finished is None, "an edit says what it wants"


@pytest.mark.parametrize(
    ("fields", "field", "sentence"),
    [
        ({"schedule": "61 * * * *"}, "schedule", "61"),
        ({"every": "5m"}, "", "exactly one of schedule, schedules, every and at must be set"),
        ({"handler": None}, "", "exactly one of template, handler and run must be set"),
        ({"retry": {"maxAttempts": 0}}, "retry.maxAttempts", "must be at least 1"),
        ({"retry": {"backoff": {"factor": "two"}}}, "retry.backoff.factor", "must be a number, not a string"),
        ({"retry": {"rules": [{"action": "Fail"}]}}, "retry.rules[0]", "must have onExitCodes or onErrors"),
        ({"scheduel": "x"}, "scheduel", "did you mean schedule?"),
        ({"nmae": "x"}, "nmae", "did you mean name?"),
        ({"payloda": {}}, "payloda", "did you mean payload?"),
        ({"at": "2030-01-01T00:00:00Z", "runAt": "2030-01-01T00:00:00Z"}, "runAt", "says what at says"),
        ({"name": 7}, "name", "must be a string, not a number"),
        ({"name": "Nightly"}, "name", "is no name"),
        ({"name": "-a"}, "name", "is no name"),
        ({"name": "a" * 64}, "name", "must be at most 63 characters"),
        ({"labels": ["a"]}, "labels", "must be an object, not a list"),
        ({"labels": {"a b": "c"}}, "labels", "has a key that is none"),
        ({"labels": {"app.kubernetes.io/name": 7}}, "labels[app.kubernetes.io/name]", "must be a string, not a number"),
        ({"labels": {"a": "b c"}}, "labels[a]", "at most 63 letters"),
        ({"labels": {f"a{n}": "" for n in range(65)}}, "labels", "at most 64 entries"),
        ({"payload": "x" * 70_000}, "payload", "is 70002 bytes as compact JSON"),
        ({"payload": {"a": "b\x00"}}, "payload.a", "holds a NUL character"),
        ({"payload": {"a": [2**64]}}, "payload.a[0]", "is an integer beyond 64 bits"),
        ({"handler": "a\x00"}, "handler", "holds a NUL character"),
        ({"priority": 2**63}, "priority", "must be at most 100"),
        ({"priority": 10**400}, "priority", "must be at most 100"),
        ({"startAt": "10000-01-01T00:00:00Z"}, "startAt", "is not an instant from 1970 to 9998"),
        ({"timeZone": "Mars/Olympus"}, "timeZone", ""),
        ({"ttlSecondsAfterFinished": 5}, "ttlSecondsAfterFinished", "is only for a job with at: leave it out"),
        ({"endAt": "2030-01-01T00:00:00Z", "startAt": "2031-01-01T00:00:00Z"}, "endAt", "lies before startAt"),
    ],
)
def test_a_mistake_is_named_as_its_writer_sees_it(fields: dict[str, Any], field: str, sentence: str) -> None:
    error = wrong({name: value for name, value in {**JOB, **fields}.items() if value is not None})
    assert error.field == field
    assert sentence in error.sentence
    assert "spec." not in str(error)


def test_only_the_prefix_of_the_spec_is_left_out() -> None:
    assert drafts.plain("spec.template.spec.containers of spec.at") == "template.spec.containers of at"


@pytest.mark.parametrize("document", [None, [], "x", 7, True])
def test_a_job_is_an_object(document: object) -> None:
    assert wrong(document).field == ""


@pytest.mark.parametrize("depth", [64, 65, 66, 400])
def test_a_payload_is_nested_so_deep_and_no_deeper(depth: int) -> None:
    payload = json.loads("[" * depth + "]" * depth)
    if depth <= 65:
        assert read(payload=payload).spec.payload_json == "[" * depth + "]" * depth
    else:
        assert "nested deeper than 64 levels" in wrong({**JOB, "payload": payload}).sentence


def test_a_payload_with_many_parts_side_by_side_is_not_deep() -> None:
    assert read(payload=[{} for _ in range(100)]).spec.payload_json == f"[{','.join(['{}'] * 100)}]"


def test_specs_that_are_written_alike_are_read_once() -> None:
    assert read(payload=1).spec.job is read(payload=2, name="other").spec.job


def test_a_large_spec_is_not_remembered() -> None:
    template = {"spec": {"containers": [{"name": "main", "image": "x" * 3_000}]}}
    document = {"schedule": "* * * * *", "template": template}
    first, second = (drafts.read(document, new=True).spec for _ in range(2))
    assert first == second
    assert first.job is not second.job


def test_a_merge_patch_replaces_what_it_names_and_takes_away_what_it_nulls() -> None:
    shown = {**JOB, "labels": {"a": "1", "b": "2"}, "payload": {"x": {"y": 1, "z": 2}}, "retry": {"maxAttempts": 3}}
    patch = {"labels": {"a": None}, "payload": {"x": {"y": None, "w": [None]}}, "retry": 7, "handler": None}
    assert drafts.merged(shown, {**patch, "status": "the server's", "run_at": "then"}) == {
        "schedule": "0 2 * * *", "labels": {"b": "2"}, "payload": {"x": {"z": 2, "w": [None]}}, "retry": 7, "at": "then",
    }  # fmt: skip
    with pytest.raises(errors.InvalidInput) as caught:
        drafts.merged(shown, {"handlr": "x"})
    assert (caught.value.field, "did you mean handler?" in caught.value.sentence) == ("handlr", True)


def test_ids_of_new_jobs_sort_by_time_and_are_of_their_version() -> None:
    earlier = list(ids.new_jobs(datetime(2026, 1, 1, tzinfo=UTC), 100))
    later = list(ids.new_jobs(datetime(2026, 1, 1, 0, 0, 0, 1_000, tzinfo=UTC), 100))
    assert max(earlier) < min(later)
    assert len({*earlier, *later}) == 200
    assert {(one.version, one.variant) for one in (*earlier, *later)} == {(7, uuid.RFC_4122)}


@pytest.mark.parametrize(
    ("path", "pointer"),
    [
        ("", ""),
        ("retry.rules[0].action", "/retry/rules/0/action"),
        ("labels[app.kubernetes.io/name]", "/labels/app.kubernetes.io~1name"),
        ("a~b", "/a~0b"),
    ],
)
def test_pointers_lead_to_what_paths_name(path: str, pointer: str) -> None:
    assert pointers.of_path(path) == pointer


def test_a_decoder_of_json_brings_no_surrogate_and_no_infinity() -> None:
    for text in (b'"\\ud800"', b"1e999", b"NaN", b"Infinity"):
        with pytest.raises(msgspec.DecodeError):
            msgspec.json.decode(text)
