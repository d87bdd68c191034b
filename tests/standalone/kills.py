"""kill -9 of the whole of `clockhand dev`, again and again while jobs are made and run: `python -m tests.standalone.kills`.

It is hit at any moment, also while it starts. Afterwards every job that was accepted must have its one run, and every slot
of the recurring jobs must be there, once.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import click
from tests.support import dev, ports
from tests.support.kubectl import Kubectl

from clockhand.standalone import home as homes

RECURRING = 5
LEAST = 10
"""Jobs that are accepted before it is hit, each second time."""
_STEP = timedelta(seconds=10)
_LONGEST_LIFE = 5.0
_DATA = ".local/share/clockhand"
_SLOW = "pause: [sleep, '4']\n"
"""A command whose runs are under way when the blow comes."""
_MAKERS = 2
_LOG = 10_000
"""Of what it wrote, shown where something is wrong."""
_SETTLED_SECONDS = 240.0
_OVER = frozenset({"Succeeded", "Dead", "Unknown", "Cancelled", "Skipped"})


_WORK: Sequence[dict[str, Any]] = (*[{"handler": "echo"}] * 9, {"handler": "exec", "payload": {"command": "pause"}})


_PODS = """
apiVersion: clockhand.dev/v1alpha1
kind: ScheduledJob
metadata: {name: pods}
spec:
  every: 10s
  catchUp: {policy: All, limit: 1000}
  retry: {maxAttempts: 100, maxDisruptions: 100, backoff: {initialSeconds: 1}}
  template: {spec: {containers: [{name: pause, image: busybox, command: [sleep, "2"]}]}}
"""
_SUSPEND = '{"spec": {"suspend": true}}'


@dataclass
class Checked:
    """What was accepted, and what is wrong with what became of it."""

    kills: int = 0
    jobs: int = 0
    slots: int = 0
    again: int = 0
    """Runs that took more than one attempt."""
    wrong: list[str] = field(default_factory=list)


async def run(folder: Path, *, times: int) -> Checked:
    """Kills it so many times under load, starts it once more, and checks everything."""
    port = ports.free_row(3)
    homes.write(folder / _DATA / "commands.yaml", _SLOW)
    checked = Checked()
    accepted: list[str] = []
    async with dev.started(folder, port=port) as one:
        await one.until_ready()
        recurring = [await _recurring(one, number) for number in range(RECURRING)]
        kubectl = Kubectl(folder / _DATA / "kubeconfig")
        await asyncio.to_thread(kubectl.run, "apply", "-f", "-", stdin=_PODS)
        one_of_pods = await _mirrored(one)
    for number in range(times):
        async with dev.started(folder, port=port) as one, _load(one, accepted):
            if number % 2:  # else it is hit while it starts, most often
                await _until_taken(accepted, len(accepted) + LEAST)
            await asyncio.sleep(random.uniform(0.0, _LONGEST_LIFE))
            one.kill_all()
            await one.ended()
            checked.kills += 1
    async with dev.started(folder, port=port) as one:
        await one.until_ready()
        for job in recurring:
            assert (await one.call("POST", f"/v1/jobs/{job}:pause")).status == 200
        await asyncio.to_thread(kubectl.run, "patch", "sjob", "pods", "--type=merge", "-p", _SUSPEND)
        paused = datetime.now(UTC)
        checked.jobs = len(accepted)
        until = time.monotonic() + _SETTLED_SECONDS
        for job in accepted:
            checked.wrong += _of_one_shot(job, await _runs(one, job, until), checked)
        for job in recurring:
            checked.wrong += _of_recurring(job, await _runs(one, job, until), checked, paused)
        with_pods = await _runs(one, one_of_pods, until, "&namespace=default", token_file=one.person)
        checked.wrong += _of_recurring("pods", with_pods, checked, paused)
        if checked.wrong:
            checked.wrong.append(one.log()[-_LOG:])
    return checked


async def _recurring(one: dev.Dev, number: int) -> str:
    every = {
        "every": "10s",
        "startAt": (datetime.now(UTC) + timedelta(seconds=1 + number)).isoformat(timespec="milliseconds"),
    }
    catch_up = {"catchUp": {"policy": "All", "limit": 1000}}
    made = await one.call("POST", "/v1/jobs", {"name": f"again-{number}", "handler": "echo", **every, **catch_up})
    assert made.status == 201, made.json
    return str(made.json["id"])


async def _mirrored(one: dev.Dev) -> str:
    """The id of the job that kubectl made, once it is read from its object: from then on its slots count."""
    found: list[str] = []

    async def is_there() -> bool:
        answer = await one.call("GET", "/v1/jobs?namespace=default", token_file=one.person)
        found.extend(each["id"] for each in answer.json["items"])
        return bool(found)

    await dev.until(is_there)
    return found[0]


@contextlib.asynccontextmanager
async def _load(one: dev.Dev, accepted: list[str]) -> AsyncIterator[None]:
    """Jobs are made for the length of the block, whenever somebody is there to take them."""
    makers = [asyncio.create_task(_make_jobs(one, accepted)) for _ in range(_MAKERS)]
    try:
        yield
    finally:
        for maker in makers:
            maker.cancel()
        await asyncio.wait(makers)


async def _until_taken(accepted: list[str], count: int) -> None:
    """Waits until so many jobs were accepted."""

    async def are_taken() -> bool:
        return len(accepted) >= count

    await dev.until(are_taken)


async def _make_jobs(one: dev.Dev, accepted: list[str]) -> None:
    while True:
        at = datetime.now(UTC) + timedelta(seconds=random.uniform(0.1, 3.0))
        document = {
            "name": f"once-{uuid.uuid4().hex[:12]}",
            "at": at.isoformat(timespec="milliseconds"),
            "retry": {"maxAttempts": 100},
            **random.choice(_WORK),
        }
        with contextlib.suppress(aiohttp.ClientError, OSError):
            made = await one.call("POST", "/v1/jobs", document)
            if made.status == 201:
                accepted.append(str(made.json["id"]))
        await asyncio.sleep(0.05)


async def _runs(
    one: dev.Dev, job: str, until: float, namespace: str = "", *, token_file: Path | None = None
) -> list[dict[str, Any]]:
    """All runs of a job, once all of them are over or it is `until`."""
    while True:
        found: list[dict[str, Any]] = []
        cursor = ""
        while True:
            path = f"/v1/jobs/{job}/runs?limit=1000{namespace}{cursor}"
            page = await one.call("GET", path, token_file=token_file)
            if page.status != 200:
                return found
            found += page.json["items"]
            if "next" not in page.json:
                break
            cursor = f"&cursor={page.json['next']}"
        if (found and all(each["state"] in _OVER for each in found)) or time.monotonic() > until:
            return found
        await asyncio.sleep(0.5)


def _of_one_shot(job: str, runs: list[dict[str, Any]], checked: Checked) -> list[str]:
    checked.again += sum(each["attempt"] > 1 for each in runs)
    states = [each["state"] for each in runs]
    return [] if states == ["Succeeded"] else [f"the job {job} has the runs {states}: {runs}"]


def _of_recurring(job: str, runs: list[dict[str, Any]], checked: Checked, paused: datetime) -> list[str]:
    if not runs:
        return [f"the job {job} has no runs"]
    slots = Counter(datetime.fromisoformat(each["scheduledAt"]) for each in runs)
    first, last = min(slots), max(slots)
    expected = {first + _STEP * number for number in range((last - first) // _STEP + 1)}
    checked.slots += len(slots)
    checked.again += sum(each["attempt"] > 1 for each in runs)
    wrong = [f"the slot {slot} of {job} is there {count} times" for slot, count in slots.items() if count > 1]
    wrong += [f"the slot {slot} of {job} is lost" for slot in sorted(expected - set(slots))]
    wrong += [f"{slot} is no slot of {job}" for slot in sorted(set(slots) - expected)]
    wrong += [
        f"the slot {each['scheduledAt']} of {job} is {each['state']}" for each in runs if each["state"] != "Succeeded"
    ]
    if last + _STEP < paused - timedelta(seconds=5):
        wrong.append(f"the slots of {job} end at {last}, and it was paused at {paused}")
    return wrong


@click.command()
@click.option("--times", default=20, show_default=True, help="How often it is killed.")
def main(times: int) -> None:
    """Kill `clockhand dev` under load, and check that nothing was lost and nothing doubled."""
    with tempfile.TemporaryDirectory(prefix="clockhand-kills-") as folder:
        checked = asyncio.run(run(Path(folder), times=times))
    for sentence in checked.wrong:
        click.echo(sentence)
    click.echo(
        f"{checked.kills} kills, {checked.jobs} jobs accepted, {checked.slots} slots of recurring jobs, "
        f"{checked.again} runs taken up again, {len(checked.wrong)} wrong"
    )
    sys.exit(1 if checked.wrong else 0)


if __name__ == "__main__":
    main()
