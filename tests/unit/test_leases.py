"""Whose silence is believed, and whose is not."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import hypothesis
from hypothesis import strategies

from clockhand.domain import leases

NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LONG_AGO = NOW - timedelta(days=1)


def worker(name: str | None, last: int, *, held: int = 2, lapsed: int | None = None) -> leases.Standing:
    """A worker whose last lease ends `last` seconds from now."""
    lapsed = (held if last <= 0 else 0) if lapsed is None else lapsed
    return leases.Standing(
        pool="k8s/a/p", worker=name, held=held, last_lease=NOW + last * SECOND, lapsed=lapsed, forgotten=0, overdue=0,
        lease=90, heartbeat=30, rescue_from=LONG_AGO,
    )  # fmt: skip


def rescued(*standings: leases.Standing) -> dict[str | None, bool]:
    """Whose attempts are rescued, and whether each was the only one of its worker."""
    decided = leases.decide(standings, now=NOW)
    return {name: name in one.alone for one in decided.lapsed for name in one.workers}


def falls_silent(count: int, total: int, *, spread: int = 9) -> Sequence[leases.Standing]:
    """`count` of `total` workers whose leases lapse from now on, within `spread` seconds."""
    silent = [worker(f"s{n}", n * spread // max(1, count - 1)) for n in range(count)]
    return [*silent, *(worker(f"w{n}", 80) for n in range(total - count))]


def test_a_worker_is_silent_when_the_last_of_its_leases_has_lapsed() -> None:
    assert rescued(worker("a", -1), worker("b", 1), worker("c", 5, lapsed=1)) == {"a": False}
    assert rescued(worker("a", 0, held=1)) == {"a": True}
    assert leases.decide([], now=NOW) == leases.Decided()


def test_what_a_living_worker_has_forgotten_is_rescued_and_was_not_the_only_one() -> None:
    assert rescued(dataclasses.replace(worker("a", 80, lapsed=1), forgotten=1)) == {"a": False}


def test_messages_that_nobody_started_wait_for_no_worker() -> None:
    [lapsed] = leases.decide([worker(None, 30, lapsed=1), worker("a", 30)], now=NOW).lapsed
    assert lapsed == leases.Lapsed("k8s/a/p", [], frozenset())


def test_nobody_is_rescued_before_leases_count() -> None:
    early = dataclasses.replace(worker("a", -50), rescue_from=NOW + SECOND, overdue=1)
    assert leases.decide([early], now=NOW) == leases.Decided(overdue={"k8s/a/p": ["a"]})


def test_most_of_a_pool_at_once_is_not_believed_and_later_it_is() -> None:
    standings = falls_silent(5, 9)
    assert leases.decide(standings, now=NOW) == leases.Decided(doubtful=["k8s/a/p"])
    waited = [dataclasses.replace(one, rescue_from=NOW + 90 * SECOND) for one in standings]
    assert leases.decide(waited, now=NOW + 5 * SECOND) == leases.Decided()
    later = [dataclasses.replace(one, lapsed=2) if one.worker and one.worker[0] == "s" else one for one in waited]
    later = [
        dataclasses.replace(one, last_lease=one.last_lease + 120 * SECOND) if not one.lapsed else one for one in later
    ]
    decided = leases.decide(later, now=NOW + 90 * SECOND)
    assert decided.doubtful == []
    assert sorted(decided.lapsed[0].workers) == [f"s{n}" for n in range(5)]


def test_a_half_is_not_most_three_are_not_many_and_a_minute_is_not_at_once() -> None:
    for standings in (falls_silent(5, 10), falls_silent(3, 3), falls_silent(5, 6, spread=60)):
        assert leases.decide(standings, now=NOW).doubtful == []
    assert leases.decide(falls_silent(4, 7), now=NOW).doubtful == ["k8s/a/p"]


def test_short_leases_shorten_what_is_at_once() -> None:
    short = [dataclasses.replace(one, lease=6, heartbeat=2) for one in falls_silent(5, 6)]
    assert leases.decide(short, now=NOW).doubtful == []


@hypothesis.given(
    strategies.lists(strategies.tuples(strategies.integers(-300, 90), strategies.integers(1, 3)), max_size=12),
    strategies.integers(-300, 60),
)
def test_no_living_worker_loses_what_it_renews(workers: list[tuple[int, int]], since: int) -> None:
    standings = [
        dataclasses.replace(worker(f"w{n}", last, held=held), rescue_from=NOW + since * SECOND)
        for n, (last, held) in enumerate(workers)
    ]
    decided = leases.decide(standings, now=NOW)
    for lapsed in decided.lapsed:
        assert all(one.last_lease <= NOW for one in standings if one.worker in lapsed.workers)
        assert since <= 0
    assert not (decided.doubtful and decided.lapsed), "one pool, one answer"
