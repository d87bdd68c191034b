"""`clockhand operator` with points at which it can be killed, stopped or robbed of an answer, and with quicker loops.

A separate program, so that what ships carries no hook. Each line of standard input arms one shot; the first must be `go`,
until which the process waits with everything imported, so that a replica can join within a second of being needed.

    python -m tests.faults.faulty_operator REPORT [MUTATION ...]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kubernetes.aio import client, config  # noqa: F401  as above
from tests.faults import mutations, points
from tests.faults.trigger import Trigger, armed_from_outside

from clockhand import cli
from clockhand.controller import duty, watch  # noqa: F401  imported before `go`: it is what takes time
from clockhand.engine import pulse, replica, sweep
from clockhand.kube import watch as pod_watch

STALL_SECONDS = 4.0
"""Of a watch. The product waits for 70 s, as a healthy server may be silent for a minute."""


def main() -> None:
    trigger = Trigger(Path(sys.argv[1]))
    points.install(trigger)
    mutations.install(sys.argv[2:], trigger)
    if not armed_from_outside(trigger):
        return
    _quicken()
    sys.argv[1:] = ["operator"]
    cli.clockhand()


def _quicken() -> None:
    """What only sets how often the loops look: a fault every few seconds needs replicas that do not sleep for two."""
    pulse.LONGEST_SLEEP = 0.25
    replica._SWEEP_EVERY = 1.0
    sweep._ORPHAN_SECONDS = 10.0
    if "CLOCKHAND_TEST_STALL" in os.environ:
        settings = pod_watch.WatchSettings(stall_seconds=STALL_SECONDS)
        pod_watch.WatchSettings = lambda: settings  # type: ignore[misc, assignment]


if __name__ == "__main__":
    main()
