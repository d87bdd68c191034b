"""How jobs and runs look: as rows for people, and as JSON or YAML for programs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click

from clockhand.commands import manifests, oneline, tables
from clockhand.domain import instants, spans

if TYPE_CHECKING:
    import msgspec

    from clockhand.client import Attempt, AuditEntry, ListedJob, Run, Slot

NOTHING = "-"
_FIRST = ("name", "id", "labels")
_ANYTHING = ("payload", "result")
"""Fields where null and the empty list say something."""
_POD = "(pod)"
_STYLES = {
    "Succeeded": "green",
    "Running": "cyan",
    "Claimed": "cyan",
    "Dead": "red",
    "Unknown": "red",
    "Invalid": "red",
    "Paused": "red",
    "Retrying": "yellow",
    "Stopping": "yellow",
    "Suspended": "yellow",
    "Cancelled": "bright_black",
    "Skipped": "bright_black",
    "Finished": "bright_black",
}
T = TypeVar("T", bound="msgspec.Struct")


@dataclasses.dataclass(frozen=True, slots=True)
class Form(Generic[T]):
    """How one kind of thing is shown. `cells` has those of the wide table, of which the other one has the first."""

    head: Sequence[str]
    wide: Sequence[str]
    cells: Callable[[T, datetime], Sequence[str]]
    name: Callable[[T], str]
    marks: int
    """The column whose word says how the row is drawn."""
    unknown: Sequence[str] = ()
    """Fields of which nothing is known."""

    def columns(self, *, wide: bool) -> Sequence[str]:
        """The names of the columns."""
        return [*self.head, *self.wide] if wide else self.head

    def row(self, one: T, *, wide: bool) -> Sequence[str]:
        """Its cells, as things are now."""
        return [oneline.printable(cell) for cell in self.cells(one, datetime.now(UTC))][: len(self.columns(wide=wide))]

    def document(self, one: T) -> dict[str, Any]:
        """What it is as JSON, without what is not there."""
        import msgspec

        found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(one))
        left_out = {name for name, value in found.items() if name not in _ANYTHING and value in (None, [])}
        order = [*(name for name in _FIRST if name in found), *found]
        return {name: found[name] for name in order if name not in {*left_out, *self.unknown, "etag"}}

    def style(self, cells: Sequence[str]) -> str:
        """How a row is drawn."""
        return _STYLES.get(cells[self.marks], "")


def one(thing: T, form: Form[T], output: str) -> str:
    """One thing as a text."""
    if output in ("json", "yaml"):
        return plain(form.document(thing), output)
    return many([thing], form, output)


def many(things: Sequence[T], form: Form[T], output: str) -> str:
    """Several things as a text."""
    if output in ("json", "yaml"):
        return plain({"items": [form.document(thing) for thing in things]}, output)
    if output == "name":
        return "".join(f"{form.name(thing)}\n" for thing in things)
    wide = output == "wide"
    rows = [form.row(thing, wide=wide) for thing in things]
    return tables.drawn(form.columns(wide=wide), rows, style=form.style)


class Lines(Generic[T]):
    """Things one after another, as they come: a line for each."""

    def __init__(self, form: Form[T], output: str) -> None:
        self._form = form
        self._output = output
        self._widths: Sequence[int] = ()

    def text(self, thing: T) -> str:
        """The line of a thing; before the first one the names of the columns."""
        if self._output == "json":
            return json.dumps(self._form.document(thing), ensure_ascii=False) + "\n"
        if self._output == "yaml":
            return manifests.write(self._form.document(thing), ())
        if self._output == "name":
            return f"{self._form.name(thing)}\n"
        wide = self._output == "wide"
        cells, names = self._form.row(thing, wide=wide), self._form.columns(wide=wide)
        head = "" if self._widths else tables.line(names, list(map(len, cells)))
        self._widths = [max(sizes) for sizes in zip(self._widths or map(len, names), map(len, cells), strict=True)]
        line = tables.line(cells, self._widths)
        return head + (click.style(line, fg=self._form.style(cells) or None) if tables.draws() else line)


def plain(value: Mapping[str, Any], output: str) -> str:
    """A value as JSON or YAML."""
    if output == "yaml":
        return manifests.text(value)
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def when(job: ListedJob) -> str:
    """The field that says when a job is due."""
    return job.schedule or " | ".join(job.schedules) or (f"every {job.every}" if job.every else job.at or NOTHING)


def _job_cells(job: ListedJob, now: datetime) -> Sequence[str]:
    status = job.status
    last = NOTHING if status.last_scheduled_at is None else f"{spans.human(now - status.last_scheduled_at)} ago"
    return [
        job.name,
        when(job),
        job.time_zone if job.schedule or job.schedules else NOTHING,
        job.handler or _POD,
        status.standing,
        last,
        _instant(status.next_run_at),
        spans.human(now - job.created_at),
        str(job.id),
        job.pool or NOTHING,
        job.origin,
        ",".join(f"{name}={value}" for name, value in job.labels.items()) or NOTHING,
        status.message or NOTHING,
    ]


def _run_cells(run: Run, now: datetime) -> Sequence[str]:
    return [
        run.name,
        run.job,
        run.state,
        str(run.attempt),
        _instant(run.scheduled_at),
        NOTHING if run.lateness_seconds is None else spans.short(timedelta(seconds=run.lateness_seconds)),
        _duration(run, now),
        spans.human(now - run.created_at),
        str(run.id),
        run.worker or run.pod or NOTHING,
        _reason(run),
        run.message or NOTHING,
    ]


def _duration(run: Run, now: datetime) -> str:
    if run.started_at is None or run.state == "Retrying":
        return NOTHING
    return spans.short((run.finished_at or now) - run.started_at)


def _reason(run: Run) -> str:
    if run.count is None:
        return run.reason or NOTHING
    return f"{run.reason} ({run.count} slot{'s' if run.count > 1 else ''})"


def _slot_cells(slot: Slot, now: datetime) -> Sequence[str]:
    return [slot.local, _instant(slot.at), NOTHING if slot.at < now else spans.human(slot.at - now), slot.note or ""]


def _attempt_cells(attempt: Attempt, now: datetime) -> Sequence[str]:
    took = NOTHING if attempt.started_at is None else spans.short(attempt.ended_at - attempt.started_at)
    return [
        str(attempt.attempt),
        attempt.outcome,
        attempt.reason,
        NOTHING if attempt.exit_code is None else str(attempt.exit_code),
        took,
        f"{spans.human(now - attempt.ended_at)} ago",
        attempt.worker or attempt.pod or NOTHING,
        attempt.message or "",
    ]


def _audit_cells(entry: AuditEntry, now: datetime) -> Sequence[str]:
    detail = entry.detail if isinstance(entry.detail, dict) else {}
    said = (f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in detail.items())
    return [
        _instant(entry.at),
        entry.actor,
        entry.action,
        entry.job_name or str(entry.job or NOTHING),
        str(entry.run or NOTHING),
        " ".join(said) or NOTHING,
        str(entry.job or NOTHING),
    ]


def _instant(instant: datetime | None) -> str:
    return NOTHING if instant is None else instants.rfc3339_ms(instant)


JOBS: Form[ListedJob] = Form(
    head=("NAME", "WHEN", "TIME ZONE", "HANDLER", "STANDING", "LAST", "NEXT", "AGE"),
    wide=("ID", "POOL", "ORIGIN", "LABELS", "MESSAGE"),
    cells=_job_cells,
    name=lambda job: job.name,
    marks=4,
)
LISTED: Form[ListedJob] = dataclasses.replace(JOBS, unknown=("payload",))
"""Jobs of a list, which has no payloads."""
RUNS: Form[Run] = Form(
    head=("NAME", "JOB", "STATE", "ATTEMPT", "SCHEDULED", "LATENESS", "DURATION", "AGE"),
    wide=("ID", "WORKER", "REASON", "MESSAGE"),
    cells=_run_cells,
    name=lambda run: run.name,
    marks=2,
)
SLOTS: Form[Slot] = Form(
    head=("LOCAL", "UTC", "IN", "NOTE"), wide=(), cells=_slot_cells, name=lambda slot: _instant(slot.at), marks=3
)
ATTEMPTS: Form[Attempt] = Form(
    head=("ATTEMPT", "OUTCOME", "REASON", "EXIT", "DURATION", "ENDED", "WORKER", "MESSAGE"),
    wide=(),
    cells=_attempt_cells,
    name=lambda attempt: str(attempt.attempt),
    marks=1,
)
AUDIT: Form[AuditEntry] = Form(
    head=("AT", "ACTOR", "ACTION", "JOB", "RUN"),
    wide=("DETAIL", "JOB ID"),
    cells=_audit_cells,
    name=lambda entry: str(entry.id),
    marks=2,
)
