"""The schedules of CronJob in our words.

CronJob's library takes forms that say something else here, or nothing: they are rewritten, so that a job which moves over
keeps its times. What it accepts and never fires is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

from clockhand import errors
from clockhand.domain import cron, cronjob, instants

_FIELD = "spec.schedule"
_ZONE_PREFIX = re.compile(r"(?:CRON_)?TZ=(?P<zone>[^ ]*) (?P<rest>.*)", re.DOTALL)
_EVERY = "@every "
_DURATION = re.compile(r"\+?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+", re.ASCII)
_PART = re.compile(r"(?P<number>[0-9.]+)(?P<unit>ns|us|µs|μs|ms|s|m|h)")
_SECONDS: Mapping[str, Decimal] = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "µs": Decimal("1e-6"),
    "μs": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3_600),
}
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
_LOCAL = (
    "spec.timeZone is not set, so CronJob reads the schedule in the zone of kube-controller-manager: UTC is written, set "
    "another if it has one"
)
_FROM_NOW = "@every counts from the creation of the CronJob: here it counts from that of the ScheduledJob"
_FROM_CREATION = "@every counts from the creation of the CronJob: that instant is written as spec.startAt"
_CLOCKS = (
    "spec.dst keeps what CronJob does when clocks change (a skipped time does not run, a repeated one runs twice): leave it "
    "out to run each once"
)
AS_CRONJOB = {"gap": "Skip", "overlap": "Both"}


def when(expression: str, *, zone: str | None, created_at: str | None, notes: list[str]) -> dict[str, object]:
    """The fields of a ScheduledJob that say when it falls due; what is not equal is added to `notes`."""
    prefixed = _ZONE_PREFIX.fullmatch(expression)
    if prefixed is not None:
        if zone is not None:
            raise errors.InvalidInput(
                _FIELD, "names a time zone beside spec.timeZone, which CronJob refuses: write one"
            )
        zone, expression = prefixed["zone"] or "UTC", prefixed["rest"].strip()
        notes.append(f"the prefix of spec.schedule is written as spec.timeZone {zone}")
    if expression.startswith(_EVERY):
        return _every(expression.removeprefix(_EVERY), created_at=created_at, notes=notes)
    plain = rewritten(expression)
    if plain != " ".join(expression.split()).replace("?", "*"):
        notes.append(f'spec.schedule "{expression}" is written "{plain}", which says the same here')
    if zone is None:
        notes.append(_LOCAL)
    elif zone not in ("UTC", "Etc/UTC") and cron.read(plain).fixed:
        notes.append(_CLOCKS)
    return {"schedule": plain, "timeZone": zone or "UTC", "dst": dict(AS_CRONJOB)}


def rewritten(expression: str) -> str:
    """A cron expression of CronJob's as one that means the same here, or `InvalidInput` where it never fires there."""
    try:
        cronjob.parse(expression)
    except cronjob.RefusedError as refused:
        raise errors.InvalidInput(_FIELD, f"is refused by CronJob itself: {refused}") from None
    if expression in cronjob.NAMED:
        return expression
    return " ".join(_field(word) for word in expression.split())


def _field(text: str) -> str:
    items = [_item(item) for item in text.split(",") if item]
    if not items:
        raise errors.InvalidInput(
            _FIELD, f'has a field "{text}" that names nothing, so CronJob never fires: write a value'
        )
    return "*" if "*" in items else ",".join(items)


def _item(text: str) -> str:
    """`*-5` is `*` there, and so is `*/1`, where we count each step as a restriction."""
    ends, _, step = text.partition("/")
    low, dash, high = ends.partition("-")
    tail = f"/{step.removeprefix('+')}" if step else ""
    if low in ("*", "?"):
        return "*" if not step or int(step) == 1 else f"*{tail}"
    return f"{low.removeprefix('+')}{dash}{high.removeprefix('+')}{tail}"


def _every(text: str, *, created_at: str | None, notes: list[str]) -> dict[str, object]:
    if _DURATION.fullmatch(text) is None:
        raise errors.InvalidInput(
            _FIELD, f'"@every {text}" is refused by CronJob itself: write spec.every, such as 90m'
        )
    total = sum((Decimal(part["number"]) * _SECONDS[part["unit"]] for part in _PART.finditer(text)), Decimal(0))
    interval = _interval(max(1, int(total)))
    if created_at is None:
        notes.append(_FROM_NOW)
        return {"every": interval}
    notes.append(_FROM_CREATION)
    return {
        "every": interval,
        "startAt": instants.rfc3339(instants.read(created_at, "metadata.creationTimestamp")),
    }


def _interval(seconds: int) -> str:
    parts = []
    for length, unit in _UNITS:
        count, seconds = divmod(seconds, length)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)
