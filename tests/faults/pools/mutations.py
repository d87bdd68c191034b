"""API processes and workers with a guard taken out, in memory; each mutation must find the text that it takes away."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.faults.mutations import rewrite

from clockhand.store import pools, queries
from clockhand.worker import attempts, client, runner

_SAME_WORKER = re.compile(r"\s+AND r\.worker IS NOT DISTINCT FROM n\.worker")
_SAME_TOKEN = re.compile(r"AND r\.token = n\.token\b")
_TOLD = {
    "runs.finish": (
        ("RETURNING r.*, n.state", "RETURNING r.*, n.token AS told, n.state"),
        ("SELECT gone.run_id, gone.token,", "SELECT gone.run_id, gone.told AS token,"),
    ),
    "leases.renew": (
        ("SELECT r.run_id, r.state, n.lease", "SELECT r.run_id, r.state, n.lease, n.token, n.worker"),
        ("RETURNING r.run_id, r.token, r.pool, r.worker,", "RETURNING r.run_id, mine.token, r.pool, mine.worker,"),
    ),
}
"""What is answered by the token of the row is answered by the one that was presented."""


def install(names: Sequence[str]) -> None:
    """Applies the named mutations to this process."""
    for name in names:
        _MUTATIONS[name]()


def _no_token() -> None:
    """A worker's word about an attempt that is over is taken for one about its successor."""
    changed = {}
    for name, told in _TOLD.items():
        text = _cut(name, _cut(name, queries.sql(name), _SAME_TOKEN), _SAME_WORKER)
        for old, new in told:
            text = _replaced(name, text, old, new)
        changed[name] = text
    recall = "leases.recall"
    changed[recall] = _replaced(recall, queries.sql(recall), " AND h.token = n.token AND h.worker = n.worker", "")
    rewrite(changed)


def _no_lock() -> None:
    """Who counts what is open under a cap does not wait for who is taking places of it; and both take their time."""
    name = "limits.lock_keys"
    rewrite({name: _replaced(name, queries.sql(name), " FOR NO KEY UPDATE", "")})


def _slow_claims() -> None:
    """Some time goes by between the count and what is taken, so that others may count as well."""
    lock_queued = pools.lock_queued

    async def slowly(connection: Any, **options: Any) -> Any:
        await asyncio.sleep(0.3)
        return await lock_queued(connection, **options)

    pools.lock_queued = slowly


def _never_away() -> None:
    """Workers that had no API to renew with are taken for silent."""
    name = "leases.standing"
    since = "greatest(p.rescue_from, installation.served_since + make_interval(secs => coalesce(p.lease_seconds, 90)))"
    rewrite({name: _replaced(name, queries.sql(name), since, "greatest(p.rescue_from, timestamptz '2000-01-01')")})


def _no_self_stop() -> None:
    """A worker goes on with what it has until the API says otherwise, as long as that may take."""
    attempts.Attempts.is_trusted = lambda self, attempt: True  # type: ignore[method-assign]
    attempts.Rhythm.trusted_until = lambda self, sent: float("inf")  # type: ignore[method-assign]
    runner.Runner.take = _as_sure(runner.Runner.take)  # type: ignore[method-assign]


def _as_sure(take: Callable[..., None]) -> Callable[..., None]:
    def taken(self: runner.Runner, runs: Any, sent: float, *, unsure: bool = False) -> None:
        take(self, runs, sent)

    return taken


def _reports_twice() -> None:
    """Each report is sent again as soon as it was answered, as by a worker that did not hear the answer."""
    report = client.Api.report

    async def twice(self: client.Api, request: Any) -> Any:
        await report(self, request)
        return await report(self, request)

    client.Api.report = twice  # type: ignore[method-assign]


def _cut(name: str, text: str, pattern: re.Pattern[str]) -> str:
    changed, count = pattern.subn("", text)
    if not count:
        raise LookupError(f"{name} has no {pattern.pattern}: the mutation is out of date")
    return changed


def _replaced(name: str, text: str, old: str, new: str) -> str:
    if old not in text:
        raise LookupError(f"{name} has no {old}: the mutation is out of date")
    return text.replace(old, new)


_MUTATIONS: Mapping[str, Callable[[], None]] = {
    "no-token": _no_token,
    "no-lock": _no_lock,
    "slow-claims": _slow_claims,
    "never-away": _never_away,
    "no-self-stop": _no_self_stop,
    "reports-twice": _reports_twice,
}
