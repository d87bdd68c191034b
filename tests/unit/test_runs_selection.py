"""Selectors: what they mean, and that SQL and the watch are told the same."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime

import pytest

from clockhand.api.runs import selection, status
from clockhand.store import listing


def run(**fields: object) -> listing.Run:
    values: dict[str, object] = {
        "run_id": uuid.UUID(int=1),
        "job_id": uuid.UUID(int=2),
        "owner": "k8s/team-a",
        "job_name": "nightly",
        "name": "nightly-20261129t020000z",
        "labels": {"tier": "gold"},
        "kind": "Slot",
        "scheduled_at": datetime(2026, 11, 29, 2, tzinfo=UTC),
        "created_at": datetime(2026, 11, 29, 2, tzinfo=UTC),
        "state": "Running",
        **fields,
    }
    return listing.Run(**values)  # type: ignore[arg-type]


def chosen(fields: str = "", labels: str = "", namespace: str | None = None) -> selection.Selection:
    return selection.parse(namespace=namespace, fields=fields, labels=labels)


@pytest.mark.parametrize(
    "fields",
    [
        "",
        "metadata.name=nightly-20261129t020000z",
        "metadata.name==nightly-20261129t020000z",
        "metadata.namespace=team-a,spec.job=nightly",
        "status.state=Running",
        "status.state!=Dead,status.state!=Queued",
        "spec.day=2026-11-29",
        "spec.day!=2026-11-28,metadata.name!=other,spec.job!=other,metadata.namespace!=team-b",
    ],
)
def test_a_run_that_meets_every_term(fields: str) -> None:
    assert chosen(fields).matches(run())


@pytest.mark.parametrize(
    "fields",
    [
        "metadata.name=other",
        "metadata.name!=nightly-20261129t020000z",
        "metadata.namespace=team-b",
        "metadata.namespace!=team-a",
        "spec.job=other",
        "spec.job!=nightly",
        "status.state=Dead",
        "status.state!=Running",
        "spec.day=2026-11-28",
        "spec.day!=2026-11-29",
        "spec.job=nightly,spec.job=other",
    ],
)
def test_a_run_that_misses_one(fields: str) -> None:
    assert not chosen(fields).matches(run())


@pytest.mark.parametrize(
    ("labels", "holds"),
    [
        ("tier=gold", True),
        ("tier==gold", True),
        ("tier = gold , team notin (a)", True),
        ("tier!=gold", False),
        ("team!=a", True),
        ("tier", True),
        ("!tier", False),
        ("!team", True),
        ("tier in (gold, silver)", True),
        ("tier in (silver)", False),
        ("tier notin (silver,tin)", True),
        ("tier notin (gold)", False),
        ("clockhand.dev/job=nightly", True),
        ("clockhand.dev/job in (nightly),tier", True),
        ("example.com/tier=", False),
    ],
)
def test_labels(labels: str, holds: bool) -> None:
    assert chosen(labels=labels).matches(run()) is holds


def test_other_owners_never_match() -> None:
    assert not chosen().matches(run(owner="rest/team-a"))


@pytest.mark.parametrize(
    ("fields", "bounded"),
    [
        ("", True),
        ("metadata.namespace=team-a", True),
        ("metadata.name!=x", True),
        ("metadata.name=x", True),
        ("metadata.name=x,metadata.namespace=team-a", False),
        ("spec.job=x", False),
        ("spec.day=2026-11-29", False),
        ("status.state!=Succeeded", False),
    ],
)
def test_only_some_fields_lift_the_window(fields: str, bounded: bool) -> None:
    assert chosen(fields).is_bounded is bounded


def test_the_job_may_be_named_by_its_label() -> None:
    assert chosen(labels="clockhand.dev/job=nightly").job == "nightly"
    assert chosen(labels="clockhand.dev/job!=nightly").job is None


def test_sql_is_told_the_same() -> None:
    sift = chosen("spec.job=j,status.state=Dead", "a=1,b in (x,y),c,!d,e!=5", namespace="team-a").sift()
    assert (sift.owner, sift.job, sift.states) == ("k8s/team-a", "j", frozenset({"Dead"}))
    assert (sift.equal, sift.within, sift.outside) == ({"a": "1"}, {"b": ["x", "y"]}, {"e": ["5"]})
    assert (list(sift.present), list(sift.absent)) == (["c"], ["d"])


@pytest.mark.parametrize(
    ("fields", "labels"),
    [
        ("status.colour=red", ""),
        ("status.state", ""),
        ("status.state=Blue", ""),
        ("spec.day=29.11.2026", ""),
        ("spec.day=0001-01-01", ""),
        ("", "a in b"),
        ("", "a=b=c"),
        ("", ","),
        ("", "-a=b"),
        ("", "a in (b))"),
        ("", "a>1"),
    ],
)
def test_what_cannot_be_read(fields: str, labels: str) -> None:
    with pytest.raises(status.Failure) as caught:
        chosen(fields, labels)
    assert caught.value.code == 400


def test_a_token_is_bound_to_all_selectors_and_the_namespace() -> None:
    prints = {
        chosen().fingerprint,
        chosen("spec.job=a").fingerprint,
        chosen(labels="spec.job=a").fingerprint,
        chosen(namespace="team-a").fingerprint,
    }
    assert len(prints) == 4


def test_the_last_millisecond_of_a_day_belongs_to_it() -> None:
    first, last = selection.span_of_day(date(2026, 11, 29))
    assert (first.isoformat(), last.isoformat()) == ("2026-11-29T00:00:00+00:00", "2026-11-29T23:59:59.999000+00:00")
