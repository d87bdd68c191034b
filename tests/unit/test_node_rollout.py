"""Which pods a Deployment gets and loses, by what there is; and that a rollout always comes to its end."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace

import pytest

from clockhand.standalone.nodes import rollout
from clockhand.standalone.nodes.rollout import Member

COUNT = itertools.count()


def some(count: int, *, current: bool = True, ready: bool = True) -> list[Member]:
    return [Member(f"u{number}", current, ready, f"{number:06}") for number in itertools.islice(COUNT, count)]


def wanted(replicas: int, **strategy: object) -> rollout.Wanted:
    return rollout.read(
        {"replicas": replicas, "strategy": {"rollingUpdate": strategy}} if strategy else {"replicas": replicas}
    )


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, rollout.Wanted(1, 1, 0)),
        ({"replicas": 0}, rollout.Wanted(0, 0, 1)),
        ({"replicas": 8}, rollout.Wanted(8, 2, 2)),
        (
            {"replicas": 5, "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}}},
            rollout.Wanted(5, 2, 0),
        ),
        ({"replicas": 2, "strategy": {"type": "Recreate"}}, rollout.Wanted(2, 1, 0, True)),
    ],
)
def test_defaults_are_those_of_kubernetes(spec: dict[str, object], expected: rollout.Wanted) -> None:
    assert rollout.read(spec) == expected


def test_missing_pods_are_made_and_too_many_go_the_unready_and_newest_first() -> None:
    ready, unready = some(3), some(1, ready=False)

    assert rollout.plan(wanted(3), []).create == 3
    assert rollout.plan(wanted(4), [*ready, *unready]) == rollout.Plan(0, frozenset())
    assert rollout.plan(wanted(2), [*ready, *unready]).delete == {unready[0].uid, ready[2].uid}
    assert rollout.plan(wanted(0), ready).delete == {one.uid for one in ready}


def test_a_pod_that_is_over_gets_a_successor() -> None:
    over = replace(some(1)[0], over=True, ready=False)

    assert rollout.plan(wanted(1), [over]) == rollout.Plan(1, frozenset({over.uid}))


def test_an_old_pod_goes_when_a_new_one_is_ready() -> None:
    old, new = some(1, current=False), some(1, ready=False)
    settings = wanted(1, maxSurge="25%", maxUnavailable=0)

    assert rollout.plan(settings, old) == rollout.Plan(1, frozenset())
    assert rollout.plan(settings, [*old, *new]) == rollout.Plan(0, frozenset())
    assert rollout.plan(settings, [*old, replace(new[0], ready=True)]).delete == {old[0].uid}


def test_recreate_waits_until_the_old_ones_are_gone() -> None:
    settings = rollout.Wanted(2, 0, 1, at_once=True)
    old = some(2, current=False)

    assert rollout.plan(settings, old) == rollout.Plan(0, frozenset(one.uid for one in old))
    assert rollout.plan(settings, [replace(old[0], going=True)]).create == 0
    assert rollout.plan(settings, []).create == 2


@pytest.mark.parametrize("replicas", [1, 2, 3, 7])
@pytest.mark.parametrize("missing", [0, "25%", 1])
def test_a_rollout_ends_and_never_has_too_few_ready(replicas: int, missing: object) -> None:
    settings = wanted(replicas, maxSurge="25%", maxUnavailable=missing)
    members = some(replicas, current=False)

    for _ in range(50):
        planned = rollout.plan(settings, members)
        kept = [one for one in members if one.uid not in planned.delete]
        assert sum(one.ready for one in kept) >= settings.replicas - settings.missing
        members = [*_ready_one_more(kept), *some(planned.create, ready=False)]
        assert len(members) <= settings.replicas + settings.surge
        if all(one.current and one.ready for one in members) and len(members) == replicas:
            return
    pytest.fail("the rollout did not end")


def _ready_one_more(members: Iterable[Member]) -> list[Member]:
    return [replace(one, ready=True) for one in members]


def test_the_status_counts_and_says_when_all_is_done() -> None:
    deployment = {"metadata": {"generation": 4}, "spec": {"replicas": 2}}

    found = rollout.status(deployment, some(2), now="2026-03-01T12:00:00Z")

    assert found["observedGeneration"] == 4
    assert found["readyReplicas"] == 2
    assert "unavailableReplicas" not in found
    assert [one["reason"] for one in found["conditions"]] == ["MinimumReplicasAvailable", "NewReplicaSetAvailable"]
