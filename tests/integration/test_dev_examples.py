"""Every file of `examples/` is applied by stock kubectl to `clockhand dev`, as it is, and does what it promises there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from tests.support import dev, objects, runs
from tests.support.kubectl import Kubectl, wait_for

EXAMPLES = Path(__file__).parents[2] / "examples"
JOBS = [
    thing["metadata"]["name"]
    for path in sorted(EXAMPLES.glob("*.yaml"))
    for thing in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    if thing["kind"] == "ScheduledJob"
]
# what a run writes, where the example says so
WRITTEN: Mapping[str, str] = {
    "hello": "run hello-now was due at ",
    "in-order": "the hour before ",
    "payload": 'sending {"dryRun":false,"recipients":["accounting","sales"],"template":"invoice"}\n',
    "one-shot": "merry Christmas\n",
    "job-class": "good morning, world\n",
    "retry-by-exit-code": "attempt 3\n",
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """An installation with all examples applied and a run of each job asked for."""
    folder = tmp_path_factory.mktemp("dev")
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()
        kubeconfig = folder / "kubeconfig"
        started = dev.started(folder, "--ephemeral", "--kubeconfig", str(kubeconfig))
        one = runner.run(stack.enter_async_context(started))
        try:
            runner.run(one.until_ready())
            kubectl = Kubectl(kubeconfig)
            kubectl.run("apply", "-f", str(EXAMPLES))
            for name in JOBS:
                runs.start(kubectl, name, f"{name}-now")
            yield kubectl
        finally:
            runner.run(stack.aclose())


@pytest.mark.parametrize("job", JOBS)
def test_an_example_makes_a_run(here: Kubectl, job: str) -> None:
    run = runs.wait_state(here, f"{job}-now", "Succeeded")

    assert run["status"]["attempt"] == (3 if job == "retry-by-exit-code" else 1)
    if job in WRITTEN:
        pod = f"pod/{run['status']['podName']}"
        assert here.run("logs", pod).out.startswith(WRITTEN[job])
        assert here.run("logs", "-f", pod, "--tail=1").out.startswith(WRITTEN[job])


def test_the_workers_of_a_pool_come_up_and_take_its_runs(here: Kubectl) -> None:
    pool = wait_for("the pool", lambda: _ready(here, "tools"))
    run = runs.wait_state(here, "worker-pool-now", "Succeeded")
    (pod,) = here.items("pods", "--selector=clockhand.dev/pool=tools")

    assert objects.condition(pool, "Ready")["status"] == "True"
    assert run["status"]["worker"].startswith(pod["metadata"]["name"])
    assert "hello world" in here.run("logs", "deployment/clockhand-pool-tools").out


def test_a_pool_is_scaled_and_goes_with_all_that_it_had(here: Kubectl) -> None:
    scaled = objects.worker_pool("scaled", handlers=["exec"], execCommands={"x": ["true"]}, replicas=2)
    here.apply(scaled)
    wait_for("two workers", lambda: _ready(here, "scaled", count=2))

    here.run("patch", "wpool", "scaled", "--type=merge", "-p", '{"spec":{"replicas":1}}')
    mine = ("pods", "--selector=clockhand.dev/pool=scaled")
    wait_for("one worker", lambda: len(here.items(*mine)) == 1)

    here.run("delete", "wpool", "scaled")
    kept = "deployments,pods,serviceaccounts,configmaps,poddisruptionbudgets"
    wait_for("all of it to be gone", lambda: not here.items(kept, "--selector=clockhand.dev/pool=scaled"))


def test_a_template_without_a_command_ends_with_a_sentence(here: Kubectl) -> None:
    body = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    here.apply(objects.job("imageless", body, retry={"maxAttempts": 1}))
    runs.start(here, "imageless", "imageless-now")

    run = runs.wait_state(here, "imageless-now", "Dead")

    assert "there is no image to ask" in run["status"]["message"]
    assert "ImageIgnored" in here.run("describe", "sjob", "imageless").out


def test_a_cancelled_run_takes_its_processes_with_it(here: Kubectl) -> None:
    body = {"spec": {"containers": [{"name": "main", "image": "busybox", "command": ["sleep", "1000"]}]}}
    here.apply(objects.job("endless", body))
    runs.start(here, "endless", "endless-now")
    runs.wait_state(here, "endless-now", "Running")

    here.run("delete", "run", "endless-now", "--wait=false")

    runs.wait_state(here, "endless-now", "Cancelled")
    wait_for("the pod to be gone", lambda: not runs.pods_of(here, "endless"))


def _ready(kubectl: Kubectl, name: str, *, count: int = 1) -> objects.Object | None:
    pool: objects.Object = kubectl.get("wpool", name)
    return pool if pool.get("status", {}).get("readyReplicas") == count else None
