"""What an end of an attempt means: table by table, and back-off within its bounds."""

from __future__ import annotations

import dataclasses
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies

from clockhand.domain import spec, states, verdict
from clockhand.domain.spec import Delivery, RuleAction
from clockhand.domain.states import Reason
from clockhand.domain.states import RunState as S
from clockhand.domain.verdict import Ending

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
RUN = verdict.OpenRun(
    run_id=uuid.UUID(int=7),
    state=S.RUNNING,
    attempt=1,
    failures=0,
    disruptions=0,
    stop_reason=None,
    job_is_deleted=False,
)
RULES = (
    spec.Rule(on_exit_codes=(42,), action=RuleAction.FAIL),
    spec.Rule(on_exit_codes=(43,), action=RuleAction.IGNORE),
    spec.Rule(on_exit_codes=(42, 44), action=RuleAction.RETRY),
)
ONCE = Delivery.AT_MOST_ONCE
LEAST = Delivery.AT_LEAST_ONCE


def job(delivery: Delivery = LEAST, *, attempts: int = 3, disruptions: int = 2, **backoff: Any) -> spec.JobSpec:
    retry = spec.Retry(max_attempts=attempts, max_disruptions=disruptions, rules=RULES, backoff=spec.Backoff(**backoff))
    return spec.JobSpec(schedule="* * * * *", delivery=delivery, retry=retry)


def judge(
    ending: Ending,
    *,
    plan: spec.JobSpec | None = None,
    code: int | None = None,
    asked: bool = False,
    **run: Any,
) -> verdict.Verdict:
    end = verdict.AttemptEnd(ending, reason="Error", exit_code=code, asked=asked)
    return verdict.judge(plan or job(), dataclasses.replace(RUN, **run), end, now=NOW)


@pytest.mark.parametrize(
    ("ending", "delivery", "run", "state", "reason", "charged"),
    [
        (Ending.SUCCEEDED, LEAST, {}, S.SUCCEEDED, None, (0, 0)),
        (Ending.SUCCEEDED, ONCE, {}, S.SUCCEEDED, None, (0, 0)),
        # failures are charged
        (Ending.FAILED, LEAST, {}, S.RETRYING, "Error", (1, 0)),
        (Ending.FAILED, LEAST, {"failures": 1}, S.RETRYING, "Error", (2, 0)),
        (Ending.FAILED, LEAST, {"failures": 2}, S.DEAD, Reason.ATTEMPTS_USED, (3, 0)),
        (Ending.FAILED, ONCE, {}, S.DEAD, Reason.ATTEMPTS_USED, (1, 0)),
        (Ending.NAME_TAKEN, LEAST, {}, S.RETRYING, "Error", (1, 0)),
        (Ending.NAME_TAKEN, LEAST, {"failures": 2}, S.DEAD, Reason.ATTEMPTS_USED, (3, 0)),
        (Ending.REFUSED, LEAST, {}, S.DEAD, Reason.POD_REFUSED, (1, 0)),
        (Ending.REFUSED, ONCE, {}, S.DEAD, Reason.POD_REFUSED, (1, 0)),
        # disruptions have a limit of their own
        (Ending.DISRUPTED, LEAST, {"failures": 2}, S.RETRYING, "Error", (2, 1)),
        (Ending.DISRUPTED, LEAST, {"disruptions": 1}, S.RETRYING, "Error", (0, 2)),
        (Ending.DISRUPTED, LEAST, {"disruptions": 2}, S.DEAD, Reason.DISRUPTED, (0, 3)),
        (Ending.GONE, LEAST, {}, S.RETRYING, "Error", (0, 1)),
        (Ending.NEVER_STARTED, LEAST, {}, S.RETRYING, "Error", (0, 1)),
        # at most once: what was not seen is not known
        (Ending.DISRUPTED, ONCE, {}, S.UNKNOWN, Reason.OUTCOME_UNSEEN, (0, 0)),
        (Ending.GONE, ONCE, {}, S.UNKNOWN, Reason.OUTCOME_UNSEEN, (0, 0)),
        (Ending.NEVER_STARTED, ONCE, {}, S.RETRYING, "Error", (0, 1)),
        # a namespace that goes ends it, whatever else was asked
        (Ending.NAMESPACE_DELETED, LEAST, {}, S.CANCELLED, Reason.NAMESPACE_DELETED, (0, 0)),
        (Ending.NAMESPACE_DELETED, ONCE, {}, S.CANCELLED, Reason.NAMESPACE_DELETED, (0, 0)),
        (
            Ending.NAMESPACE_DELETED,
            LEAST,
            {"stop_reason": Reason.REPLACED, "state": S.STOPPING},
            S.CANCELLED,
            Reason.NAMESPACE_DELETED,
            (0, 0),
        ),
        # a deleted job gets no further attempt
        (Ending.FAILED, LEAST, {"job_is_deleted": True}, S.DEAD, Reason.JOB_DELETED, (1, 0)),
        (Ending.DISRUPTED, LEAST, {"job_is_deleted": True}, S.DEAD, Reason.JOB_DELETED, (0, 1)),
        (Ending.SUCCEEDED, LEAST, {"job_is_deleted": True}, S.SUCCEEDED, None, (0, 0)),
    ],
)
def test_an_attempt_that_nobody_stopped(
    ending: Ending, delivery: Delivery, run: dict[str, Any], state: S, reason: str | None, charged: tuple[int, int]
) -> None:
    found = judge(ending, plan=job(delivery), **run)
    assert (found.state, found.reason, (found.failures, found.disruptions)) == (state, reason, charged)
    assert (found.ready_at is not None) is (state is S.RETRYING)


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("delivery", [LEAST, ONCE])
@pytest.mark.parametrize("ending", [Ending.FAILED, Ending.DISRUPTED, Ending.GONE, Ending.NEVER_STARTED])
@pytest.mark.parametrize(
    ("stop", "least", "failed"),
    [
        (Reason.CANCELLED, S.CANCELLED, S.CANCELLED),
        (Reason.REPLACED, S.CANCELLED, S.CANCELLED),
        (Reason.JOB_DELETED, S.CANCELLED, S.CANCELLED),
        (Reason.RUN_TIMEOUT, S.DEAD, S.DEAD),
        (Reason.ATTEMPT_TIMEOUT, S.RETRYING, S.DEAD),
        (Reason.PENDING_TIMEOUT, S.RETRYING, S.DEAD),
    ],
)
def test_an_attempt_that_was_stopped(
    stop: Reason, least: S, failed: S, ending: Ending, delivery: Delivery, asked: bool
) -> None:
    unseen = ending in (Ending.GONE, Ending.DISRUPTED)
    wanted = least if delivery is LEAST else S.UNKNOWN if unseen else failed
    found = judge(ending, plan=job(delivery), asked=asked, state=S.STOPPING, stop_reason=stop)
    assert found.state is wanted
    if found.state is not S.UNKNOWN:
        assert found.reason == stop


def test_a_timeout_uses_up_an_attempt() -> None:
    found = judge(Ending.FAILED, state=S.STOPPING, stop_reason=Reason.ATTEMPT_TIMEOUT, failures=2, code=43)
    assert (found.state, found.reason, found.failures) == (S.DEAD, Reason.ATTEMPT_TIMEOUT, 3)


def test_it_finished_first() -> None:
    assert judge(Ending.SUCCEEDED, state=S.STOPPING, stop_reason=Reason.REPLACED).state is S.SUCCEEDED


def test_a_pod_that_exits_with_zero_because_it_was_told_to_stop_did_not_succeed() -> None:
    found = judge(Ending.SUCCEEDED, asked=True, state=S.STOPPING, stop_reason=Reason.CANCELLED)
    assert (found.state, found.reason) == (S.CANCELLED, Reason.CANCELLED)


def test_a_pod_deleted_by_hand_that_still_finished_succeeded() -> None:
    assert judge(Ending.SUCCEEDED, asked=True).state is S.SUCCEEDED


@pytest.mark.parametrize(
    ("code", "delivery", "state", "reason", "charged"),
    [
        (42, LEAST, S.DEAD, Reason.FAIL_RULE, (1, 0)),  # the first match wins
        (43, LEAST, S.RETRYING, "Error", (0, 1)),
        (44, LEAST, S.RETRYING, "Error", (1, 0)),
        (1, LEAST, S.RETRYING, "Error", (1, 0)),
        (None, LEAST, S.RETRYING, "Error", (1, 0)),
        (42, ONCE, S.DEAD, Reason.FAIL_RULE, (1, 0)),
        # the failure was seen, so it is known, whatever the rule makes of it
        (43, ONCE, S.DEAD, Reason.ATTEMPTS_USED, (1, 0)),
        (44, ONCE, S.DEAD, Reason.ATTEMPTS_USED, (1, 0)),
    ],
)
def test_rules(code: int | None, delivery: Delivery, state: S, reason: str, charged: tuple[int, int]) -> None:
    found = judge(Ending.FAILED, plan=job(delivery), code=code)
    assert (found.state, found.reason, (found.failures, found.disruptions)) == (state, reason, charged)


def test_people_are_told_what_happened() -> None:
    end = verdict.AttemptEnd(Ending.FAILED, reason="OOMKilled", exit_code=137, message="memory")
    assert verdict.judge(job(), RUN, end, now=NOW).message == "OOMKilled: exit code 137: memory"


endings = strategies.builds(
    verdict.AttemptEnd,
    strategies.sampled_from(Ending),
    exit_code=strategies.none() | strategies.integers(0, 255),
    asked=strategies.booleans(),
)
opens = strategies.builds(
    dataclasses.replace,
    strategies.just(RUN),
    state=strategies.sampled_from(sorted(states.ATTEMPT_OPEN)),
    failures=strategies.integers(0, 5),
    disruptions=strategies.integers(0, 5),
    job_is_deleted=strategies.booleans(),
    stop_reason=strategies.none()
    | strategies.sampled_from(
        [Reason.CANCELLED, Reason.REPLACED, Reason.ATTEMPT_TIMEOUT, Reason.PENDING_TIMEOUT, Reason.RUN_TIMEOUT]
    ),
)


@hypothesis.given(strategies.sampled_from(Delivery), opens, endings)
def test_a_verdict_is_a_move_of_the_table(delivery: Delivery, run: verdict.OpenRun, end: verdict.AttemptEnd) -> None:
    run = dataclasses.replace(run, state=S.STOPPING if run.stop_reason else S.RUNNING)
    found = verdict.judge(job(delivery), run, end, now=NOW)
    assert states.may_become(run.state, found.state)
    assert found.failures + found.disruptions <= run.failures + run.disruptions + 1
    assert (found.ready_at is None) is found.state.is_over
    if delivery is ONCE and end.ending is not Ending.NEVER_STARTED:
        assert found.state is not S.RETRYING


@pytest.mark.parametrize(("tries", "seconds"), [(1, 10), (2, 20), (3, 40), (6, 320), (7, 600), (10_000, 600)])
def test_back_off_grows_and_is_capped(tries: int, seconds: int) -> None:
    assert verdict.backoff(job(jitter=0), RUN, tries=tries) == timedelta(seconds=seconds)


@hypothesis.given(
    strategies.integers(0, 86_400),
    strategies.floats(1, 10),
    strategies.integers(1, 7 * 86_400),
    strategies.floats(0, 1),
    strategies.integers(1, 10_000),
)
def test_back_off_stays_within_its_bounds(initial: int, factor: float, most: int, jitter: float, tries: int) -> None:
    plan = job(initial_seconds=initial, factor=factor, max_seconds=most, jitter=jitter)
    wait = verdict.backoff(plan, dataclasses.replace(RUN, attempt=tries), tries=tries).total_seconds()
    plain = min(initial * factor ** min(tries - 1, 64), most)
    assert plain * (1 - jitter) - 1e-5 <= wait <= plain * (1 + jitter) + 1e-5


def test_jitter_is_a_runs_own_and_the_same_in_every_process() -> None:
    waits = {
        verdict.backoff(job(jitter=0.5), dataclasses.replace(RUN, run_id=uuid.UUID(int=number)), tries=3)
        for number in range(100)
    }
    assert len(waits) > 90
    again = dataclasses.replace(RUN, run_id=uuid.UUID(int=1))
    assert verdict.backoff(job(jitter=0.5), again, tries=3) == verdict.backoff(job(jitter=0.5), again, tries=3)


def told(ending: Ending = Ending.FAILED, *, plan: spec.JobSpec | None = None, **end: Any) -> verdict.Verdict:
    return verdict.judge(plan or job(), RUN, verdict.AttemptEnd(ending, **{"reason": "Error", **end}), now=NOW)


def test_a_handler_may_say_that_another_attempt_will_not_help() -> None:
    for delivery in (LEAST, ONCE):
        decided = told(plan=job(delivery), fatal=True, message="no such mailbox")
        assert (decided.state, decided.reason, decided.failures) == (S.DEAD, Reason.HANDLER_FAILED, 1)
        assert decided.message == "Error: no such mailbox"


def test_a_handler_may_say_when_to_come_again_and_is_charged_all_the_same() -> None:
    decided = told(retry_after=timedelta(hours=3))
    assert (decided.state, decided.failures, decided.ready_at) == (S.RETRYING, 1, NOW + timedelta(hours=3))
    assert told(retry_after=timedelta()).ready_at == NOW
    assert told(plan=job(attempts=1), retry_after=timedelta(hours=3)).state == S.DEAD


@pytest.mark.parametrize(
    ("rule", "end", "matches"),
    [
        (spec.Rule(on_errors=("TimeoutError", "http.503"), action=RuleAction.FAIL), {"reason": "http.503"}, True),
        (spec.Rule(on_errors=("TimeoutError",), action=RuleAction.FAIL), {"reason": "http.503"}, False),
        (spec.Rule(on_errors=("E",), on_exit_codes=(3,), action=RuleAction.FAIL), {"exit_code": 3}, True),
        (spec.Rule(on_errors=("E",), on_exit_codes=(3,), action=RuleAction.FAIL), {"reason": "E"}, True),
        (spec.Rule(on_errors=("E",), on_exit_codes=(3,), action=RuleAction.FAIL), {"exit_code": 4}, False),
    ],
)
def test_rules_know_errors_by_their_names(rule: spec.Rule, end: dict[str, Any], matches: bool) -> None:
    plan = spec.JobSpec(schedule="* * * * *", retry=spec.Retry(rules=(rule,)))
    assert (told(plan=plan, **end).reason == Reason.FAIL_RULE) is matches


def test_an_attempt_that_was_alone_with_its_worker_is_to_blame_for_its_silence() -> None:
    assert (told(Ending.GONE, alone=True).failures, told(Ending.GONE, alone=True).disruptions) == (1, 0)
    assert (told(Ending.GONE).failures, told(Ending.GONE).disruptions) == (0, 1)
    unseen = told(Ending.GONE, plan=job(ONCE), alone=True)
    assert (unseen.state, unseen.failures) == (S.UNKNOWN, 0)
