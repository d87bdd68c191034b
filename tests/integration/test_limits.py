"""The file of limits on disk, and counting against it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import REGISTRY
from tests.support import jobs, statements

from clockhand import errors
from clockhand.domain import limits as domain
from clockhand.domain import states
from clockhand.domain.states import RunState as S
from clockhand.engine import limits
from clockhand.store import database

TWO = domain.parse("""
owners: {k8s/team-a: {maxConcurrentRuns: 2}, k8s/none: {maxConcurrentRuns: 0}}
pools: {k8s/team-a/mailers: {maxConcurrentRuns: 3}}
groups: {exports: {maxConcurrentRuns: 4}, anything: {}}
""")


def stale() -> float | None:
    return REGISTRY.get_sample_value("clockhand_limits_stale")


async def test_a_changed_file_is_read_again_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "limits.yaml"
    path.write_text("groups: {exports: {maxConcurrentRuns: 3}}")
    file = limits.LimitsFile(str(path))
    assert file.current.group_cap("exports") == 3

    path.write_text("groups: {exports: {maxConcurrentRuns: 12}}")
    assert await file.step() > 0
    assert (file.current.group_cap("exports"), stale()) == (12, 0)

    path.write_text("groups: {exports: {maxConcurrentRun: 1}}")
    await file.step()
    assert (file.current.group_cap("exports"), stale()) == (12, 1)

    path.unlink()
    await file.step()
    assert (file.current.group_cap("exports"), stale()) == (12, 1)

    path.write_text("groups: {exports: {maxConcurrentRuns: 5}}")
    await file.step()
    assert (file.current.group_cap("exports"), stale()) == (5, 0)


async def test_a_mounted_file_is_replaced_behind_a_link(tmp_path: Path) -> None:
    for name, cap in (("first", 3), ("second", 4)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "limits.yaml").write_text(f"groups: {{exports: {{maxConcurrentRuns: {cap}}}}}")
        os.utime(tmp_path / name / "limits.yaml", (1, 1))  # same time, same size
    (tmp_path / "mounted").symlink_to("first")
    file = limits.LimitsFile(str(tmp_path / "mounted" / "limits.yaml"))
    (tmp_path / "new").symlink_to("second")
    (tmp_path / "new").rename(tmp_path / "mounted")
    await file.step()
    assert file.current.group_cap("exports") == 4


def test_without_a_file_there_are_no_limits() -> None:
    assert limits.LimitsFile(None).current == domain.NONE


@pytest.mark.parametrize("content", [None, b"\xff", b"owners: 5"])
def test_a_file_that_cannot_be_used_at_the_start_is_an_error(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "limits.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(errors.InvalidInput, match=str(path)):
        limits.LimitsFile(str(path))


async def test_open_attempts_and_places_are_counted_up_to_the_cap(db: database.Database) -> None:
    async with db.transaction() as connection:
        pod = await jobs.make_jobs(connection, len(states.LIVE), job=jobs.plan(concurrency_group="exports"), name="pod")
        pooled = await jobs.make_jobs(connection, 2, job=jobs.pooled(), name="pooled")
        for job, state in zip(pod, states.LIVE, strict=True):
            await jobs.make_run(connection, job, state, concurrency_group="exports")
        await jobs.make_run(connection, pooled[0], S.CLAIMED)
        await jobs.make_run(connection, pooled[1], S.QUEUED)
    async with db.transaction() as connection:
        room = await limits.room(
            connection,
            TWO,
            owners=["k8s/team-a", "k8s/none", "k8s/free"],
            pools=["k8s/team-a/mailers", "k8s/a/free"],
            groups=["exports", "anything", "unknown"],
        )
    # of the owner three pods and one worker's attempt are open: two fill it
    assert (room.of_owner("k8s/team-a"), room.of_owner("k8s/none"), room.of_owner("k8s/free")) == (0, 0, None)
    assert (room.of_pool("k8s/team-a/mailers"), room.of_pool("k8s/a/free")) == (2, None)
    # Queued, Claimed, Running, Stopping have places; Blocked and Retrying have none
    assert room.groups == {"exports": 0, "unknown": 0}


async def test_what_has_no_limit_is_never_counted(db: database.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    names = statements.named(monkeypatch)
    async with db.transaction() as connection:
        found = await limits.room(connection, TWO, owners=["k8s/free"], pools=["k8s/a/free"], groups=["anything"])
    assert (found, names) == (limits.Room(), [])


async def test_who_waited_for_the_lock_sees_what_was_taken_before(db: database.Database) -> None:
    async with db.transaction() as connection:
        job = await jobs.make_job(connection)
        await limits.room(connection, TWO, owners=["k8s/team-a"])  # the row of the key is there now

    async def look() -> int | None:
        async with db.transaction() as connection:
            await connection.execute("SELECT 1")
            return (await limits.room(connection, TWO, owners=["k8s/team-a"])).of_owner("k8s/team-a")

    async with db.transaction() as connection:
        assert (await limits.room(connection, TWO, owners=["k8s/team-a"])).of_owner("k8s/team-a") == 2
        second = asyncio.create_task(look())
        await statements.until_somebody_waits(db)
        await jobs.make_run(connection, job, S.CLAIMED)
    assert await second == 1


@pytest.mark.parametrize("command", [["operator"], ["api"]])
def test_a_process_whose_limits_cannot_be_read_does_not_start(
    database_url: str, tmp_path: Path, command: list[str]
) -> None:
    path = tmp_path / "limits.yaml"
    path.write_text("groups: {exports: {maxConcurrentRun: 1}}")
    environment = {**os.environ, "CLOCKHAND_DATABASE_URL": database_url, "CLOCKHAND_LIMITS": str(path)}
    ended = subprocess.run(
        [sys.executable, "-m", "clockhand", *command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr == (
        f'clockhand: {path}: groups["exports"].maxConcurrentRun: is not a known field: did you mean maxConcurrentRuns?\n'
    )
