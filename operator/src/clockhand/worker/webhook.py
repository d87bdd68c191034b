"""The handler `http`: one request an attempt, signed, to hosts that the pool's owner listed.

Its payload is the request: `{"url": ..., "method": "POST", "headers": {...}, "body": ..., "timeoutSeconds": 10}`. The
status decides. Nothing of the answer's body is read: whoever writes payloads must not read what this worker can reach.
"""

from __future__ import annotations

import asyncio
import email.utils
import hashlib
import hmac
import re
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import aiohttp
import msgspec
import yarl

from clockhand import errors, tracing
from clockhand.domain import instants, protocol
from clockhand.worker import guard, outcomes, sdk
from clockhand.worker.attempts import Attempt

read = guard.read

_REDIRECTS = 5
_LONGEST_RETRY = 604_800
_RETRIED = frozenset({408, 425, 429})
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_KEY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-][A-Za-z0-9._-]*|[A-Za-z0-9]")
# the connection's own, and what is said of the run
_OURS = re.compile(
    r"host|content-length|transfer-encoding|connection|keep-alive|te|trailer|upgrade|expect|idempotency-key"
    r"|proxy-.*|clockhand-.*"
)
_NOT_FOR_OTHERS = frozenset({"authorization", "cookie"})


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What a payload asks for. A body that is a string goes out as it is, any other one as JSON."""

    url: str
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    headers: Mapping[str, str] = {}
    body: msgspec.Raw = msgspec.Raw()
    timeout_seconds: Annotated[float, msgspec.Meta(gt=0, le=300)] = 10.0


class Webhook:
    """Calls of listed hosts."""

    def __init__(self, allowed: guard.Guard, *, keys: str | None) -> None:
        self._guard = allowed
        self._keys = None if keys is None else Path(keys)

    async def __call__(self, attempt: Attempt, run: sdk.Run) -> Mapping[str, int]:
        """Sends the request of the payload; its status is the result."""
        request = _request(attempt.run)
        try:
            async with asyncio.timeout(request.timeout_seconds):
                return {"status": await self._send(request, attempt.run)}
        except errors.Refused as error:
            raise sdk.Fail(str(error), error="http.NotAllowed") from error
        except TimeoutError as error:
            raise _failed("http.Timeout", f"no answer within {request.timeout_seconds:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise _failed("http.Connection", f"{type(error).__name__}: the request could not be sent") from error

    async def _send(self, request: Request, run: protocol.Run) -> int:
        url, body = self._guard.url(request.url), _body(request)
        method: str = request.method
        headers = dict(request.headers)
        if body and not any(name.lower() == "content-type" for name in headers):
            headers["Content-Type"] = "application/json"
        async with aiohttp.ClientSession(
            connector=guard.connector(self._guard), cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
        ) as session:
            for _ in range(_REDIRECTS + 1):
                signed = {**headers, **_told(run), **_traced(run), **self._signature(run, body)}
                async with session.request(method, url, headers=signed, data=body, allow_redirects=False) as response:
                    target = _target(response)
                    if target is None:
                        return _settled(url, response)
                    method, body = _next_method(method, response.status, body)
                there = self._guard.url(str(url.join(target)))
                if there.origin() != url.origin():
                    headers = {name: value for name, value in headers.items() if name.lower() not in _NOT_FOR_OTHERS}
                url = there
        raise sdk.Fail(f"more than {_REDIRECTS} redirects", error="http.Redirects")

    def _signature(self, run: protocol.Run, body: bytes) -> Mapping[str, str]:
        """One signature for each key there is, so that keys can be changed without a gap."""
        now = int(time.time())  # by the wall clock: the receiver compares it with its own
        signed = f"{now}.{run.run_id}.".encode() + body
        made = [f"{name}={hmac.new(key, signed, hashlib.sha256).hexdigest()}" for name, key in self._secrets()]
        return {"Clockhand-Timestamp": str(now), "Clockhand-Signature": ",".join(made)} if made else {}

    def _secrets(self) -> Iterator[tuple[str, bytes]]:
        if self._keys is None:
            return
        try:
            for path in sorted(self._keys.iterdir()):
                if _KEY_ID.fullmatch(path.name) and path.is_file():
                    yield path.name, path.read_bytes().strip()
        except OSError as error:
            raise _failed("http.Keys", f"the keys cannot be read: {error.strerror}") from error


def _traced(run: protocol.Run) -> Mapping[str, str]:
    trace = tracing.current() or run.traceparent
    return {} if trace is None else {"traceparent": trace}


def _request(run: protocol.Run) -> Request:
    try:
        request = msgspec.json.decode(run.payload, type=Request)
    except msgspec.DecodeError as error:
        raise sdk.Fail(f"the payload is no request: {error}", error="http.Payload") from error
    for name, value in request.headers.items():
        if not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value) or _OURS.fullmatch(name.lower()):
            raise sdk.Fail(f"the header {name!r} cannot be set", error="http.Payload")
    return request


def _body(request: Request) -> bytes:
    text = bytes(request.body)
    return msgspec.json.decode(text, type=str).encode() if text.startswith(b'"') else text


def _told(run: protocol.Run) -> Mapping[str, str]:
    return {
        "User-Agent": "clockhand",
        "Idempotency-Key": str(run.run_id),
        "Clockhand-Run-Id": str(run.run_id),
        "Clockhand-Attempt": str(run.attempt),
        "Clockhand-Scheduled-At": instants.rfc3339_ms(run.scheduled_at),
    }


def _target(response: aiohttp.ClientResponse) -> yarl.URL | None:
    location = response.headers.get("Location")
    if response.status not in (301, 302, 303, 307, 308) or location is None:
        return None
    try:
        return yarl.URL(location)
    except ValueError as error:
        raise errors.Refused("the redirect cannot be read") from error


def _next_method(method: str, status: int, body: bytes) -> tuple[str, bytes]:
    """As browsers do it: 307 and 308 repeat the request, the others look."""
    return (method, body) if status in (307, 308) or method == "HEAD" else ("GET", b"")


def _settled(url: yarl.URL, response: aiohttp.ClientResponse) -> int:
    status = response.status
    if 200 <= status < 300:
        return status
    passing = status >= 500 or status in _RETRIED
    raise _failed(
        f"http.{status}",
        f"{url.host} answered {status}",
        fatal=not passing,
        retry_after=_seconds(response.headers.get("Retry-After")) if passing else None,
    )


def _seconds(text: str | None) -> float | None:
    """What `Retry-After` says: seconds, or a date."""
    if text is None:
        return None
    if text.isascii() and text.isdigit():
        return float(min(int(text[:9]), _LONGEST_RETRY))
    try:
        wait = (email.utils.parsedate_to_datetime(text).astimezone(UTC) - datetime.now(UTC)).total_seconds()
    except ValueError:
        return None
    return min(max(wait, 0.0), _LONGEST_RETRY)


def _failed(error: str, message: str, *, fatal: bool = False, retry_after: float | None = None) -> outcomes.Failed:
    return outcomes.Failed(protocol.Failure(error=error, message=message, fatal=fatal, retry_after_seconds=retry_after))
