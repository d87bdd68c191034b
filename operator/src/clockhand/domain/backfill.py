"""Which past slots a backfill makes into runs next, and when that is not a sensible thing to ask for.

Pure, so that a property test can play whole backfills through. What a backfill is to people is in docs/semantics.md.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from clockhand import errors
from clockhand.domain import admission, instants, spec, states, times

FIELD = "spec.backfill"
FIELDS = ("from", "to", "order", "concurrency")
MOST_AT_ONCE = 100
RUNS_FAILED = "RunsFailed"
"""Why a backfill is Dead: it went through its slots, and some of its runs did not succeed."""


class Order(enum.StrEnum):
    """In which direction the slots are gone through."""

    OLDEST_FIRST = "OldestFirst"
    NEWEST_FIRST = "NewestFirst"


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """The slots from `first` to `last`, both included. Where it stands is the slot reached last; None: before all."""

    first: datetime
    last: datetime
    order: Order = Order.OLDEST_FIRST

    def ahead(self, due: times.Times, reached: datetime | None, limit: int) -> tuple[datetime, ...]:
        """The next slots in its order, `limit` at most."""
        after, until = self._rest(reached)
        if after >= until:
            return ()
        if self.order is Order.NEWEST_FIRST:
            return due.newest(limit, after=after, until=until)[::-1]
        slots: list[datetime] = []
        slot = due.next_after(after)
        while slot is not None and slot <= until and len(slots) < limit:
            slots.append(slot)
            slot = due.next_after(slot)
        return tuple(slots)

    def left(self, due: times.Times, reached: datetime | None) -> int:
        """How many slots are still to be gone through."""
        after, until = self._rest(reached)
        return due.count_between(after, until) if after < until else 0

    def _rest(self, reached: datetime | None) -> tuple[datetime, datetime]:
        before = self.first - instants.MILLISECOND
        if reached is None:
            return before, self.last
        return (reached, self.last) if self.order is Order.OLDEST_FIRST else (before, reached - instants.MILLISECOND)


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """A backfill that somebody asks for, of an installation that keeps runs for `kept_days`."""

    span: Span
    concurrency: int
    kept_days: int

    def check(self, now: datetime) -> None:
        """Raises InvalidInput for a range that cannot be gone through at `now`."""
        first, last = self.span.first, self.span.last
        oldest = now - timedelta(days=self.kept_days)
        if last > now:
            raise errors.InvalidInput(f"{FIELD}.to", f"lies in the future: write {instants.rfc3339(now)} or earlier")
        if first > last:
            raise errors.InvalidInput(f"{FIELD}.from", "lies behind the end of the range: exchange the two")
        if first < oldest:
            sentence = f"lies beyond the {self.kept_days} days for which runs are kept: write"
            # a minute later, or what is written would have passed by the time it is sent
            raise errors.InvalidInput(
                f"{FIELD}.from", f"{sentence} {instants.rfc3339(oldest + timedelta(minutes=1))} or later"
            )


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """What one look decides. `make` are the slots that become runs, `passed` counts those that had a run already."""

    make: tuple[datetime, ...]
    passed: int
    reached: datetime | None
    complete: bool = False
    """Nothing of the range is left."""

    def on(self, slots: Sequence[datetime], taken: Collection[datetime], *, room: int, asked: int) -> Step:
        """Goes on over `slots`, all that there were where they are fewer than the `asked` ones.

        Those in `taken` have a run; of the others at most `room` become one, earlier ones of this look included.
        """
        make, passed, reached = list(self.make), self.passed, self.reached
        for slot in slots:
            if slot in taken:
                passed += 1
            elif len(make) < room:
                make.append(slot)
            else:
                break
            reached = slot
        complete = len(slots) < asked and (not slots or reached == slots[-1])
        return Step(tuple(make), passed, reached, complete)


def room(job: spec.JobSpec, live: Sequence[admission.LiveRun], *, own: int, concurrency: int) -> int:
    """How many runs a backfill may make now; `own` of the `live` runs of the job are its own.

    It takes only places that nobody waits for: a slot of the present comes first, whatever the order of instants.
    """
    if any(run.state is states.RunState.BLOCKED for run in live):
        return 0
    places = admission.places(job)
    free = concurrency - own if places is None else min(concurrency - own, places - len(live))
    return max(0, free)


def state(*, stop_reason: str | None, begun: bool, over: bool, failed: int) -> states.RunState:
    """The state in which people see a backfill."""
    if over and stop_reason is None:
        return states.RunState.DEAD if failed else states.RunState.SUCCEEDED
    if stop_reason is not None:
        return states.RunState.CANCELLED if over else states.RunState.STOPPING
    return states.RunState.RUNNING if begun else states.RunState.QUEUED


def read(document: object, *, kept_days: int) -> Wanted:
    """What `spec.backfill` says; raises InvalidInput with the field and one sentence."""
    if not isinstance(document, Mapping):
        raise errors.InvalidInput(FIELD, "must be an object with from and to")
    order, concurrency = document.get("order", Order.OLDEST_FIRST.value), document.get("concurrency", 1)
    if order not in list(Order):
        raise errors.InvalidInput(f"{FIELD}.order", f"must be {' or '.join(Order)}")
    if type(concurrency) is not int or not 1 <= concurrency <= MOST_AT_ONCE:
        raise errors.InvalidInput(f"{FIELD}.concurrency", f"must be a whole number from 1 to {MOST_AT_ONCE}")
    span = Span(_instant(document, "from"), _instant(document, "to"), Order(order))
    return Wanted(span, concurrency, kept_days)


def _instant(document: Mapping[str, object], name: str) -> datetime:
    text = document.get(name)
    if not isinstance(text, str):
        raise errors.InvalidInput(f"{FIELD}.{name}", instants.SENTENCE)
    return instants.read(text, f"{FIELD}.{name}")
