"""`clockhand dev`: a whole installation as one tree of processes, which may be ended in every way there is."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from tests.standalone import kills
from tests.support import dev, ports

from clockhand.standalone import home, orphans, passage

HOME = ".local/share/clockhand"
ECHO = {"name": "hello", "every": "10s", "handler": "echo", "payload": {"hello": "world"}}


async def until_run(one: dev.Dev, job: str, state: str = "Succeeded") -> dict[str, object]:
    """Some run of a job that has come to `state`."""
    async with asyncio.timeout(60):
        while True:
            for run in (await one.call("GET", f"/v1/jobs/{job}/runs")).json["items"]:
                if run["state"] == state:
                    return dict(run)
            await asyncio.sleep(0.1)


async def are_gone(processes: Sequence[int]) -> bool:
    return not any(orphans.beginning(pid) for pid in processes)


def names_in(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}


async def test_everything_is_there_once_it_is_ready(tmp_path: Path) -> None:
    token, kubeconfig = tmp_path / "token", tmp_path / "kubeconfig"
    async with dev.started(tmp_path, "--token-file", str(token), "--kubeconfig", str(kubeconfig)) as one:
        await one.until_ready()
        for file in (token, kubeconfig):
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
        [cluster] = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))["clusters"]
        assert cluster["cluster"]["server"] == f"https://127.0.0.1:{one.port + 1}"
        one.token_file = token
        made = await one.call("POST", "/v1/jobs", ECHO)
        assert made.status == 201, made.json
        run = await until_run(one, made.json["id"])
        assert run["attempt"] == 1
        assert 'part="api"' in await one.text("/metrics")
        said = one.log()
    assert "Clockhand is ready" in said
    assert token.read_text(encoding="utf-8").strip() not in said
    assert "Traceback" not in said


async def test_a_token_of_ones_own_counts(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("only-for-this-test\n", encoding="utf-8")
    async with dev.started(tmp_path, "--ephemeral", "--token-file", str(tmp_path / "token")) as one:
        await one.until_ready()
        answer = await one.call("GET", "/v1/jobs", token_file=tmp_path / "token")
        assert (answer.status, answer.json["items"]) == (200, [])
        (tmp_path / "other").write_text("only-for-that-test\n", encoding="utf-8")
        assert (await one.call("GET", "/v1/jobs", token_file=tmp_path / "other")).status == 401


async def test_jobs_are_there_after_ctrl_c_and_the_token_still_counts(tmp_path: Path) -> None:
    async with dev.started(tmp_path) as one:
        await one.until_ready()
        job = (await one.call("POST", "/v1/jobs", ECHO)).json["id"]
        await until_run(one, job)
        processes = dev.descendants(one.process.pid)
        assert len(processes) > 4
        one.process.send_signal(signal.SIGINT)
        assert await one.ended() == 0
        assert await are_gone(processes)
    async with dev.started(tmp_path) as one:
        await one.until_ready()
        assert (await one.call("GET", f"/v1/jobs/{job}")).json["name"] == "hello"


async def test_a_part_that_is_killed_comes_back(tmp_path: Path) -> None:
    async with dev.started(tmp_path) as one:
        await one.until_ready()
        job = (await one.call("POST", "/v1/jobs", ECHO)).json["id"]
        for pid in dev.descendants(one.process.pid):
            with (Path("/proc") / f"{pid}" / "cmdline").open("rb") as file:
                if file.read().endswith(b"\0worker\0"):
                    os.kill(pid, signal.SIGKILL)
        await dev.until(one.is_unready)
        await one.until_ready()
        await until_run(one, job)


async def test_nothing_outlives_a_parent_that_is_killed(tmp_path: Path) -> None:
    async with dev.started(tmp_path) as one:
        await one.until_ready()
        processes = dev.descendants(one.process.pid)
        os.kill(one.process.pid, signal.SIGKILL)
        await dev.until(lambda: are_gone(processes))
    async with dev.started(tmp_path) as one:
        await one.until_ready()


async def test_killed_under_load_it_loses_and_doubles_nothing(tmp_path: Path) -> None:
    checked = await kills.run(tmp_path, times=3)
    assert checked.wrong == []
    assert checked.jobs >= kills.LEAST


async def test_an_ephemeral_one_leaves_nothing(tmp_path: Path) -> None:
    async with dev.started(tmp_path, "--ephemeral", "--token-file", str(tmp_path / "token")) as one:
        await one.until_ready()
        assert names_in(tmp_path) > {"log", "token"}
        one.process.send_signal(signal.SIGTERM)
        assert await one.ended() == 0
    assert names_in(tmp_path) == {"log", "token"}


async def test_what_a_killed_ephemeral_one_leaves_goes_with_the_next(tmp_path: Path) -> None:
    async with dev.started(tmp_path, "--ephemeral") as one:
        await one.until_ready()
        one.kill_all()
        await one.ended()
    left = names_in(tmp_path) - {"log"}
    assert len(left) == 1
    async with dev.started(tmp_path, "--ephemeral") as one:
        await one.until_ready()
        assert not left & names_in(tmp_path)


async def test_a_second_ctrl_c_does_not_wait_for_what_runs(tmp_path: Path) -> None:
    home.write(tmp_path / HOME / "commands.yaml", "long: [sleep, '3600']\n")
    job = {"name": "long", "every": "10s", "handler": "exec", "payload": {"command": "long"}}
    async with dev.started(tmp_path) as one:
        await one.until_ready()
        made = await one.call("POST", "/v1/jobs", job)
        assert (await one.call("POST", f"/v1/jobs/{made.json['id']}:run")).status == 202
        await until_run(one, made.json["id"], "Running")
        one.process.send_signal(signal.SIGINT)
        await dev.until(one.is_stopping)
        assert one.process.returncode is None
        one.process.send_signal(signal.SIGINT)
        assert await one.ended() == 0


async def test_a_data_directory_has_one_at_a_time(tmp_path: Path) -> None:
    async with dev.started(tmp_path) as one:
        await one.until_ready()
        async with dev.started(tmp_path) as other:
            assert await other.ended() == 1
        assert f"{tmp_path / HOME} is in use by another `clockhand dev` (process {one.process.pid})" in one.log()
        assert await one.probe("/readyz") == 200


@pytest.mark.parametrize("above", [0, 1, 2])
async def test_a_port_that_is_taken_is_named(tmp_path: Path, above: int) -> None:
    port = ports.free_row(3)
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", port + above)
    async with taken, dev.started(tmp_path, port=port) as one:
        assert await one.ended() == 2
        assert f"the port {port + above} of 127.0.0.1 cannot be had" in one.log()


async def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    theirs = tmp_path / "config"
    theirs.write_text("apiVersion: v1\nkind: Config\ncontexts: [{name: production}]\n", encoding="utf-8")
    async with dev.started(tmp_path, "--kubeconfig", str(theirs)) as one:
        assert await one.ended() == 2
        assert "name another file" in one.log()
    assert "production" in theirs.read_text(encoding="utf-8")
    async with dev.started(tmp_path, "--token-file", str(theirs)) as one:
        assert await one.ended() == 2
        assert "holds no token of 8 to 200 characters" in one.log()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs another user for PostgreSQL")
async def test_root_is_told_of_the_user_for_postgres(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    async with dev.started(tmp_path, "--data-dir", str(closed / "data")) as one:
        await one.until_ready()
        assert f"it runs as the system user {passage.SYSTEM_USER}" in one.log()
        assert stat.S_IMODE(closed.stat().st_mode) == 0o700
