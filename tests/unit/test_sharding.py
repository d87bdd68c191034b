"""Every replica computes the same plan, shares are even, and only a fair share moves."""

from __future__ import annotations

import itertools

import hypothesis
import pytest
from hypothesis import strategies

from clockhand.domain import ids, sharding

SHARDS = range(ids.SHARDS)
names = strategies.lists(strategies.text(min_size=1, max_size=12), min_size=1, max_size=8, unique=True)


def plan(replicas: list[str]) -> dict[str, frozenset[int]]:
    return {me: sharding.preferred(SHARDS, replicas, me=me) for me in replicas}


@hypothesis.given(names)
def test_every_shard_has_exactly_one_holder(replicas: list[str]) -> None:
    held = list(itertools.chain.from_iterable(plan(replicas).values()))
    assert sorted(held) == list(SHARDS)


@hypothesis.given(names)
def test_the_order_of_the_list_does_not_matter(replicas: list[str]) -> None:
    assert plan(replicas) == plan(sorted(replicas, reverse=True))


@hypothesis.given(names, strategies.text(min_size=13, max_size=14))
def test_a_newcomer_takes_and_nobody_else_gains(replicas: list[str], newcomer: str) -> None:
    before, after = plan(replicas), plan([*replicas, newcomer])
    for replica in replicas:
        assert after[replica] <= before[replica]


@hypothesis.given(names)
def test_who_leaves_gives_its_own_share_and_nobody_else_loses(replicas: list[str]) -> None:
    hypothesis.assume(len(replicas) > 1)
    before, after = plan(replicas), plan(replicas[1:])
    for replica in replicas[1:]:
        assert after[replica] >= before[replica]


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_shares_are_even(count: int) -> None:
    shares = [len(held) for held in plan([f"clockhand-operator-{n}" for n in range(count)]).values()]
    fair = ids.SHARDS / count
    assert max(shares) < 1.5 * fair
    assert min(shares) > 0.5 * fair


def test_a_stranger_holds_nothing_and_nobody_holds_without_replicas() -> None:
    assert sharding.preferred(SHARDS, ["one"], me="two") == frozenset()
    assert sharding.winner(7, []) is None
