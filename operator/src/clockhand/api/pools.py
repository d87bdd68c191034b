"""`/v1/pools/{ns}/{pool}/claim`, `heartbeat`, `report`, `start`: HTTP around the use cases of the engine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from clockhand import metrics
from clockhand.api import auth, problems
from clockhand.domain import instants, protocol
from clockhand.engine.pools import service

MOST_WAITING = 5_000
"""Claims that wait in this process: each keeps a connection open."""
_PATH = re.compile(
    r"/v1/pools/(?P<place>[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)/(?P<pool>[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)"
    r"/(?P<call>claim|heartbeat|report|start)",
    re.ASCII,
)
_MAX_MILLISECONDS = (datetime.max.replace(tzinfo=UTC) - instants.EPOCH) // instants.MILLISECOND
_TIME_SHIFT = 80
Request = protocol.ClaimRequest | protocol.HeartbeatRequest | protocol.ReportRequest | protocol.StartRequest
Answer = protocol.ClaimAnswer | protocol.HeartbeatAnswer | protocol.ReportAnswer | protocol.StartAnswer
_DECODERS: Mapping[str, msgspec.json.Decoder[Request]] = {
    "claim": msgspec.json.Decoder(protocol.ClaimRequest),
    "heartbeat": msgspec.json.Decoder(protocol.HeartbeatRequest),
    "report": msgspec.json.Decoder(protocol.ReportRequest),
    "start": msgspec.json.Decoder(protocol.StartRequest),
}
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names."""

    place: str
    pool: str
    call: str


def target_of(path: str) -> Target | None:
    """None for a path that is none of ours."""
    found = _PATH.fullmatch(path)
    return Target(*found.groups()) if found else None


class PoolCalls:
    """The four calls. At most `most_waiting` claims wait at a time."""

    def __init__(self, pools: service.Pools, *, most_waiting: int = MOST_WAITING) -> None:
        self._pools = pools
        self._most_waiting = most_waiting
        self._waiting = 0

    async def admit(self, caller: auth.Caller, target: Target) -> str:
        """The pool's key, if this caller may act for it; 403 or 404 otherwise."""
        pool = auth.pool_of(caller, place=target.place, name=target.pool)
        settings = await self._pools.settings(pool)
        auth.check_account(caller, pool=pool, service_account=settings.service_account)
        return pool

    async def answer(self, pool: str, target: Target, body: bytes) -> bytes:
        """What `target.call` answers to `body`."""
        decoder = _DECODERS[target.call]
        try:
            request = decoder.decode(body)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise problems.of_decoding(error, decoder.type) from None
        check(request)
        return _encode(await self._do(pool, request))

    async def _do(self, pool: str, request: Request) -> Answer:
        match request:
            case protocol.ClaimRequest():
                return await self._claim(pool, request)
            case protocol.HeartbeatRequest():
                return await self._pools.heartbeat(pool, request)
            case protocol.ReportRequest():
                return await self._pools.report(pool, request)
            case protocol.StartRequest():
                return await self._pools.start(pool, request)

    async def _claim(self, pool: str, request: protocol.ClaimRequest) -> Answer:
        if self._waiting >= self._most_waiting:
            raise problems.unavailable(f"{self._waiting} claims wait in this process already")
        self._waiting += 1
        metrics.API_WAITING.inc()
        try:
            return await self._pools.claim(pool, request)
        finally:
            self._waiting -= 1
            metrics.API_WAITING.dec()


def check(request: Request) -> None:
    """Refuses ids that carry no instant: 422 with every place."""
    field, attempts = _attempts(request)
    mistakes = [
        problems.Mistake(f"/{field}/{index}/runId", "is not the id of a run: send it as it came")
        for index, one in enumerate(attempts)
        if one.run_id.int >> _TIME_SHIFT > _MAX_MILLISECONDS
    ]
    if mistakes:
        raise problems.invalid(mistakes)


def _attempts(request: Request) -> tuple[str, Sequence[protocol.Held | protocol.Report]]:
    if isinstance(request, protocol.ReportRequest):
        return "reports", request.reports
    return "held", request.held
