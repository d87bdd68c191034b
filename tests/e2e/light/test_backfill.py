"""Past slots asked for with kubectl: a real API server, operators and the runs API as processes, pods on fake nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support import installation, objects, runs
from tests.support.kubectl import Kubectl, NotYet, wait_for

HOUR = timedelta(hours=1)
SLOTS = 5
NAMESPACE = "backfills"


@pytest.fixture(scope="module")
def kubectl() -> Iterator[Kubectl]:
    with installation.on_light_cluster() as processes:
        yield processes.kubectl.create_namespace(NAMESPACE)


@pytest.fixture(scope="module")
def hour() -> datetime:
    """The newest whole hour of which no job of this module can have a slot of its own."""
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - HOUR


def text(instant: datetime) -> str:
    return f"{instant:%Y-%m-%dT%H:%M:%SZ}"


def backfill(name: str, job: str, hour: datetime, **more: Any) -> dict[str, Any]:
    """The last five slots up to `hour`."""
    asked = {"from": text(hour - (SLOTS - 1) * HOUR), "to": text(hour), **more}
    return runs.manual(name, job, backfill=asked)


def apply(kubectl: Kubectl, name: str, body: objects.Object | None = None) -> None:
    kubectl.apply(objects.job(name, body, schedule="0 * * * *"))
    wait_for(f"{name} to be ready", lambda: ready(kubectl, name))


def ready(kubectl: Kubectl, name: str) -> bool:
    return bool(objects.condition(kubectl.get("sjob", name), "Ready").get("status") == "True")


def made_of(kubectl: Kubectl, job: str) -> Sequence[runs.Run]:
    return [run for run in runs.of_job(kubectl, job) if run["spec"]["kind"] == "Backfill"]


def progress(kubectl: Kubectl, name: str) -> dict[str, int]:
    found: dict[str, int] = kubectl.get("run", name)["status"]["backfill"]
    return found


def test_a_backfill_runs_every_slot_and_can_be_waited_for(kubectl: Kubectl, hour: datetime) -> None:
    apply(kubectl, "nightly-report")
    said = kubectl.create(backfill("november", "nightly-report", hour, concurrency=2)).out
    assert "run.runs.clockhand.dev/november created" in said
    kubectl.run("wait", "--for=condition=Complete", "run/november", "--timeout=110s")
    found = kubectl.get("run", "november")
    assert runs.state(found) == "Succeeded"
    counts = {key: found["status"]["backfill"][key] for key in ("slots", "made", "passed", "succeeded", "failed")}
    assert counts == {"slots": SLOTS, "made": SLOTS, "passed": 0, "succeeded": SLOTS, "failed": 0}
    made = made_of(kubectl, "nightly-report")
    assert [runs.scheduled_at(run) for run in made] == [hour - number * HOUR for number in range(SLOTS - 1, -1, -1)]
    assert {runs.state(run) for run in made} == {"Succeeded"}
    # it is no run: lists do not show it, its name does
    assert "november" not in runs.names(kubectl.items("runs"))
    line = kubectl.run("get", "run", "november", "-o", "wide").out.splitlines()[1]
    assert "Succeeded" in line
    assert f"{SLOTS} of {SLOTS} slots" in line
    assert "november" in kubectl.run("describe", "run", "november").out


def test_asking_again_under_another_name_makes_nothing(kubectl: Kubectl, hour: datetime) -> None:
    assert "already exists" in kubectl.refusal(
        "create", "-f", "-", stdin=json.dumps(backfill("november", "nightly-report", hour))
    )
    before = runs.names(made_of(kubectl, "nightly-report"))
    kubectl.create(backfill("november-again", "nightly-report", hour, order="NewestFirst"))
    kubectl.run("wait", "--for=condition=Complete", "run/november-again", "--timeout=110s")
    counts = progress(kubectl, "november-again")
    assert (counts["made"], counts["passed"]) == (0, SLOTS)
    assert runs.names(made_of(kubectl, "nightly-report")) == before


def test_delete_cancels_what_is_left_and_what_is_live(kubectl: Kubectl, hour: datetime) -> None:
    apply(kubectl, "slow", objects.until_told())
    kubectl.create(backfill("slowly", "slow", hour, concurrency=2))

    def two_run() -> bool:
        states = [runs.state(run) for run in made_of(kubectl, "slow")]
        if states != ["Running", "Running"]:
            raise NotYet(f"its runs are {states}")
        return True

    wait_for("two runs", two_run)
    assert runs.state(kubectl.get("run", "slowly")) == "Running"
    kubectl.run("delete", "run", "slowly")
    kubectl.run("wait", "--for=condition=Failed", "run/slowly", "--timeout=110s")
    assert runs.state(kubectl.get("run", "slowly")) == "Cancelled"
    assert [runs.state(run) for run in made_of(kubectl, "slow")] == ["Cancelled", "Cancelled"]
    assert progress(kubectl, "slowly")["made"] == 2
    assert "over" in kubectl.refusal("delete", "run", "slowly")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"from": "2001-01-01T00:00:00Z"}, "days for which runs are kept"),
        ({"to": "2999-01-01T00:00:00Z"}, "lies in the future"),
        ({"from": "yesterday"}, "is not an instant"),
        ({"concurrency": 1000}, "must be a whole number from 1 to 100"),
        ({"colour": "red"}, 'unknown field "spec.backfill.colour"'),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(
    kubectl: Kubectl, hour: datetime, change: dict[str, Any], sentence: str
) -> None:
    apply(kubectl, "nightly-report")
    # kubectl learns from the openapi document that the server checks fields
    wait_for("the openapi document", lambda: "concurrency" in kubectl.call("explain", "run.spec.backfill").out)
    order = json.dumps(backfill("nonsense", "nightly-report", hour, **change))
    assert sentence in kubectl.refusal("create", "-f", "-", stdin=order)
    assert kubectl.find("run", "nonsense") is None


def test_a_range_without_a_slot_and_a_job_that_is_not_there(kubectl: Kubectl, hour: datetime) -> None:
    kubectl.apply(objects.job("yearly"))
    wait_for("yearly to be ready", lambda: ready(kubectl, "yearly"))
    assert "no slot of 'yearly'" in kubectl.refusal(
        "create", "-f", "-", stdin=json.dumps(backfill("nothing", "yearly", hour))
    )
    assert "nobody" in kubectl.refusal("create", "-f", "-", stdin=json.dumps(backfill("none", "nobody", hour)))
