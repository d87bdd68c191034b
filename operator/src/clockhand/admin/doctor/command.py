"""The command: what was asked for, in what order, and what a script is told by the exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import click

from clockhand import config, errors
from clockhand.admin.doctor import examination, shown, table
from clockhand.admin.doctor.examination import Examined, Mended
from clockhand.admin.doctor.patient import Patient
from clockhand.domain.findings import Verdict


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for on the command line. Raises InvalidInput where the options do not fit together."""

    only: tuple[str, ...] = ()
    output: str = "table"
    strict: bool = False
    no_cluster: bool = False
    fix: bool = False
    dry_run: bool = False
    yes: bool = False

    def __post_init__(self) -> None:
        for name in self.only:
            if name not in table.BY_NAME:
                known = ", ".join(table.BY_NAME)
                raise errors.InvalidInput("--only", f"there is no check {name}: there are {known}")
        if (self.dry_run or self.yes) and not self.fix:
            raise errors.InvalidInput("", "--dry-run and --yes are for --fix")
        if self.dry_run and self.yes:
            raise errors.InvalidInput("", "--dry-run changes nothing, and --yes asks to: give one of them")
        if self.fix and self.output == "json" and not (self.dry_run or self.yes):
            raise errors.InvalidInput("", "with -o json nobody can be asked: give --yes or --dry-run with --fix")


async def tell(settings: config.Settings, *, wanted: Wanted, write: Callable[[str], None]) -> None:
    """Examines the installation, mends what may be, and `write`s it; exits with 1 where something is amiss."""
    async with examination.admitted(settings, here=_here, with_cluster=not wanted.no_cluster) as patient:
        found = await examination.examine(patient, wanted.only)
        mended: Sequence[Mended] = ()
        if wanted.dry_run:
            mended = [examination.plan(one) for one in found if one.can_be_mended]
        elif wanted.fix:
            mended = await _mend(patient, found, asks=not wanted.yes)
            found = await _again(patient, found, mended)
        failed = any(_is_amiss(one, strict=wanted.strict) for one in found)
        if wanted.output == "json":
            write(shown.as_json(found, mended, at=patient.now, failed=failed))
        else:
            write(shown.as_text(found, mended))
    if failed:
        sys.exit(1)


async def _mend(patient: Patient, found: Sequence[Examined], *, asks: bool) -> Sequence[Mended]:
    mended = []
    for one in found:
        if one.can_be_mended and (not asks or _may(one)):
            mended.append(await examination.mend(patient, one))
    return mended


def _may(one: Examined) -> bool:
    assert one.check.remedy is not None
    question = f"{one.check.name}: {one.finding.sentence}. Shall I {one.check.remedy.does}?"
    return click.confirm(question, default=False, err=True)


async def _again(patient: Patient, found: Sequence[Examined], mended: Sequence[Mended]) -> Sequence[Examined]:
    """What was mended is looked at once more."""
    names = [one.name for one in mended]
    later = {one.check.name: one for one in await examination.examine(patient, names)} if names else {}
    return [later.get(one.check.name, one) for one in found]


def _is_amiss(one: Examined, *, strict: bool) -> bool:
    verdict = one.finding.verdict
    return verdict is Verdict.ERROR or (strict and verdict is Verdict.WARNING)


def _here() -> datetime:
    return datetime.now(UTC)
