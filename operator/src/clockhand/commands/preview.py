"""`clockhand preview`: what a schedule will do, before anybody depends on it."""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click

from clockhand import errors
from clockhand.commands import oneline, tables
from clockhand.domain import cron as crons
from clockhand.domain import fields, instants
from clockhand.domain import preview as previews
from clockhand.domain import schedule as schedules

_MOST = 10_000
_LAST_YEAR = 9_900
_NAMES = {
    "spec.schedule": "EXPR",
    "spec.timeZone": "--time-zone",
    "spec.dst.gap": "--dst-gap",
    "spec.dst.overlap": "--dst-overlap",
}
_EXAMPLES = """
\b
Examples:
  clockhand preview "30 2 * * *" --time-zone Europe/Berlin
  clockhand preview "30 1 * * *" --time-zone America/New_York --after 2026-10-31T12:00:00Z --count 3
  clockhand preview "30 1 * * *" --time-zone America/New_York --dst-overlap Both --compare
  clockhand preview "H H * * *" --job-uid "$(kubectl get sjob NAME -o jsonpath={.metadata.uid})"
  clockhand preview @daily -o json

A refused schedule, zone or time is told on stderr in one sentence, with exit code 2.
"""


@dataclass(frozen=True, slots=True)
class _Question:
    expression: str
    zone: str
    after: datetime.datetime
    count: int
    gap: str
    overlap: str
    compare: bool


class _Command(oneline.Command):
    def wording(self, error: click.UsageError) -> str:
        if "unexpected extra argument" in error.format_message():
            return 'EXPR is one argument: put the schedule in quotes, as in "0 2 * * *"'
        return super().wording(error)


def _choices(path: str) -> click.Choice[str]:
    return click.Choice(fields.TABLE.by_path[path].enum)


@click.command(cls=_Command, epilog=_EXAMPLES)
@click.argument("expression", metavar="EXPR")
@click.option("--time-zone", default="UTC", show_default=True, help="IANA name of the zone.")
@click.option("--after", metavar="T", help="Slots after this RFC 3339 instant; now if left out.")
@click.option("--count", type=click.IntRange(1, _MOST), default=10, show_default=True, help="How many slots.")
@click.option("--dst-gap", type=_choices("dst.gap"), default="RunAfter", show_default=True, help="As in spec.dst.")
@click.option("--dst-overlap", type=_choices("dst.overlap"), default="First", show_default=True, help="As in spec.dst.")
@click.option("--job-uid", metavar="U", help="The job whose H is meant: its metadata.uid.")
@click.option("--compare", is_flag=True, help="Show also when a Kubernetes CronJob would fire.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def preview(  # noqa: PLR0913 - one parameter for each option
    expression: str,
    time_zone: str,
    after: str | None,
    count: int,
    dst_gap: str,
    dst_overlap: str,
    job_uid: str | None,
    compare: bool,
    output: str,
) -> None:
    """Show when a schedule falls due, with what happens where clocks change.

    EXPR is a schedule as in spec.schedule, in quotes.
    """
    try:
        settled = _settled(expression, job_uid)
        start = _after(after)
        question = _Question(settled, time_zone, start, count, gap=dst_gap, overlap=dst_overlap, compare=compare)
        text = _json(question, asked=expression) if output == "json" else _table(question, asked=expression)
    except errors.InvalidInput as error:
        raise oneline.Failure(f"{_NAMES.get(error.field, error.field)}: {error.sentence}") from None
    oneline.write(text)


def _settled(expression: str, job_uid: str | None) -> str:
    job_id = uuid.UUID(int=0) if job_uid is None else _uid(job_uid)
    settled = crons.settle(expression, job_id)
    if settled != expression and job_uid is None:
        raise errors.InvalidInput("EXPR", "holds an H, which each job has its own value for: name the job by --job-uid")
    return settled


def _uid(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        raise errors.InvalidInput("--job-uid", "is not a UUID: write the metadata.uid of the job") from None


def _after(text: str | None) -> datetime.datetime:
    if text is None:
        return datetime.datetime.now(datetime.UTC)
    start = instants.read(text, "--after")
    if start.year > _LAST_YEAR:
        raise errors.InvalidInput("--after", f"lies beyond the year {_LAST_YEAR}: write an earlier instant")
    return start


def _evaluate(question: _Question) -> tuple[schedules.Schedule, tuple[datetime.datetime, ...]]:
    schedule = schedules.parse(question.expression, zone=question.zone, gap=question.gap, overlap=question.overlap)
    return schedule, previews.slots_after(schedule, after=question.after, count=question.count)


def _compared(question: _Question, slots: Sequence[datetime.datetime], *, asked: str) -> previews.Comparison:
    return previews.compare(asked, zone=question.zone, after=question.after, until=slots[-1])


def _json(question: _Question, *, asked: str) -> str:
    _, slots = _evaluate(question)
    document: dict[str, object] = {"instants": [instants.rfc3339(slot) for slot in slots]}
    if question.compare:
        there = _compared(question, slots, asked=asked)
        document["cronJob"] = {
            "instants": [instants.rfc3339(slot) for slot in there.instants],
            "remark": there.remark,
        }
    return json.dumps(document) + "\n"


def _table(question: _Question, *, asked: str) -> str:
    schedule, slots = _evaluate(question)
    rows = previews.rows(schedule, after=question.after, slots=slots)
    remark = ""
    if question.compare:
        there = _compared(question, slots, asked=asked)
        rows, remark = previews.beside(schedule, rows, there), there.remark
    cells = [_cells(row, compared=question.compare) for row in rows]
    return tables.drawn(_head(question), cells, style=_style) + (f"{oneline.printable(remark)}\n" if remark else "")


def _head(question: _Question) -> list[str]:
    return [f"LOCAL ({question.zone})", "UTC", "SINCE", *(["WHO"] if question.compare else []), "MARK"]


def _cells(row: previews.Row, *, compared: bool) -> list[str]:
    local = (row.instant + row.offset).replace(tzinfo=None)
    seconds = f":{local:%S}" if local.second else ""
    shown = f"{local:%a %Y-%m-%d %H:%M}{seconds} {_offset(row.offset)}" if row.runs else ""
    utc = instants.rfc3339(row.instant) if row.runs else ""
    who = [row.side.value if row.runs else ""] if compared else []
    return [shown, utc, _span(row.since), *who, row.mark]


def _style(cells: Sequence[str]) -> str:
    return "yellow" if cells[-1] else ""


def _offset(offset: datetime.timedelta) -> str:
    sign = "-" if offset < datetime.timedelta() else "+"
    minutes, seconds = divmod(round(abs(offset).total_seconds()), 60)
    tail = f":{seconds:02}" if seconds else ""
    return f"{sign}{minutes // 60:02}:{minutes % 60:02}{tail}"


def _span(since: datetime.timedelta | None) -> str:
    return "-" if since is None else " ".join(_parts(round(since.total_seconds())))


def _parts(seconds: int) -> Iterator[str]:
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")):
        if seconds >= length:
            yield f"{seconds // length}{unit}"
            seconds %= length
