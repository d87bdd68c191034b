"""Answers that a healthy API server never gives, over real HTTP: overload, broken connections, odd streams."""

from __future__ import annotations

import asyncio
import collections.abc
import contextlib
import json
import pathlib

import pytest
from aiohttp import web

from clockhand import errors
from clockhand.kube import client as clients
from clockhand.kube import connection as connections
from clockhand.kube import failures, flow, pods, streams
from clockhand.kube import watch as watches

PODS = "/api/v1/namespaces/a/pods"
SETTINGS = flow.FlowSettings(initial_in_flight=8)
Handler = collections.abc.Callable[[web.Request], collections.abc.Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def serving(
    handler: Handler, bearer: connections.Bearer | None = None
) -> collections.abc.AsyncIterator[clients.Client]:
    """A client of a server that answers everything with `handler`."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        connection = connections.Connection(f"http://127.0.0.1:{runner.addresses[0][1]}", bearer=bearer)
        async with clients.connect(connection, SETTINGS) as client:
            yield client
    finally:
        await runner.cleanup()


def saying(status: int, **headers: str) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        body = {"kind": "Status", "code": status, "message": "no", "details": {"name": "p"}}
        return web.json_response(body, status=status, headers={k.replace("_", "-"): v for k, v in headers.items()})

    return handler


def streaming(*chunks: bytes) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        return response

    return handler


def line(kind: str, name: str, version: int, filling: str = "") -> bytes:
    metadata = {"name": name, "namespace": "a", "resourceVersion": str(version), "annotations": {"x": filling}}
    return json.dumps({"type": kind, "object": {"metadata": metadata}}).encode() + b"\n"


async def watch(client: clients.Client) -> list[tuple[str, str]]:
    events = pods.Pods(client).watch("1", selector="a=b")
    return [(event.change.value, event.resource_version) async for event in events]


async def test_retry_after_is_obeyed() -> None:
    async with serving(saying(429, Retry_After="30")) as client:
        with pytest.raises(errors.Unavailable) as busy:
            await client.write("POST", PODS, b"{}")
        assert busy.value.retry_after == 30
        assert client.capacity() == 0
        assert client.gate.flow.delay(client.gate.flow.now + 20) > 0
        with pytest.raises(errors.Unavailable):
            await client.get(PODS)


async def test_an_overloaded_server_halves_the_flow() -> None:
    async with serving(saying(504)) as client:
        with pytest.raises(errors.Uncertain):
            await client.write("POST", PODS, b"{}")
        assert client.capacity() == SETTINGS.initial_in_flight // 2
        with pytest.raises(errors.Unavailable):
            await client.get(PODS)


async def test_a_refusal_leaves_the_flow_alone() -> None:
    async with serving(saying(403)) as client:
        with pytest.raises(errors.Refused):
            await client.write("POST", PODS, b"{}")
        assert client.capacity() == SETTINGS.initial_in_flight


async def test_a_connection_that_breaks_after_a_write_leaves_it_open() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with serving(handler) as client:
        with pytest.raises(errors.Uncertain):
            await client.write("POST", PODS, b"{}")
        with pytest.raises(errors.Unavailable):
            await client.get(PODS)


async def test_a_write_that_is_no_longer_wanted_is_not_sent() -> None:
    seen: list[str] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append(request.method)
        return web.json_response({})

    async with serving(handler) as client:
        with pytest.raises(errors.Stale):
            await client.write("POST", PODS, b"{}", still=lambda: False)
        assert client.gate.flow.in_flight == 0
    assert seen == []


async def test_lines_may_be_cut_anywhere_and_be_of_any_length() -> None:
    text = line("ADDED", "p", 5, "x" * 300_000) + line("MODIFIED", "p", 6, "é☃") + line("BOOKMARK", "", 9)
    chunks = [text[at : at + 70_001] for at in range(0, len(text), 70_001)]
    async with serving(streaming(*chunks[:-1], *(bytes([byte]) for byte in chunks[-1]))) as client:
        assert await watch(client) == [("ADDED", "5"), ("MODIFIED", "6"), ("BOOKMARK", "9")]


async def test_an_event_that_was_cut_off_is_no_event() -> None:
    async with serving(streaming(line("ADDED", "p", 5), line("MODIFIED", "p", 6)[:40])) as client:
        assert await watch(client) == [("ADDED", "5")]


@pytest.mark.parametrize(("code", "error"), [(410, failures.Expired), (500, errors.Unavailable)])
async def test_an_error_inside_a_watch_is_raised(code: int, error: type[Exception]) -> None:
    status = {"kind": "Status", "metadata": {}, "code": code, "message": "too old"}
    failure = json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"
    async with serving(streaming(line("ADDED", "p", 5), failure)) as client:
        with pytest.raises(error):
            await watch(client)


async def test_silence_is_a_stall_and_an_interruption_is_not() -> None:
    over = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(line("ADDED", "p", 5))
        await over.wait()
        return response

    async with serving(handler) as client:
        events = pods.Pods(client).watch("1", selector="a=b", patience=streams.Patience(0.2))
        assert (await anext(events)).resource_version == "5"
        with pytest.raises(failures.Stalled):
            await anext(events)
        patience = streams.Patience(60)
        events = pods.Pods(client).watch("1", selector="a=b", patience=patience)
        await anext(events)
        patience.interrupt()
        with pytest.raises(streams.Interrupted):
            await anext(events)
        over.set()


async def test_a_list_that_is_wanted_and_refused_is_not_asked_for_at_once() -> None:
    asked = asyncio.Queue[str]()

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.put_nowait(request.path)
        return await saying(403)(request)

    async with serving(handler) as client:
        settings = watches.WatchSettings(first_backoff_seconds=3600, max_backoff_seconds=3600)
        one = watches.PodWatch(pods.Pods(client), selector="a=b", settings=settings)
        one.resync()
        following = asyncio.create_task(anext(one.stream()))
        await asyncio.wait_for(asked.get(), 30)
        await asyncio.wait({following}, timeout=0.2)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert asked.empty()
    assert one.last_error


async def test_of_a_long_log_the_end_is_kept() -> None:
    lines = [f"line {number} \x00\udcff".encode("utf-8", "surrogateescape") for number in range(40_000)]
    async with serving(streaming(b"\n".join(lines))) as client:
        text = await pods.Pods(client).log_tail("a", "p", "main")
    assert 60_000 < len(text.encode()) <= pods.LOG_LIMIT_BYTES
    assert text.startswith("line ")
    assert text.endswith("line 39999 \ufffd")
    assert "\x00" not in text


async def test_a_container_that_never_started_has_no_log() -> None:
    async with serving(saying(400)) as client:
        assert await pods.Pods(client).log_tail("a", "p", "main") == ""


async def test_a_rotated_token_is_read_when_it_is_due_or_refused(tmp_path: pathlib.Path) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    now = 0.0
    seen: list[str] = []
    accepted = {"Bearer one", "Bearer two"}

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers["Authorization"])
        return web.json_response({}, status=200 if seen[-1] in accepted else 401)

    async with serving(handler, connections.FileBearer(token, clock=lambda: now)) as client:
        await client.get(PODS)
        token.write_text("two\n")
        now = 59.0
        await client.get(PODS)
        now = 60.0
        await client.get(PODS)
        accepted.clear()
        accepted.add("Bearer three")
        token.write_text("three\n")
        with pytest.raises(errors.Refused):
            await client.get(PODS)
        await client.get(PODS)
    assert seen == ["Bearer one", "Bearer one", "Bearer two", "Bearer two", "Bearer three"]


async def test_an_empty_token_is_no_token(tmp_path: pathlib.Path) -> None:
    (tmp_path / "token").write_text("")
    with pytest.raises(errors.Unavailable):
        await connections.FileBearer(tmp_path / "token").header()
    with pytest.raises(errors.Unavailable):
        connections.in_cluster({"KUBERNETES_SERVICE_HOST": "::1", "KUBERNETES_SERVICE_PORT": "443"}, directory=tmp_path)


async def test_where_the_server_is(tmp_path: pathlib.Path) -> None:
    (tmp_path / "token").write_text("x")
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    assert connections.in_cluster(environment, directory=tmp_path).server == "https://[fd00::1]:443"
    with pytest.raises(errors.InvalidInput):
        connections.in_cluster({}, directory=tmp_path)
    with pytest.raises(errors.InvalidInput):
        await connections.find(str(tmp_path / "none"), {})
