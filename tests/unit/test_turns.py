"""Turns: nobody waits behind somebody else's backlog, and weights hold over time."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from clockhand.domain import turns

NAMES = [f"k8s/{letter}" for letter in "abcdef"]
WEIGHTS = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 5))


@given(
    owners=st.lists(st.sampled_from(NAMES), unique=True),
    total=st.integers(0, 50),
    weights=WEIGHTS,
    most=st.dictionaries(st.sampled_from(NAMES), st.integers(0, 10)),
    last=st.builds(turns.Turn, st.sampled_from(NAMES), st.integers(0, 6)),
)
def test_all_that_fits_is_given_and_nothing_beyond(
    owners: list[str], total: int, weights: dict[str, int], most: dict[str, int], last: turns.Turn
) -> None:
    shares, turn = turns.shares(owners, total=total, weight=lambda owner: weights.get(owner, 1), most=most, last=last)
    able = {owner: min(most.get(owner, total), total) for owner in owners}
    assert all(0 < share <= able[owner] for owner, share in shares.items())
    assert sum(shares.values()) == min(total, sum(able.values()))
    assert turn.owner in shares or not shares


@given(weights=WEIGHTS, totals=st.lists(st.integers(1, 7), min_size=1), rounds=st.integers(1, 5))
def test_what_each_is_given_follows_its_weight_however_little_there_is_at_a_time(
    weights: dict[str, int], totals: list[int], rounds: int
) -> None:
    def weight(owner: str) -> int:
        return weights.get(owner, 1)

    left = rounds * sum(map(weight, NAMES))
    given_to: Counter[str] = Counter()
    turn = turns.Turn()
    while left:
        for total in totals:
            order = turns.rotated(NAMES, last=turn, weight=weight)
            shares, turn = turns.shares(order, total=min(total, left), weight=weight, last=turn)
            given_to.update(shares)
            left -= sum(shares.values())
    assert given_to == Counter({owner: rounds * weight(owner) for owner in NAMES})


def test_a_small_owner_is_next_beside_a_big_one() -> None:
    shares, _ = turns.shares(["k8s/big", "k8s/small"], total=10, weight=lambda _: 1, most={"k8s/small": 1})
    assert shares == {"k8s/big": 9, "k8s/small": 1}
