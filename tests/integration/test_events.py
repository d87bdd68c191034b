"""What a job's object tells by its events: what its owner must know, each fact once, and nothing while all is well."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from tests.support import kubectl as kubectls
from tests.support import local_kube, postgres
from tests.support.crd_cases import job

from clockhand import metrics
from clockhand.domain import news
from clockhand.engine import events
from clockhand.kube import client as clients
from clockhand.kube import connection as connections
from clockhand.kube import events as calls
from clockhand.standalone.nodes import kubelet

Json = dict[str, Any]
SECRET = "what-only-the-log-knows"
NEVER = "0 0 1 1 *"
AT_ONCE = {"backoff": {"initialSeconds": 1, "maxSeconds": 1, "jitter": 0}}


class Installed:
    """A cluster of one node, and its operator."""

    def __init__(self, url: str, kube: local_kube.LocalKube) -> None:
        self.url, self.kube, self.kubectl = url, kube, kube.kubectl

    def events(self, name: str, reason: str = "") -> list[Json]:
        """Those that the operator made; the node without a cluster has some of its own."""
        found = self.kubectl.items("events", f"--field-selector=involvedObject.name={name}")
        ours = [one for one in found if one["reportingComponent"] == calls.COMPONENT]
        return [one for one in ours if one["reason"] == reason or not reason]

    def event(self, name: str, reason: str) -> Json:
        found: list[Json] = kubectls.wait_for(f"{reason} of {name}", lambda: self.events(name, reason))
        assert len(found) == 1
        return found[0]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    folder = tmp_path_factory.mktemp("kube")
    with postgres.server() as server:
        url = server.url(server.new_database())
        local_kube.migrate(url)
        node = kubelet.maker(folder / "node", environment=dict(os.environ))
        with local_kube.running(folder, url, node) as kube, local_kube.operator(folder, url, kube.kubeconfig):
            yield Installed(url, kube)


def running(name: str, script: str, **fields: Any) -> Json:
    pod = {"containers": [{"name": "main", "image": "any", "command": ["sh", "-c", script]}]}
    return job(name, **{"schedule": NEVER, "template": {"spec": pod}, **fields})


def every(seconds: int, name: str, script: str, **fields: Any) -> Json:
    return running(name, script, **{"schedule": None, "every": f"{seconds}s", **fields})


@pytest.fixture(scope="module", autouse=True)
def applied(installed: Installed) -> None:
    """Every job at once, since news of one object are half a minute apart."""
    long = {"backoff": {"initialSeconds": 600, "maxSeconds": 600}}
    kubectl = installed.kubectl
    kubectl.apply(every(2, "failing", f"echo {SECRET} >&2; exit 3", retry={"maxAttempts": 2, **AT_ONCE}))
    kubectl.apply(every(1, "once", "exit 7", retry=long, concurrencyPolicy="Forbid"))
    kubectl.apply(every(1, "sore", "exit 1", retry={"maxAttempts": 1}, pauseAfterFailures=1))
    kubectl.apply(every(60, "late", "true"))
    kubectl.apply(every(1, "well", "true"))
    pod = {"containers": [{"name": "main", "image": "any", "comand": ["true"]}]}
    kubectl.apply(job("odd", schedule=NEVER, template={"spec": pod}))


def test_dead_runs_are_told(installed: Installed) -> None:
    kubectl = installed.kubectl
    dead = installed.event("failing", "RunDead")
    assert dead["type"] == "Warning"
    assert "AttemptsUsed, attempt 2 ended by Error, exit code 3" in dead["message"]
    assert dead["involvedObject"]["uid"] == kubectl.get("sjob", "failing")["metadata"]["uid"]
    assert dead["reportingComponent"] == "clockhand-operator"
    for told in installed.events("failing"):
        assert SECRET not in str(told)
    described = kubectl.run("describe", "sjob", "failing").out
    assert "RunDead" in described
    assert "clockhand-operator" in described


def test_the_first_failure_is_told_while_the_run_goes_on(installed: Installed) -> None:
    failed = installed.event("once", "AttemptFailed")
    assert failed["type"] == "Warning"
    assert "attempt 1 of run once-" in failed["message"]
    assert failed["message"].endswith("failed: Error, exit code 7")
    assert installed.events("once", "RunDead") == []


def test_a_job_that_cannot_be_used_says_why_and_when_it_can_again(installed: Installed) -> None:
    kubectl = installed.kubectl
    kubectl.run("wait", "--for=condition=Ready=False", "sjob/odd", "--timeout=60s")
    conditions = kubectl.get("sjob", "odd")["status"]["conditions"]
    [ready] = [one for one in conditions if one["type"] == "Ready"]
    refused = installed.event("odd", ready["reason"])
    assert (refused["type"], refused["message"]) == ("Warning", ready["message"])
    kubectl.apply(running("odd", "true"))
    assert installed.event("odd", "Ready")["type"] == "Normal"


def test_a_pause_is_told_and_its_end(installed: Installed) -> None:
    kubectl = installed.kubectl
    # one run, or as many as were under way by then
    assert "ended Dead" in installed.event("sore", "Paused")["message"]
    kubectl.apply(every(1, "sore", "true", pauseAfterFailures=1))
    assert installed.event("sore", "Resumed")["type"] == "Normal"


def test_what_was_missed_while_nobody_fired_is_one_event(installed: Installed) -> None:
    kubectls.wait_for("its row", lambda: installed.kubectl.get("sjob", "late").get("status"))
    with psycopg.connect(installed.url) as connection:  # as if nobody had been there for ten minutes
        connection.execute(
            "UPDATE jobs SET created_at = created_at - ago, last_slot_at = last_slot_at - ago, "
            "next_slot_at = next_slot_at - ago, next_run_at = next_run_at - ago "
            "FROM (SELECT interval '10 minutes' AS ago) AS passed WHERE name = 'late'"
        )
    missed = installed.event("late", "SlotsMissed")
    assert missed["count"] == 1
    assert "slots, the last one of" in missed["message"]
    assert "did not run: they had fallen due too long ago" in missed["message"]


def test_a_job_that_does_well_tells_nothing(installed: Installed) -> None:
    kubectls.wait_for(
        "a success", lambda: "lastSuccessfulTime" in installed.kubectl.get("sjob", "well").get("status", {})
    )
    assert [(one["reason"], one["message"]) for one in installed.events("well")] == []


@pytest.fixture
async def client(installed: Installed) -> AsyncIterator[clients.Client]:
    async with clients.connect(await connections.find(str(installed.kube.kubeconfig))) as one:
        yield one


def about(name: str) -> calls.Regarding:
    return calls.Regarding("clockhand.dev/v1alpha1", "ScheduledJob", "default", name, f"uid-of-{name}")


async def test_the_same_fact_is_told_once_whoever_tells_it(installed: Installed, client: clients.Client) -> None:
    for instance in ("before-the-crash", "after-it"):
        recorder = events.Recorder(calls.Events(client, instance=instance))
        recorder.tell(about("crashed"), [news.News("RunDead", "a run ended Dead", "ill/1")])
        await recorder.step()
    [told] = installed.events("crashed")
    assert (told["count"], told["reportingInstance"]) == (1, "before-the-crash")


async def test_repeated_news_are_one_event_with_a_count(installed: Installed, client: clients.Client) -> None:
    recorder = events.Recorder(calls.Events(client, instance="one"))
    recorder.tell(about("often"), [news.News("RunDead", f"run {n} ended Dead", f"ill/{n}") for n in (1, 2, 3)])
    for _ in range(3):
        await recorder.step()
    [told] = installed.events("often")
    assert (told["count"], told["message"]) == (3, "run 3 ended Dead")
    installed.kubectl.run("delete", "event", told["metadata"]["name"])
    recorder.tell(about("often"), [news.News("RunDead", "run 4 ended Dead", "ill/4")])
    await recorder.step()
    [told] = installed.events("often")
    assert (told["count"], told["message"]) == (1, "run 4 ended Dead")


async def test_a_fact_that_is_told_again_is_not_counted_again(installed: Installed, client: clients.Client) -> None:
    recorder = events.Recorder(calls.Events(client, instance="one"))
    for number in (1, 1, 2, 2):
        recorder.tell(about("twice"), [news.News("RunDead", f"run {number} ended Dead", f"ill/{number}")])
        await recorder.step()
    [told] = installed.events("twice")
    assert (told["count"], told["message"]) == (2, "run 2 ended Dead")


async def test_one_object_cannot_tell_without_end(client: clients.Client) -> None:
    recorder = events.Recorder(calls.Events(client, instance="one"))
    dropped = metrics.EVENTS_DROPPED.labels(reason="rate")._value
    before = dropped.get()
    recorder.tell(about("loud"), [news.News("RunDead", "", f"ill/{n}") for n in range(30)])
    assert dropped.get() - before == 30 - events.OF_OBJECT_AT_ONCE
    recorder.tell(about("quiet"), [news.News("RunDead", "", "ill/1")])
    assert dropped.get() - before == 30 - events.OF_OBJECT_AT_ONCE


async def test_refused_events_stop_nobody(client: clients.Client) -> None:
    recorder = events.Recorder(calls.Events(client, instance="one"))
    refused = metrics.EVENTS_DROPPED.labels(reason="refused")._value
    before = refused.get()
    elsewhere = calls.Regarding("clockhand.dev/v1alpha1", "ScheduledJob", "not-there", "any", "uid")
    recorder.tell(elsewhere, [news.News("RunDead", "a run ended Dead", "ill/1")])
    assert await recorder.step() == 0.0
    assert refused.get() == before + 1
