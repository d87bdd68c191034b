"""`clockhand api` that dies, as by kill -9, once it has stored what it gives to a worker and before it has said so."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from clockhand import cli
from clockhand.engine.pools import desk
from clockhand.store import assigned


def main() -> None:
    settle = desk.Desk.settle

    def die(
        self: desk.Desk, seat: desk.Seat, count: int, given: Sequence[assigned.Assigned], *, doubtful: bool
    ) -> None:
        if given:
            os.kill(os.getpid(), signal.SIGKILL)
        settle(self, seat, count, given, doubtful=doubtful)

    desk.Desk.settle = die  # type: ignore[method-assign]
    cli.clockhand()


if __name__ == "__main__":
    main()
