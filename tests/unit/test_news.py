"""What the events of a job tell, and what they pass over."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from clockhand.domain import instants, news

NOTHING = news.Told()
AT = datetime(2026, 11, 1, 2, 30, tzinfo=UTC)


def condition(kind: str, status: str, reason: str, message: str = "why") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": "t"}


READY = condition("Ready", "True", "Scheduled", "slots fire when they fall due")
REFUSED = condition("Ready", "False", "InvalidSpec", "spec.schedule is odd")
PAUSED = condition("Paused", "True", "Failures", "3 runs in a row ended Dead")


def run(state: str, **fields: Any) -> news.Run:
    given = {"name": "nightly-1", "state": state, "reason": None, "message": None, "attempts": 1, **fields}
    return news.Run(**given)


def told(
    before: news.Told, *conditions: dict[str, Any], now: dict[str, Any] | None = None, **facts: Any
) -> list[news.News]:
    standing = msgspec.structs.replace(news.standing(conditions), **(now or {}))
    return news.news(before, news.Facts(conditions=conditions, now=standing, **facts))


def notes(found: list[news.News]) -> list[tuple[str, str, str]]:
    return [(one.type, one.reason, one.note) for one in found]


def test_a_job_that_is_well_is_no_news() -> None:
    assert told(NOTHING, READY) == []


def test_a_spec_that_cannot_be_used_is_told_once_and_so_is_its_end() -> None:
    assert notes(told(NOTHING, REFUSED)) == [("Warning", "InvalidSpec", "spec.schedule is odd")]
    before = news.standing([REFUSED])
    assert told(before, REFUSED) == []
    assert notes(told(before, {**REFUSED, "message": "another"})) == [("Warning", "InvalidSpec", "another")]
    assert notes(told(before, READY)) == [("Normal", "Ready", "slots fire when they fall due")]


def test_a_pause_is_told_and_its_end() -> None:
    assert notes(told(NOTHING, READY, PAUSED)) == [("Warning", "Paused", "3 runs in a row ended Dead")]
    assert told(news.standing([READY, PAUSED]), READY, PAUSED) == []
    [resumed] = told(news.standing([READY, PAUSED]), READY)
    assert (resumed.type, resumed.reason) == ("Normal", "Resumed")


def test_a_failed_attempt_is_told_while_its_run_goes_on() -> None:
    failed = run("Retrying", attempt=1, ended_by="Error", exit_code=3, message="what the log said")
    [one] = told(NOTHING, READY, now={"failed": "x/1"}, failed=failed)
    assert (one.reason, one.note) == ("AttemptFailed", "attempt 1 of run nightly-1 failed: Error, exit code 3")
    over = run("Dead", reason="AttemptsUsed", attempt=1, ended_by="Error", exit_code=3)
    assert told(NOTHING, READY, now={"failed": "x/1"}, failed=over) == []


def test_runs_that_ended_ill_are_one_event_with_the_last_of_them() -> None:
    last = run("Dead", reason="AttemptsUsed", attempt=3, ended_by="OOMKilled", exit_code=137)
    ended = "run nightly-1 ended Dead: AttemptsUsed, attempt 3 ended by OOMKilled, exit code 137"
    [one] = told(NOTHING, READY, now={"ill": 1}, ill=last)
    assert (one.type, one.reason, one.note) == ("Warning", "RunDead", ended)
    [many] = told(news.Told(ill=1), READY, now={"ill": 4}, ill=last)
    assert many.note == f"3 runs ended Dead or Unknown; {ended}"
    unseen = run("Unknown", reason="OutcomeUnseen")
    [one] = told(NOTHING, READY, now={"ill": 1}, ill=unseen)
    assert (one.reason, one.note) == ("RunUnknown", "run nightly-1 ended Unknown: OutcomeUnseen")


def test_a_run_that_cannot_start_is_told_while_it_waits() -> None:
    waiting = run("Claimed", reason="QuotaExceeded", message="exceeded quota: pods=1")
    [one] = told(NOTHING, READY, now={"stuck": "x"}, stuck=waiting)
    assert one.reason == "PodRefused"
    assert one.note == "run nightly-1 cannot start, and is tried again: QuotaExceeded: exceeded quota: pods=1"
    assert told(NOTHING, READY, now={"stuck": "x"}, stuck=run("Running")) == []


def test_missed_slots_are_counted() -> None:
    [one] = told(NOTHING, READY, now={"missed": 1}, missed_at=AT)
    assert (one.reason, one.note) == (
        "SlotsMissed",
        "the slot of 2026-11-01T02:30:00Z did not run: it had fallen due too long ago",
    )
    [many] = told(news.Told(missed=1), READY, now={"missed": 11}, missed_at=AT)
    assert many.note.startswith("10 slots, the last one of 2026-11-01T02:30:00Z, did not run")


def test_the_same_fact_has_the_same_name_and_another_one_has_not() -> None:
    last = run("Dead")
    first, again, more = (told(NOTHING, READY, now={"ill": count}, ill=last)[0].fact for count in (1, 1, 2))
    assert first == again != more


def test_the_workers_of_a_pool_may_take_their_time() -> None:
    def late(seconds: int, ready: int = 0) -> list[news.News]:
        return news.of_pool([], [since(seconds, "False", "WorkersNotReady", f"{ready} of 3 workers are ready")], now=AT)

    assert late(119) == []
    assert notes(late(120)) == [("Warning", "WorkersNotReady", "0 of 3 workers are ready")]
    assert late(121)[0].fact != late(120)[0].fact, "another time"
    assert late(120, 1)[0].fact == late(120)[0].fact, "the same time"


def test_a_pool_that_is_refused_is_told_at_once_and_so_is_its_end() -> None:
    refused = since(0, "False", "NameTaken", "there is a ConfigMap already")
    ready = condition("Ready", "True", "WorkersReady", "1 of 1 workers are ready")
    assert notes(news.of_pool([], [refused], now=AT)) == [("Warning", "NameTaken", "there is a ConfigMap already")]
    assert notes(news.of_pool([refused], [ready], now=AT)) == [("Normal", "Ready", "1 of 1 workers are ready")]
    assert news.of_pool([ready], [ready], now=AT) == []
    assert news.of_pool([since(60, "False", "WorkersNotReady", "soon")], [ready], now=AT) == [], "nobody was told"


def test_brokers_of_a_pool_that_cannot_be_reached_are_told_and_those_that_can_again() -> None:
    away, back = (condition("KafkaReachable", status, "why", status) for status in ("False", "True"))
    assert notes(news.of_pool([], [away], now=AT)) == [("Warning", "BrokersUnreachable", "False")]
    assert notes(news.of_pool([away], [back], now=AT)) == [("Normal", "BrokersReachable", "True")]
    assert news.of_pool([away], [], now=AT) == [], "a pool that needs none any more"


def test_what_somebody_else_wrote_about_a_pool_is_borne() -> None:
    ready = condition("Ready", "True", "WorkersReady", "1 of 1 workers are ready")
    odd = [{"type": "Ready", "status": "False"}, {"type": "KafkaReachable", "status": "False"}]
    assert [one.reason for one in news.of_pool(odd, [ready], now=AT)] == ["Ready"]


def since(seconds: int, status: str, reason: str, message: str) -> dict[str, Any]:
    found = condition("Ready", status, reason, message)
    return {**found, "lastTransitionTime": instants.rfc3339(AT - timedelta(seconds=seconds))}
