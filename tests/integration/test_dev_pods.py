"""`clockhand dev` is ended while pods run: by Ctrl-C workers finish, and after a kill -9 runs are tried again."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from tests.support import dev, objects, runs
from tests.support.kubectl import Kubectl, wait_for


async def test_a_worker_of_a_pool_finishes_its_attempt_at_ctrl_c(tmp_path: Path) -> None:
    kubeconfig, begun = tmp_path / "kubeconfig", tmp_path / "begun"
    kubectl = Kubectl(kubeconfig)
    arguments = ("--data-dir", str(tmp_path / "data"), "--kubeconfig", str(kubeconfig))
    commands = {"slow": ["sh", "-c", f"echo x >> {begun}; sleep 4"]}
    async with dev.started(tmp_path, *arguments) as one:
        await one.until_ready()
        pool = objects.worker_pool("tools", handlers=["exec"], execCommands=commands, replicas=1)
        job = objects.pooled_job("slow", "exec", "tools", payload={"command": "slow"})
        await asyncio.to_thread(kubectl.apply, pool, job)
        await asyncio.to_thread(runs.start, kubectl, "slow", "slow-now")
        await asyncio.to_thread(wait_for, "the command", begun.exists)
        one.process.send_signal(signal.SIGINT)
        assert await one.ended() == 0
    async with dev.started(tmp_path, *arguments, port=one.port) as one:
        await one.until_ready()
        run = await asyncio.to_thread(runs.wait_state, kubectl, "slow-now", "Succeeded")

    assert run["status"]["attempt"] == 1
    assert begun.read_text() == "x\n"


async def test_a_run_whose_pod_was_killed_is_tried_again(tmp_path: Path) -> None:
    kubeconfig, begun = tmp_path / "kubeconfig", tmp_path / "begun"
    kubectl = Kubectl(kubeconfig)
    arguments = ("--data-dir", str(tmp_path / "data"), "--kubeconfig", str(kubeconfig))
    script = f"echo x >> {begun}; test $CLOCKHAND_ATTEMPT = 2 || sleep 1000"
    body = {"spec": {"containers": [{"name": "main", "image": "busybox", "command": ["sh", "-c", script]}]}}
    async with dev.started(tmp_path, *arguments) as one:
        await one.until_ready()
        await asyncio.to_thread(kubectl.apply, objects.job("long", body, retry={"backoff": {"initialSeconds": 0}}))
        await asyncio.to_thread(runs.start, kubectl, "long", "long-now")
        await asyncio.to_thread(runs.wait_state, kubectl, "long-now", "Running")
        one.kill_all()
        await one.ended()
    async with dev.started(tmp_path, *arguments, port=one.port) as one:
        await one.until_ready()
        run = await asyncio.to_thread(runs.wait_state, kubectl, "long-now", "Succeeded")

    status = run["status"]
    assert (status["attempt"], status["disruptions"], status["failures"]) == (2, 1, 0)
    assert begun.read_text() == "x\nx\n"
