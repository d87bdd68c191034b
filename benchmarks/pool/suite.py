"""The suite: pool mode alone, its lateness, and the same rounds with each peer."""

from __future__ import annotations

import dataclasses
import statistics
import sys
from collections.abc import Mapping, Sequence

from benchmarks import report
from benchmarks.pool import contenders, drain, ours
from tests.support import postgres

_PARTS = ("postgres", "engine+API", "worker", "watch", "generator")
_COLUMNS = ("runs", "runs/s", "first started, s after", "all ended, s after", "statements a run", "us CPU a run")
_PEERS_NOTE = (
    "A peer's worker speaks to PostgreSQL itself, with credentials of the database; ours speaks HTTP and has a credential"
    " for its pool alone. A job of a peer whose worker died is found again after minutes or hours; nobody watches, no caps"
    " are looked at, and owners do not take turns. All start with every job stored, indexed and analysed."
)


@dataclasses.dataclass(frozen=True)
class Settings:
    runs: int = 100_000
    """Of a round of ours; peers get half as many."""
    rounds: int = 3
    rate: int = 1_000
    """Runs a second, where lateness is measured."""
    seconds: float = 30.0
    guests: int = 500
    """Runs of a second owner, whose lateness is measured beside `runs` of the first."""
    concurrency: int = 1_000
    peers: tuple[str, ...] = tuple(peer.name for peer in contenders.PEERS)
    quick: bool = False
    """Too short to measure anything: to see that it works."""


async def run(settings: Settings) -> report.Report:
    """Everything on one server, a fresh database for each round."""
    if settings.quick:
        settings = dataclasses.replace(settings, runs=4_000, rounds=1, seconds=5.0)
    unknown = set(settings.peers) - {peer.name for peer in contenders.PEERS}
    assert not unknown, f"no peer is called {', '.join(unknown)}"
    made = report.Report("pool", dataclasses.asdict(settings))
    with drain.server() as server:
        recurring = await _rounds(server, _ours(settings), settings, drain.Mode.RECURRING)
        _add_alone(made, recurring)
        await _add_lateness(made, server, settings)
        await _add_fairness(made, server, settings)
        if settings.peers:
            await _add_peers(made, server, settings, recurring)
    return made


def _ours(settings: Settings, *, spread: float = 1.0, aligned: bool = False) -> ours.Clockhand:
    return ours.Clockhand(concurrency=settings.concurrency, spread=spread, aligned=aligned)


async def _rounds(
    server: postgres.PostgresServer, contender: drain.Contender, settings: Settings, mode: drain.Mode, *, runs: int = 0
) -> Sequence[drain.Drained]:
    """The rounds of a contender, the middle one by runs a second first."""
    found = []
    for number in range(settings.rounds):
        found.append(await drain.drain(server, contender, runs=runs or settings.runs, mode=mode))
        print(
            f"  {contender.name}, {mode}, round {number + 1}: {found[-1].per_second:.0f}/s", file=sys.stderr, flush=True
        )
    middle = statistics.median_low(one.per_second for one in found)
    return sorted(found, key=lambda one: one.per_second != middle)


def _add_alone(made: report.Report, rounds: Sequence[drain.Drained]) -> None:
    made.add(
        "due in one second -> claimed over HTTP -> reported, by cron, history kept, watched; the middle round first",
        ("round", *_COLUMNS, *_PARTS),
        [(number, *_row(one), *(one.cpu.get(part) for part in _PARTS)) for number, one in enumerate(rounds, 1)],
    )
    latest = [max(one.late) for one in rounds]
    made.add(
        f"{rounds[0].runs:,} jobs due in one second: seconds from due to started, until the last one was",
        ("round", "p50", "p99", "last"),
        [(number, *report.spread(one.late)) for number, one in enumerate(rounds, 1)],
    )
    made.notes.append(
        f"The last of {rounds[0].runs:,} runs started {max(latest):.1f} s after its due instant at worst."
    )


async def _add_lateness(made: report.Report, server: postgres.PostgresServer, settings: Settings) -> None:
    rows = []
    for aligned in (False, True):
        contender = _ours(settings, spread=settings.seconds, aligned=aligned)
        runs = int(settings.rate * settings.seconds)
        one = await drain.drain(server, contender, runs=runs, mode=drain.Mode.RECURRING)
        p50, p99, last = report.spread(one.late)
        due = "at full seconds" if aligned else "at any millisecond"
        rows.append((due, runs, 1e3 * p50, 1e3 * p99, 1e3 * last, one.statements, sum(one.cpu.values())))
    made.add(
        f"lateness at {settings.rate:,} runs/s, from due to the handler's start",
        ("due", "runs", "p50, ms", "p99, ms", "largest, ms", "statements a run", "us CPU a run"),
        rows,
    )


async def _add_fairness(made: report.Report, server: postgres.PostgresServer, settings: Settings) -> None:
    contender = dataclasses.replace(_ours(settings), guests=settings.guests)
    rows = []
    for crowd in (0, settings.runs):
        one = await drain.drain(server, contender, runs=crowd + settings.guests, mode=drain.Mode.RECURRING)
        assert len(one.guests) == settings.guests
        p50, p99, last = report.spread(one.guests)
        rows.append((crowd, settings.guests, 1e3 * p50, 1e3 * p99, 1e3 * last))
    made.add(
        "lateness of a small owner's runs, beside what a big owner has due in one second",
        ("due of the big owner", "runs of the small one", "p50, ms", "p99, ms", "largest, ms"),
        rows,
    )


async def _add_peers(
    made: report.Report, server: postgres.PostgresServer, settings: Settings, recurring: Sequence[drain.Drained]
) -> None:
    peers = [peer for peer in contenders.PEERS if peer.name in settings.peers]
    same = await _rounds(server, _ours(settings), settings, drain.Mode.SAME)
    found: dict[drain.Mode, Mapping[str, drain.Drained]] = {}
    for mode in drain.Mode:
        middle = {}
        for peer in peers:
            runs = int(settings.runs / 2 * peer.share)
            middle[peer.name] = (await _rounds(server, peer, settings, mode, runs=runs))[0]
        found[mode] = middle
    for mode, title, our in (
        (drain.Mode.SAME, "the same work: a due instant, a worker process, a row of each run kept", same[0]),
        (drain.Mode.RECURRING, "recurring: the same, and the next run is stored with its due instant", recurring[0]),
        (drain.Mode.RAW, "raw: due at once, and whatever else is fastest", None),
    ):
        _add_beside(made, title, our, found[mode])
    made.add(
        "how each was set, and what it does for a run",
        ("queue", "version", "settings", "the same work", "recurring", "raw"),
        [(peer.name, peer.version, peer.settings, peer.same, peer.recurring, peer.raw) for peer in peers],
    )
    made.notes.append(_PEERS_NOTE)


def _add_beside(made: report.Report, title: str, our: drain.Drained | None, peers: Mapping[str, drain.Drained]) -> None:
    best = max((one.per_second for one in peers.values()), default=None)
    rows = [
        (one.name, *_row(one), one.cpu["postgres"], one.cpu["worker"], one.per_second / best if best else None)
        for one in [*([our] if our else []), *peers.values()]
    ]
    made.add(title, ("queue", *_COLUMNS, "of it PostgreSQL", "of it workers", "of the best peer"), rows)


def _row(one: drain.Drained) -> Sequence[report.Value]:
    return (
        one.runs,
        one.per_second,
        one.first_after,
        one.all_after,
        one.statements,
        sum(one.cpu.values()),
    )
