"""What was found, for people and for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from clockhand.admin.doctor.examination import Examined, Mended
from clockhand.domain import findings, instants
from clockhand.domain.findings import Finding, Verdict


def as_text(found: Sequence[Examined], mended: Sequence[Mended] = ()) -> str:
    """A line for each check, with what to do under those that are not well; then what was mended, and the sum."""
    width = max(len(one.check.name) for one in found)
    lines = [line for one in found for line in _lines(one, width)]
    if mended:
        lines += ["", *(line for one in mended for line in mended_lines(one))]
    return "".join(f"{_printable(line)}\n" for line in [*lines, "", _sum(found)])


def mended_lines(one: Mended) -> Iterator[str]:
    """What became of one remedy."""
    if one.planned:
        yield f"{one.name}: would {one.does}"
    elif one.failure:
        yield f"{one.name}: could not {one.does}: {one.failure}"
    elif one.done:
        yield f"{one.name}: {', '.join(one.done)}"
    else:
        yield f"{one.name}: nothing was left to do"


def as_json(found: Sequence[Examined], mended: Sequence[Mended], *, at: datetime, failed: bool) -> str:
    """The same as one document."""
    document = {
        "at": instants.rfc3339(at),
        "failed": failed,
        "checks": [_document(one) for one in found],
        "fixes": [
            {
                "check": one.name,
                "does": one.does,
                "planned": one.planned,
                "done": list(one.done),
                "failure": one.failure or None,
            }
            for one in mended
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def _lines(one: Examined, width: int) -> Iterator[str]:
    finding = one.finding
    yield f"{one.check.name:{width}}  {finding.verdict:7}  {finding.sentence}"
    indent = " " * (width + 11)
    for sample in finding.samples:
        yield f"{indent}- {sample}"
    if finding.more:
        yield f"{indent}- and {finding.more} more"
    if finding.advice:
        yield f"{indent}To do: {finding.advice}{_by_fix(one)}"


def _by_fix(one: Examined) -> str:
    return f" (--fix will {one.check.remedy.does})" if one.check.remedy and one.can_be_mended else ""


def _sum(found: Sequence[Examined]) -> str:
    counts = Counter(one.finding.verdict for one in found)
    parts = [f"{counts[Verdict.OK]} ok", findings.counted(counts[Verdict.WARNING], "warning")]
    parts += [findings.counted(counts[Verdict.ERROR], "error"), f"{counts[Verdict.SKIPPED]} skipped"]
    return f"{findings.counted(len(found), 'check')}: {', '.join(parts)}"


def _document(one: Examined) -> dict[str, object]:
    finding: Finding = one.finding
    return {
        "check": one.check.name,
        "verdict": finding.verdict.value,
        "sentence": finding.sentence,
        "advice": finding.advice or None,
        "samples": list(finding.samples),
        "more": finding.more,
        "fix": one.check.remedy.does if one.check.remedy and one.can_be_mended else None,
    }


def _printable(text: str) -> str:
    """Names are other people's text: what a terminal might act on is written out."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
