"""Is a container ready: asked as its pod says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import aiohttp

from clockhand import errors
from clockhand.standalone.nodes import manifest, rendering

_STARTING_SECONDS = 0.5

Run = Callable[[tuple[str, ...]], Awaitable[bool]]


async def follow(
    probe: manifest.Probe,
    container: manifest.Container,
    *,
    ports: Mapping[int, int],
    run: Run,
    told: Callable[[bool], Awaitable[None]],
) -> None:
    """Asks again and again, until cancelled; `told` hears each time that the answer becomes another one."""
    await asyncio.sleep(probe.initial_delay_seconds)
    ready = False
    good = bad = 0
    while True:
        passed = await passes(probe, container, ports=ports, run=run)
        good, bad = (good + 1, 0) if passed else (0, bad + 1)
        now_ready = good >= probe.success_threshold or (ready and bad < probe.failure_threshold)
        if now_ready != ready:
            ready = now_ready
            await told(ready)
        # one that is starting is asked more often, so that nobody waits for it longer than it takes
        await asyncio.sleep(probe.period_seconds if ready else min(_STARTING_SECONDS, probe.period_seconds))


async def passes(probe: manifest.Probe, container: manifest.Container, *, ports: Mapping[int, int], run: Run) -> bool:
    """One try. `ports` says which port of this machine stands for which of the container; `run` runs a command."""
    try:
        async with asyncio.timeout(probe.timeout_seconds):
            if probe.http_get is not None:
                return await _answers(probe.http_get, _port(probe.http_get.port, container, ports))
            if probe.tcp_socket is not None:
                return await _listens(_port(probe.tcp_socket.port, container, ports))
            return probe.exec is None or await run(probe.exec.command)
    except (OSError, TimeoutError, aiohttp.ClientError, errors.InvalidInput):
        return False


def _port(named: int | str, container: manifest.Container, ports: Mapping[int, int]) -> int:
    found = next((one.container_port for one in container.ports if one.name == named), named)
    number = int(found) if str(found).isdecimal() else 0
    return ports.get(number, number)


async def _answers(wanted: manifest.HttpGet, port: int) -> bool:
    url = f"{wanted.scheme.lower()}://{rendering.ADDRESS}:{port}/{wanted.path.lstrip('/')}"
    async with aiohttp.ClientSession() as session, session.get(url, ssl=False, allow_redirects=False) as answer:
        return 200 <= answer.status < 400


async def _listens(port: int) -> bool:
    _, writer = await asyncio.open_connection(rendering.ADDRESS, port)
    writer.close()
    return True
