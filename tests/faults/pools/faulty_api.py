"""`clockhand api` with points at which it can be killed, and with quicker loops: a program apart, as `faulty_operator` is.

python -m tests.faults.pools.faulty_api REPORT [MUTATION ...]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.faults import points
from tests.faults.pools import mutations
from tests.faults.trigger import Trigger, armed_from_outside

from clockhand import cli
from clockhand.api import app  # noqa: F401  imported before `go`: it is what takes time
from clockhand.engine import pulse
from clockhand.engine.pools import desk, reports, rescue
from clockhand.store import assigned, firing, leases, pools, runs


def main() -> None:
    trigger = Trigger(Path(sys.argv[1]))
    _install(trigger)
    mutations.install(sys.argv[2:])
    if not armed_from_outside(trigger):
        return
    pulse.LONGEST_SLEEP = 0.25
    rescue.EVERY = 0.5
    sys.argv[1:] = ["api"]
    cli.clockhand()


def _install(trigger: Trigger) -> None:
    """Names say where the process is when it stops: inside a transaction, or before an answer about what it has stored."""
    wrap = points.wrap
    wrap(trigger, firing, "insert_runs", after="hand-over-open", when=lambda given, _: bool(given["given"]))
    wrap(trigger, pools, "assign", after="claim-open", when=lambda _, given: bool(given))
    wrap(trigger, leases, "renew", after="heartbeat-open", when=lambda _, rows: bool(rows))
    wrap(trigger, leases, "lock_lapsed", after="rescue-open", when=lambda _, rows: bool(rows))
    wrap(trigger, runs, "finish", after="report-open", when=lambda _, rows: bool(rows))
    wrap(trigger, reports.Reports, "_store", before="report-unstored", after="report-stored")
    settle = desk.Desk.settle

    def settled(
        self: desk.Desk, seat: desk.Seat, count: int, given: Sequence[assigned.Assigned], *, doubtful: bool
    ) -> None:
        if given:
            trigger.passed("claim-stored")
        settle(self, seat, count, given, doubtful=doubtful)

    desk.Desk.settle = settled  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
