"""What the events of an object tell: what its owner must know, each fact once.

What has happened to a job is in the rows, and so is how far it was told, so that no process has to remember anything. That a
run went well is no news. What there is to tell of a pool follows from the conditions that it showed and shows.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from clockhand.domain import conditions, instants, states


class Reason(enum.StrEnum):
    """Reasons of events, beside those of the condition Ready where that is False."""

    ATTEMPT_FAILED = "AttemptFailed"  # the first one since a run succeeded
    RUN_DEAD = "RunDead"
    RUN_UNKNOWN = "RunUnknown"
    POD_REFUSED = "PodRefused"  # for now: it is tried again
    SLOTS_MISSED = "SlotsMissed"
    PAUSED = "Paused"
    RESUMED = "Resumed"
    READY = "Ready"  # again
    BROKERS_UNREACHABLE = "BrokersUnreachable"
    BROKERS_REACHABLE = "BrokersReachable"  # again


PATIENCE = timedelta(minutes=2)
"""So long the workers of a pool may take to be ready before it is news: they come and go."""


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far the events of a job have told of it."""

    failed: str = ""
    stuck: str = ""
    ill: int = 0
    missed: int = 0
    paused: bool = False
    ready: str = ""
    """Empty while Ready is not False, else what was said of it."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run of which there is something to tell, and how an attempt of it ended, where one did not end well."""

    name: str
    state: str
    reason: str | None
    message: str | None
    attempts: int
    attempt: int | None = None
    ended_by: str | None = None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rows say of one job. Runs are None where they are gone, and where there is nothing new of them."""

    conditions: conditions.Stored
    now: Told
    """What is told once all this is."""
    failed: Run | None = None
    stuck: Run | None = None
    ill: Run | None = None
    missed_at: datetime | None = None
    """The last slot that was missed."""


@dataclass(frozen=True, slots=True)
class News:
    """One event. `fact` is what it tells of: the same fact has the same one, whoever comes upon it."""

    reason: str
    note: str
    fact: str
    type: Literal["Normal", "Warning"] = "Warning"


def standing(shown: conditions.Stored) -> Told:
    """What the conditions of an object would have told."""
    ready = next((one for one in shown if one["type"] == conditions.READY), None)
    refused = ready is not None and ready["status"] == conditions.FALSE
    said = f"{ready['reason']}: {ready['message']}" if refused and ready else ""
    paused = conditions.status_of(shown, conditions.PAUSED) == conditions.TRUE
    return Told(paused=paused, ready=hashlib.sha256(said.encode()).hexdigest()[:16] if said else "")


def news(told: Told, facts: Facts) -> list[News]:
    """What is new of a job since `told`."""
    now = facts.now
    found = [*_of_conditions(told, facts)]
    if facts.missed_at is not None and now.missed > told.missed:
        note = _missed(now.missed - told.missed, facts.missed_at)
        found.append(News(Reason.SLOTS_MISSED, note, f"missed/{now.missed}"))
    if facts.stuck is not None and facts.stuck.state == states.RunState.CLAIMED and facts.stuck.reason:
        found.append(News(Reason.POD_REFUSED, _stuck(facts.stuck), f"stuck/{now.stuck}"))
    if facts.failed is not None and facts.failed.attempt is not None and not _is_over(facts.failed):
        found.append(News(Reason.ATTEMPT_FAILED, _failed(facts.failed), f"failed/{now.failed}"))
    if facts.ill is not None and now.ill > told.ill:
        reason = Reason.RUN_UNKNOWN if facts.ill.state == states.RunState.UNKNOWN else Reason.RUN_DEAD
        found.append(News(reason, _ill(now.ill - told.ill, facts.ill), f"ill/{now.ill}"))
    return found


def of_pool(before: conditions.Stored, shown: conditions.Stored, *, now: datetime) -> list[News]:
    """What there is to tell of a pool that showed `before`, and shows `shown` now; a trouble as long as it stands."""
    found = []
    ready, was = conditions.of_type(shown, conditions.READY), conditions.of_type(before, conditions.READY)
    if _is_trouble(ready, now=now):
        late = ready["reason"] == conditions.WORKERS_NOT_READY
        # the sentence of those who are late counts them, and so changes with each one that comes
        what = "late" if late else hashlib.sha256(str(ready["message"]).encode()).hexdigest()[:16]
        fact = f"ready/{ready['lastTransitionTime']}/{ready['reason']}/{what}"
        found.append(News(str(ready["reason"]), str(ready["message"]), fact))
    elif ready.get("status") == conditions.TRUE and _is_trouble(was, now=now):
        found.append(
            News(Reason.READY, str(ready["message"]), f"ready/after/{was.get('lastTransitionTime')}", "Normal")
        )
    kafka, was = (conditions.of_type(one, conditions.KAFKA_REACHABLE) for one in (shown, before))
    if kafka.get("status") == conditions.FALSE:
        found.append(News(Reason.BROKERS_UNREACHABLE, str(kafka["message"]), f"kafka/{kafka['lastTransitionTime']}"))
    elif kafka and was.get("status") == conditions.FALSE:
        fact = f"kafka/after/{was.get('lastTransitionTime')}"
        found.append(News(Reason.BROKERS_REACHABLE, str(kafka["message"]), fact, "Normal"))
    return found


def _is_trouble(ready: Mapping[str, object], *, now: datetime) -> bool:
    if ready.get("status") != conditions.FALSE:
        return False
    try:
        since = datetime.fromisoformat(str(ready.get("lastTransitionTime")))
    except ValueError:  # somebody else wrote it
        since = now
    return ready.get("reason") != conditions.WORKERS_NOT_READY or now - since >= PATIENCE


def _of_conditions(told: Told, facts: Facts) -> Iterator[News]:
    now = facts.now
    sentences = {str(one["type"]): one for one in facts.conditions}
    if now.ready != told.ready:
        ready = sentences.get(conditions.READY)
        if ready is not None and now.ready:
            yield News(str(ready["reason"]), str(ready["message"]), f"ready/{now.ready}")
        elif ready is not None:
            yield News(Reason.READY, str(ready["message"]), f"ready/after/{told.ready}", "Normal")
    if now.paused and not told.paused:
        paused = sentences[conditions.PAUSED]
        yield News(Reason.PAUSED, str(paused["message"]), f"paused/{paused['lastTransitionTime']}")
    elif told.paused and not now.paused:
        yield News(Reason.RESUMED, "the pause is over: slots fire when they fall due", f"resumed/{now.ill}", "Normal")


def _is_over(run: Run) -> bool:
    """What is to be told of it then is its end."""
    return run.state in (states.RunState.DEAD, states.RunState.UNKNOWN)


def _missed(count: int, last: datetime) -> str:
    if count == 1:
        return f"the slot of {instants.rfc3339_ms(last)} did not run: it had fallen due too long ago"
    return f"{count} slots, the last one of {instants.rfc3339_ms(last)}, did not run: they had fallen due too long ago"


def _stuck(run: Run) -> str:
    said = f": {run.message}" if run.message else ""
    return f"run {run.name} cannot start, and is tried again: {run.reason}{said}"


def _failed(run: Run) -> str:
    return f"attempt {run.attempt} of run {run.name} failed: {_ended(run)}"


def _ill(count: int, last: Run) -> str:
    how = [] if last.reason is None else [last.reason]
    if last.ended_by is not None and last.ended_by != last.reason:
        how.append(f"attempt {last.attempt} ended by {_ended(last)}")
    ended = f"run {last.name} ended {last.state}" + (f": {', '.join(how)}" if how else "")
    return ended if count == 1 else f"{count} runs ended Dead or Unknown; {ended}"


def _ended(run: Run) -> str:
    return f"{run.ended_by}" if run.exit_code is None else f"{run.ended_by}, exit code {run.exit_code}"
