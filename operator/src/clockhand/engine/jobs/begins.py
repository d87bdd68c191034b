"""Where the slots of new jobs begin, remembered: most jobs share few specs, and those of one spec begin alike."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from clockhand.domain import declared, times

_MOST = 4_096
_REMEMBERED_CHARACTERS = 2_048
"""Of a spec: larger ones are rare, and not worth the memory."""


@dataclass(frozen=True, slots=True)
class _Known:
    after: datetime
    begin: declared.Begin


class Begins:
    """What `declared.begin` says of new jobs, worked out once for each spec and slot."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def of(self, spec: declared.Written, origin: times.Origin, *, now: datetime) -> declared.Begin:
        """Raises InvalidInput for a schedule that cannot be followed."""
        if spec.job.spreads or len(spec.spec_json) > _REMEMBERED_CHARACTERS:
            return declared.begin(spec.job, origin, after=now, new=True)
        known = self._known.get(spec.spec_json)
        begin = None if known is None or now < known.after else known.begin.later(now)
        if begin is None:
            begin = declared.begin(spec.job, origin, after=now, new=True)
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[spec.spec_json] = _Known(now, begin)
        return begin
