"""How much work one question about a schedule may cost.

Whoever writes a schedule decides what its evaluation costs everybody else who shares the process. Steps bound it, and
not a clock: the same question has the same answer on a busy machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from clockhand import errors

MAX_STEPS = 2_000
ASK = 10
"""What it costs to have one rule walked to its next day, in steps; a step is the look at one month or offset."""


@dataclass(slots=True)
class Budget:
    """The steps of one question. `field` is what to name to the user when they run out."""

    field: str
    limit: int = MAX_STEPS
    spent: int = 0

    def spend(self, steps: int = 1) -> None:
        """Take `steps`, or raise `InvalidInput` where there are none left."""
        self.spent += steps
        if self.spent > self.limit:
            raise errors.InvalidInput(self.field, f"takes more than {self.limit} steps to work out: write it simpler")
