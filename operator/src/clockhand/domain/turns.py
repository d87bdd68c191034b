"""Whose turn it is: owners take turns, so that nobody waits behind somebody else's backlog.

Each is given as many runs at a turn as its weight says. Where there is too little for all, the next time goes on where
this one ended, also in the middle of a turn.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class Turn:
    """Who was given something last, and how much of it in that turn."""

    owner: str = ""
    given: int = 0


def shares(
    owners: Sequence[str],
    *,
    total: int,
    weight: Callable[[str], int],
    most: Mapping[str, int] | None = None,
    last: Turn | None = None,
) -> tuple[Mapping[str, int], Turn]:
    """How many of `total` each of `owners` is given, in turns in their order, and the turn that was the last.

    The order begins with who is next; if the first is the owner of `last`, it is given what is left of that turn. `most`
    says of some owners how many they can take at all.
    """
    given: dict[str, int] = {}
    turn = last or Turn()
    left = {owner: total if most is None else most.get(owner, total) for owner in owners}
    used = turn.given if owners and owners[0] == turn.owner else 0
    if len(owners) == 1 and (share := min(left[owners[0]], total)) > 0:  # turn after turn, at once
        [owner] = owners
        return {owner: share}, Turn(owner, (min(used, weight(owner)) + share - 1) % weight(owner) + 1)
    while total > 0 and any(left.values()):
        for owner in owners:
            share = min(weight(owner) - used, left[owner], total)
            if share > 0:
                given[owner] = given.get(owner, 0) + share
                left[owner] -= share
                total -= share
                turn = Turn(owner, used + share)
            used = 0
    return given, turn


def rotated(owners: Collection[str], *, last: Turn, weight: Callable[[str], int]) -> Sequence[str]:
    """`owners` sorted, beginning with the one whose turn it is after `last`."""
    ordered = sorted(owners)
    goes_on = last.given < weight(last.owner)
    first = next((n for n, owner in enumerate(ordered) if owner > last.owner or (goes_on and owner == last.owner)), 0)
    return [*ordered[first:], *ordered[:first]]
