"""The handler http against real servers: what it sends, what it makes of answers, and where it never goes."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.support import attempts

from clockhand import errors
from clockhand.worker import guard, outcomes, sdk, webhook

LOCAL = ("127.0.0.0/8", "::1/128")


class Receiver:
    """A server on this machine that keeps what it was asked, and answers as `answer` says."""

    def __init__(self) -> None:
        self.requests: list[tuple[web.Request, bytes]] = []
        self.answer: Callable[[web.Request], web.StreamResponse] = lambda _: web.Response(text="ok")
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request, await request.read()))
        return self.answer(request)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as running:
        yield running


@contextlib.asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """A receiver on all addresses of this machine, as what must not be reached may listen anywhere."""
    running = Receiver()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", running.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, host="0.0.0.0", port=0)
    await site.start()
    running.port = runner.addresses[0][1]
    try:
        yield running
    finally:
        await runner.cleanup()


def allowing(*hosts: str, networks: Sequence[str] = LOCAL, keys: str | None = None, folder: Path) -> webhook.Webhook:
    """The handler, as the files of a pool make it."""
    file = folder / "hosts.yaml"
    file.write_text(json.dumps({"hosts": hosts, "networks": networks}), encoding="utf-8")
    return webhook.Webhook(guard.read(str(file)), keys=keys)


async def call(handler: webhook.Webhook, url: str, **payload: Any) -> Any:
    made = attempts.attempt({"url": url, **payload})
    return await handler(made, attempts.seen(made))


async def test_the_request_says_which_run_it_is_for(receiver: Receiver, tmp_path: Path) -> None:
    handler = allowing(f"http://127.0.0.1:{receiver.port}", folder=tmp_path)
    result = await call(handler, receiver.url, body={"to": "a@example.com"}, headers={"X-Team": "a", "Accept": "*/*"})
    assert result == {"status": 200}
    [(request, body)] = receiver.requests
    assert (request.method, request.path, json.loads(body)) == ("POST", "/hook", {"to": "a@example.com"})
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["X-Team"] == "a"
    assert request.headers["Idempotency-Key"] == request.headers["Clockhand-Run-Id"] == str(attempts.RUN_ID)
    assert request.headers["Clockhand-Scheduled-At"] == "2026-03-01T08:00:00Z"
    assert request.headers["Clockhand-Attempt"] == "2"
    assert "Clockhand-Signature" not in request.headers


async def test_a_text_goes_out_as_it_is(receiver: Receiver, tmp_path: Path) -> None:
    handler = allowing(f"http://127.0.0.1:{receiver.port}", folder=tmp_path)
    await call(handler, receiver.url, method="PUT", body="a=1", headers={"content-type": "text/plain"})
    [(request, body)] = receiver.requests
    assert (request.method, body, request.headers.getall("Content-Type")) == ("PUT", b"a=1", ["text/plain"])


async def test_each_key_signs(receiver: Receiver, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    (keys / "..data").mkdir(parents=True)
    (keys / "2026-02").write_bytes(b"old\n")
    (keys / "2026-03").write_bytes(b"new\n")
    handler = allowing(f"http://127.0.0.1:{receiver.port}", keys=str(keys), folder=tmp_path)
    await call(handler, receiver.url, body=[1])
    [(request, body)] = receiver.requests
    signed = f"{request.headers['Clockhand-Timestamp']}.{attempts.RUN_ID}.".encode() + body
    made = dict(one.split("=") for one in request.headers["Clockhand-Signature"].split(","))
    assert made == {
        name: hmac.new(key, signed, hashlib.sha256).hexdigest()
        for name, key in (("2026-02", b"old"), ("2026-03", b"new"))
    }


@pytest.mark.parametrize(
    ("status", "headers", "fatal", "after"),
    [
        (400, {}, True, None),
        (404, {"Retry-After": "5"}, True, None),
        (410, {}, True, None),
        (408, {}, False, None),
        (425, {}, False, None),
        (429, {"Retry-After": "7"}, False, 7.0),
        (429, {"Retry-After": "never"}, False, None),
        (503, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, False, 0.0),
        (503, {"Retry-After": "99999999999999999999"}, False, 604_800.0),
        (500, {}, False, None),
        (304, {}, True, None),
    ],
)
async def test_the_status_decides(
    receiver: Receiver, tmp_path: Path, status: int, headers: dict[str, str], fatal: bool, after: float | None
) -> None:
    receiver.answer = lambda _: web.Response(status=status, headers=headers)
    handler = allowing(f"http://127.0.0.1:{receiver.port}", folder=tmp_path)
    with pytest.raises(outcomes.Failed) as failed:
        await call(handler, receiver.url)
    failure = failed.value.failure
    assert (failure.error, failure.fatal, failure.retry_after_seconds) == (f"http.{status}", fatal, after)
    assert failure.message == f"127.0.0.1 answered {status}"


@contextlib.asynccontextmanager
async def listening(
    handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[int]:
    """A server that speaks as `handle` says to the one who calls, on a free port; ends when they have parted."""
    parted = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await handle(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        parted.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        await parted.wait()


async def test_silence_ends_with_the_timeout(tmp_path: Path) -> None:
    async def listen(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with listening(listen) as port:
        handler = allowing(f"http://127.0.0.1:{port}", folder=tmp_path)
        with pytest.raises(outcomes.Failed) as failed:
            await call(handler, f"http://127.0.0.1:{port}/?secret=1", timeoutSeconds=0.2)
    assert failed.value.failure.error == "http.Timeout"
    assert "secret" not in str(failed.value)


async def test_an_endless_answer_is_not_read(tmp_path: Path) -> None:
    sent = 0

    async def pour(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
            await writer.drain()
            sent += 65_536

    async with listening(pour) as port:
        handler = allowing(f"http://127.0.0.1:{port}", folder=tmp_path)
        assert await call(handler, f"http://127.0.0.1:{port}/") == {"status": 200}
    assert sent < 16 << 20


@pytest.mark.parametrize(
    "payload", [{}, {"url": 1}, {"url": "http://a/", "methods": "GET"}, {"url": "http://a/", "method": "TRACE"}]
)
async def test_a_payload_that_is_no_request_is_fatal(payload: dict[str, Any], tmp_path: Path) -> None:
    made = attempts.attempt(payload)
    with pytest.raises(sdk.Fail) as failed:
        await allowing("*", folder=tmp_path)(made, attempts.seen(made))
    assert failed.value.error == "http.Payload"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Host", "internal"),
        ("Content-Length", "0"),
        ("transfer-encoding", "chunked"),
        ("Connection", "x"),
        ("Proxy-Authorization", "x"),
        ("Clockhand-Signature", "x"),
        ("Idempotency-Key", "x"),
        ("X\r\nHost", "x"),
        ("X", "a\r\nHost: internal"),
        ("X", "a\0"),
        ("", "x"),
    ],
)
async def test_headers_that_are_not_the_payloads_to_set(
    receiver: Receiver, tmp_path: Path, name: str, value: str
) -> None:
    handler = allowing(f"http://127.0.0.1:{receiver.port}", folder=tmp_path)
    with pytest.raises(sdk.Fail) as failed:
        await call(handler, receiver.url, headers={name: value})
    assert failed.value.error == "http.Payload"
    assert receiver.requests == []


HOSTILE = [
    *(Path(__file__).parents[1] / "support/hostile_urls.txt").read_text(encoding="utf-8").splitlines(),
    "http://127.0.0.1\t:{port}/",
    "http://\n127.0.0.1:{port}/",
    "http://127.0.0.1:{port}/ HTTP/1.1\r\nX: y",
    " http://127.0.0.1:{port}/",
    "http://127.0.0.1:{port}/\0",
    "http://127.0.0.1:{port}/" + "a" * 4_096,
]
NAMES = {
    "internal": ["10.96.0.1"],
    "private.example.com": ["127.0.0.1"],
    "mixed.example.com": ["93.184.215.14", "127.0.0.1"],
    "mapped.example.com": ["::ffff:127.0.0.1"],
    "metadata.google.internal": ["169.254.169.254"],
    "localhost": ["127.0.0.1", "::1"],
    "localhost.localdomain": ["127.0.0.1"],
}


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[list[str]]]:
    """A name server that gives one answer after the other; a literal address, in any spelling, is the system's to read."""
    answers = {name: [addresses] for name, addresses in NAMES.items()}
    real = socket.getaddrinfo

    def look_up(host: Any, port: Any, family: int = 0, kind: int = 0, protocol: int = 0, flags: int = 0) -> Any:
        told = answers.get(str(host).rstrip(".").lower())
        if told is None:
            return real(host, port, family, kind, protocol, flags | socket.AI_NUMERICHOST)
        addresses = told.pop(0) if len(told) > 1 else told[0]
        return [
            (socket.AF_INET6 if ":" in one else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (one, port))
            for one in addresses
        ]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return answers


def test_the_corpus_is_large_enough() -> None:
    assert len(set(HOSTILE)) == len(HOSTILE) >= 60


@pytest.mark.parametrize("template", HOSTILE)
async def test_nothing_of_this_machine_or_network_is_reached(
    receiver: Receiver, names: dict[str, list[list[str]]], tmp_path: Path, template: str
) -> None:
    every = allowing("*", f"*:{receiver.port}", "http://*", f"http://*:{receiver.port}", networks=(), folder=tmp_path)
    with pytest.raises(sdk.Fail) as failed:
        await call(every, template.replace("{port}", str(receiver.port)), timeoutSeconds=2)
    assert failed.value.error == "http.NotAllowed"
    assert receiver.requests == []


async def test_a_name_that_changes_its_mind_is_connected_to_as_it_was_looked_at(
    receiver: Receiver, names: dict[str, list[list[str]]], tmp_path: Path
) -> None:
    names["rebind.example.com"] = [["192.0.2.1"], ["127.0.0.1"]]
    handler = allowing(f"http://rebind.example.com:{receiver.port}", networks=("192.0.2.0/24",), folder=tmp_path)
    with pytest.raises(outcomes.Failed) as failed:
        await call(handler, f"http://rebind.example.com:{receiver.port}/", timeoutSeconds=1)
    assert failed.value.failure.error in ("http.Timeout", "http.Connection")
    assert names["rebind.example.com"] == [["127.0.0.1"]]
    with pytest.raises(sdk.Fail, match="an address that is not public"):
        await call(handler, f"http://rebind.example.com:{receiver.port}/")
    assert receiver.requests == []


def redirecting(status: int, *targets: str) -> Callable[[web.Request], web.StreamResponse]:
    left = list(targets)

    def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers={"Location": left.pop(0)}) if left else web.Response(text="there")

    return answer


@pytest.mark.parametrize(("status", "method", "kept"), [(307, "POST", True), (308, "POST", True), (302, "GET", False)])
async def test_redirects_are_followed_where_the_target_is_listed(
    receiver: Receiver, tmp_path: Path, status: int, method: str, kept: bool
) -> None:
    async with receiving() as other:
        listed = [f"http://127.0.0.1:{receiver.port}", f"http://127.0.0.1:{other.port}"]
        receiver.answer = redirecting(status, "/next", f"http://127.0.0.1:{other.port}/there")
        handler = allowing(*listed, folder=tmp_path)
        headers = {"Authorization": "Bearer mine", "X-Team": "a"}
        assert await call(handler, receiver.url, body=1, headers=headers) == {"status": 200}
        assert [request.headers.get("Authorization") for request, _ in receiver.requests] == ["Bearer mine"] * 2
        [(request, body)] = other.requests
    assert (request.method, body == b"1", request.headers["X-Team"]) == (method, kept, "a")
    assert "Authorization" not in request.headers


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.1:{other}/",
        "//127.0.0.1:{other}/",
        "http://localhost:{other}/",
        "https://127.0.0.1:{port}/",
        "http://user@127.0.0.1:{port}/",
        "http://169.254.169.254/latest/",
        "file:///etc/passwd",
        "ftp://127.0.0.1:{port}/",
        "http://[::1]:{other}/",
        "http://0x7f.1:{other}/",
        "http://internal.example.com/",
        "http://[",
    ],
)
async def test_redirects_lead_nowhere_else(receiver: Receiver, tmp_path: Path, target: str) -> None:
    async with receiving() as other:
        receiver.answer = redirecting(307, target.format(port=receiver.port, other=other.port))
        handler = allowing(f"http://127.0.0.1:{receiver.port}", folder=tmp_path)
        with pytest.raises(sdk.Fail) as failed:
            await call(handler, receiver.url)
        assert failed.value.error == "http.NotAllowed"
        assert (len(receiver.requests), other.requests) == (1, [])


async def test_redirects_are_counted(receiver: Receiver, tmp_path: Path) -> None:
    receiver.answer = lambda _: web.Response(status=307, headers={"Location": "/again"})
    handler = allowing(f"http://127.0.0.1:{receiver.port}", folder=tmp_path)
    with pytest.raises(sdk.Fail, match="more than 5 redirects"):
        await call(handler, receiver.url)
    assert len(receiver.requests) == 6


async def test_no_proxy_is_taken_from_the_environment(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with receiving() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        await call(allowing(f"http://127.0.0.1:{receiver.port}", folder=tmp_path), receiver.url)
        assert (len(receiver.requests), proxy.requests) == (1, [])


@pytest.mark.parametrize(
    ("entry", "url", "allowed"),
    [
        ("hooks.example.com", "https://hooks.example.com/a", True),
        ("hooks.example.com", "https://HOOKS.example.com:443/a", True),
        ("hooks.example.com", "http://hooks.example.com/", False),
        ("hooks.example.com", "https://hooks.example.com:8443/", False),
        ("hooks.example.com", "https://example.com/", False),
        ("hooks.example.com", "https://a.hooks.example.com/", False),
        ("hooks.example.com", "https://hooks.example.com.evil.net/", False),
        ("*.example.com", "https://a.b.example.com/", True),
        ("*.example.com", "https://example.com/", False),
        ("*.example.com", "https://evilexample.com/", False),
        ("https://hooks.example.com:8443", "https://hooks.example.com:8443/", True),
        ("http://hooks.example.com", "http://hooks.example.com/", True),
        ("http://hooks.example.com", "https://hooks.example.com/", False),
        ("bücher.example.com", "https://xn--bcher-kva.example.com/", True),
        ("bücher.example.com", "https://bücher.example.com/", True),
        ("93.184.215.14", "https://93.184.215.14/", True),
        ("[2606:2800:21f::1]", "https://[2606:2800:21f::1]/", True),
    ],
)
def test_hosts_are_listed_by_scheme_name_and_port(entry: str, url: str, allowed: bool, tmp_path: Path) -> None:
    file = tmp_path / "hosts.yaml"
    file.write_text(json.dumps({"hosts": [entry]}), encoding="utf-8")
    if allowed:
        assert guard.read(str(file)).url(url).scheme in url
    else:
        with pytest.raises(errors.Refused, match="is not among the hosts of this pool"):
            guard.read(str(file)).url(url)


@pytest.mark.parametrize(
    "text",
    [
        "hosts: 1",
        "- a",
        "host: [a]",
        "hosts: ['https://a/b']",
        "hosts: ['a@b']",
        "networks: [10.0.0.1/8]",
        "{",
        "hosts: ['a:99999x']",
    ],
)
def test_a_wrong_file_of_hosts_is_said_so(text: str, tmp_path: Path) -> None:
    file = tmp_path / "hosts.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(errors.InvalidInput, match=r"CLOCKHAND_HTTP_HOSTS: .* is no list of hosts"):
        guard.read(str(file))
