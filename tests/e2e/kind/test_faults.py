"""Each fault once beside the installed replicas, with pods that really run: nothing is lost, nothing happens twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from tests.faults import catalogue, runner
from tests.faults import kind as kinds
from tests.faults.scene import Scene
from tests.faults.trigger import Shot
from tests.support.installation import Installation, Manifests

pytestmark = [pytest.mark.kind, pytest.mark.cluster, pytest.mark.outage]
# not pod-deleted: a kubelet tells the second of an end, which is too coarse to say here what came first, the end or the
# deletion; the light cluster has that case
FROM_OUTSIDE = ("label-removed", "name-taken", "watch-silent")


@pytest.fixture(scope="module")
def stage(installation: Installation) -> Iterator[kinds.KindStage]:
    assert isinstance(installation, Manifests)
    with kinds.stage(installation) as made:
        yield made


@pytest.mark.parametrize("shots", kinds.VOLLEYS, ids=lambda shots: "-".join(shot.point for shot in shots))
def test_survives_replicas_that_die_and_sleep(stage: kinds.KindStage, shots: Sequence[Shot]) -> None:
    survives(stage, kinds.volley(shots))


@pytest.mark.parametrize("name", FROM_OUTSIDE)
def test_survives_what_is_done_to_pods(stage: kinds.KindStage, name: str) -> None:
    survives(stage, next(fault for fault in catalogue.FAULTS if fault.name == name))


def test_survives_the_loss_of_an_installed_replica(stage: kinds.KindStage) -> None:
    def strike(scene: Scene, number: int) -> bool:
        del number
        scene.make_due()
        busy = stage.open_work(scene.fleet) > 0
        stage.kill_installed_replica()
        return busy

    survives(stage, catalogue.Fault("replica-lost", "an installed operator is killed", strike, catalogue.LASTING))


def survives(stage: kinds.KindStage, fault: catalogue.Fault) -> None:
    result = runner.execute(stage, fault, times=1)
    assert result.violations == []
    assert result.hits == 1, "the fault did not hit, so nothing was shown"
