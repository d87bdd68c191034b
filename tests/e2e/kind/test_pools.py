"""Worker pools where workers really run: the project's own image, under the rights and the manifests of `deploy/`."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import objects, runs
from tests.support.kubectl import Kubectl, wait_for

pytestmark = pytest.mark.kind

COMMANDS = {
    "greet": ["python3", "-c", "import os; print('hello from', os.environ['CLOCKHAND_RUN_NAME'])"],
    "sleep": ["sleep", "20"],
    "fail": ["sh", "-c", "echo cannot go on; exit 3"],
}
KEPT = "deployments,serviceaccounts,configmaps,poddisruptionbudgets"


@pytest.fixture(scope="module")
def tools(here: Kubectl) -> Kubectl:
    """The namespace of the pool `tools`, whose two workers run the commands above, and of a job for each of them."""
    here.apply(pool("tools", replicas=2), *(command(name) for name in COMMANDS))
    wait_for("the workers", lambda: ready(here, "tools") == 2, seconds=180)
    return here


def pool(name: str, *, commands: dict[str, list[str]] = COMMANDS, **spec: Any) -> objects.Object:
    return objects.worker_pool(name, handlers=["exec"], execCommands=commands, concurrency=4, **spec)


def command(name: str, *, pool: str = "tools", job: str = "", **spec: Any) -> objects.Object:
    """A job that runs one of the commands."""
    return objects.pooled_job(job or name, "exec", pool, payload={"command": name}, **spec)


def ready(kubectl: Kubectl, name: str) -> int:
    status = kubectl.get("wpool", name).get("status", {})
    return int(status.get("readyReplicas", 0))


def pods(kubectl: Kubectl, name: str) -> list[Any]:
    return kubectl.items("pods", f"--selector=clockhand.dev/pool={name}")


def test_the_workers_come_up_from_the_projects_own_image(tools: Kubectl) -> None:
    assert objects.condition(tools.get("wpool", "tools"), "Ready")["status"] == "True"
    images = {one["spec"]["containers"][0]["image"] for one in pods(tools, "tools")}
    assert images <= {"localhost:1/clockhand-worker:dev", "clockhand-worker"}


def test_a_run_is_made_by_a_worker_and_kubectl_says_by_which(tools: Kubectl) -> None:
    runs.start(tools, "greet", "greet-now")
    runs.wait_state(tools, "greet-now", "Succeeded")
    head, line = tools.run("get", "run", "greet-now", "-o", "wide").out.splitlines()
    assert "WORKER" in head
    assert any(name in line for name in runs.names(pods(tools, "tools")))
    assert runs.pods_of(tools, "greet") == []


def test_slots_are_handed_to_workers(tools: Kubectl) -> None:
    tools.apply(command("greet", job="often", schedule=None, every="2s"))
    wait_for("three runs", lambda: [runs.state(run) for run in runs.of_job(tools, "often")].count("Succeeded") >= 3)
    tools.run("delete", "sjob", "often")


def test_a_command_that_fails_is_tried_as_often_as_the_job_says(tools: Kubectl) -> None:
    tools.apply(command("fail", job="failing", retry={"maxAttempts": 2, "backoff": {"initialSeconds": 0}}))
    runs.start(tools, "failing", "failing-now")
    run = runs.wait_state(tools, "failing-now", "Dead")
    assert run["status"]["attempt"] == 2


def test_a_job_is_told_of_its_pool_and_its_runs_wait_for_it(tools: Kubectl) -> None:
    tools.apply(command("greet", job="early", pool="later"))
    wait_for("the condition", lambda: pool_ready(tools, "early").get("reason") == "PoolMissing")
    runs.start(tools, "early", "early-now")
    tools.apply(pool("later"))
    runs.wait_state(tools, "early-now", "Succeeded", seconds=180)
    wait_for("the condition", lambda: pool_ready(tools, "early").get("status") == "True")


def test_neither_a_rollout_nor_scaling_down_costs_a_run(tools: Kubectl) -> None:
    tools.apply(pool("draining", replicas=2), command("sleep", job="slow", pool="draining"))
    wait_for("the workers", lambda: ready(tools, "draining") == 2, seconds=180)
    before = set(runs.names(pods(tools, "draining")))
    early = start_slow(tools, "early")
    more = {**COMMANDS, "other": ["true"]}
    tools.apply(pool("draining", replicas=2, commands=more))
    wait_for("other workers", lambda: not before & set(runs.names(pods(tools, "draining"))), seconds=180)
    late = start_slow(tools, "late")
    tools.run("scale", "wpool", "draining", "--replicas=0")
    wait_for("the workers to go", lambda: not pods(tools, "draining"))
    for name in (*early, *late):
        assert runs.wait_state(tools, name, "Succeeded")["status"]["attempt"] == 1


def start_slow(kubectl: Kubectl, stem: str) -> list[str]:
    """Runs that a worker has, and has for some time yet."""
    names = [f"slow-{stem}-{number}" for number in range(4)]
    for name in names:
        runs.start(kubectl, "slow", name)
    for name in names:
        # Running is told with a heartbeat, which may be half a minute away
        runs.wait_state(kubectl, name, "Claimed", "Running")
    return names


def test_deleting_a_pool_removes_all_of_it(tools: Kubectl) -> None:
    tools.apply(pool("leaving"), command("greet", job="left", pool="leaving"))
    wait_for("the worker", lambda: ready(tools, "leaving") == 1, seconds=180)
    tools.run("delete", "wpool", "leaving")
    mine = ("--selector=clockhand.dev/pool=leaving",)
    wait_for("its objects to go", lambda: not tools.items(KEPT, *mine) and not pods(tools, "leaving"))
    wait_for("the condition", lambda: pool_ready(tools, "left").get("reason") == "PoolMissing")


@pytest.mark.cluster
def test_an_author_who_may_not_create_pods_makes_no_pool(tools: Kubectl) -> None:
    tools.apply(
        objects.role("pools", ("clockhand.dev", "workerpools", ["get", "list", "create", "patch"])),
        objects.grant("pool-author", "Role", "pools"),
    )
    author = tools.acting_as("pool-author")
    wait_for("the rights", lambda: author.call("auth", "can-i", "create", "workerpools").out.strip() == "yes")
    assert "pool-author may not create pods in namespace" in author.apply_refusal(pool("smuggled"))
    assert tools.find("wpool", "smuggled") is None


def pool_ready(kubectl: Kubectl, job: str) -> Any:
    return objects.condition(kubectl.get("sjob", job), "PoolReady")
