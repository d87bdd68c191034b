"""Jobs of pools, by what their handlers do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clockhand.domain import spec

POOL = "crew"
HANDLER, THREAD = "work", "thread"
ONCE_A_YEAR = "0 0 1 1 *"
MOST_DISRUPTIONS = 20


@dataclass(frozen=True)
class Plan:
    """A job: how its attempts end in order (succeed, fail, later, fatal, die), and how long each takes before that."""

    name: str
    ends: str = "succeed"
    attempts: int = 3
    seconds: float = 0.3
    once: bool = False
    """Made at most once."""
    thread: bool = False
    disruptions: int = MOST_DISRUPTIONS

    @property
    def failing(self) -> int:
        ends = self.ends.split(",")
        return len(ends) - 1 if ends[-1] == "succeed" else self.attempts

    @property
    def payload(self) -> dict[str, Any]:
        return {"ends": self.ends.split(","), "seconds": self.seconds, "once": self.once}

    def job(self) -> spec.JobSpec:
        """As it is stored."""
        backoff = spec.Backoff(initial_seconds=1, factor=1, jitter=0)
        return spec.JobSpec(
            schedule=ONCE_A_YEAR,
            handler=THREAD if self.thread else HANDLER,
            pool=POOL,
            concurrency_policy=spec.ConcurrencyPolicy.ALLOW,
            delivery=spec.Delivery.AT_MOST_ONCE if self.once else spec.Delivery.AT_LEAST_ONCE,
            retry=spec.Retry(max_attempts=self.attempts, max_disruptions=self.disruptions, backoff=backoff),
        )


def mix(seconds: float = 0.3, *, good: int = 6) -> tuple[Plan, ...]:
    """Every kind of end, with work that takes so long."""
    return (
        *(Plan(f"good-{n}", seconds=seconds, thread=n % 3 == 2) for n in range(good)),
        *(Plan(f"once-{n}", seconds=seconds, once=True) for n in range(2)),
        Plan("once-failing", "fail", seconds=seconds, once=True, attempts=1),
        *(Plan(f"flaky-{n}", "fail,succeed", seconds=seconds) for n in range(2)),
        Plan("later", "later,succeed", seconds=seconds),
        Plan("doomed", "fail", attempts=2, seconds=seconds),
        Plan("fatal", "fatal", seconds=seconds),
    )


QUICK = mix(0.0)
MIX = mix()
LASTING = mix(2.0)
