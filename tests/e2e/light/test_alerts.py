"""Every alert is seen firing on a real Prometheus, by what it is there for, while an installation that is well has none.

All causes are brought about side by side, each in an installation of its own, known by its namespace. The rules are those of
the chart; only their clock goes faster.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import time
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
import yaml
from tests.support import ailments, fleet, generated, installation, light, objects, postgres, prometheus, steppable
from tests.support.kubectl import Kubectl
from tests.support.tcpproxy import TcpProxy

CHART = generated.ROOT / "charts/scheduler"
RULES = CHART / "alerts/clockhand.yaml"
DASHBOARD = CHART / "dashboards/clockhand.json"
ALERTS = [
    rule["alert"] for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]
]
QUERIES = [
    (panel["title"], target["expr"])
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    for target in panel.get("targets", ())
]
WELL = "well"
LAST = frozenset({"ClockhandOperatorsDown", "ClockhandApiDown", "ClockhandRunsApiDown", "ClockhandRunsApiRefusing"})
"""What is seen of the installation that was well, once it is taken apart."""
NOWHERE = "postgresql://127.0.0.1:1/nothing"
DURING = ("ClockhandSlotsLate", "ClockhandStatementsSlow", "ClockhandConnectionsShort")
"""What is seen while live runs are blocked; the rest follows when they are not any more."""


@dataclass(frozen=True)
class Seen:
    """What Prometheus had to say in the end."""

    fired: Collection[str]
    fired_while_well: Collection[str]
    panels: Mapping[str, int]
    """How many series each query of the dashboard had, of the installation that was well."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("alerts")
    rules = prometheus.hurried(RULES.read_text(encoding="utf-8"))
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(light.LightCluster())
        server = stack.enter_context(postgres.server())
        template = server.new_database()
        asyncio.run(fleet.migrate(server.url(template)))
        for name in ("prometheus", "fleet"):
            (folder / name).mkdir()
        watching = stack.enter_context(prometheus.running(folder / "prometheus", rules))
        processes = installation.Processes(cluster, server)
        stack.callback(processes.close)
        started = stack.enter_context(fleet.running(folder / "fleet", watching))
        on = fleet.Ground(processes, server, template, watching, started, folder)
        yield asyncio.run(everything(on))


async def everything(on: fleet.Ground) -> Seen:
    """All causes side by side, and at last what only shows of an installation that is taken apart."""
    ailments.allow_connections()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session, contextlib.AsyncExitStack() as stack:
        await asyncio.to_thread(functools.partial(on.processes.install, operators=1))
        busy = await stack.enter_async_context(well(on, session))
        people = (late(on, session), dark(on, session), leapt(on, session), neglected(on, session))
        await asyncio.gather(*people, worn(on), throttled(on, session))
        panels = {query: len(await asyncio.to_thread(on.watching.query, filled(query))) for _, query in QUERIES}
        before = on.watching.fired(WELL)
        await asyncio.to_thread(on.processes.stop_part, "runs")
        on.processes.start_part("runs", url=NOWHERE)
        on.watching.watch(WELL, on.processes.health_port("runs"))
        await on.until(WELL, "ClockhandRunsApiRefusing")
        for name in ("operator-0", "runs"):
            await asyncio.to_thread(on.processes.stop_part, name)
        busy.kill()
        await on.until(WELL, *LAST)
        return Seen(on.watching.fired(), before, panels)


@contextlib.asynccontextmanager
async def well(on: fleet.Ground, session: aiohttp.ClientSession) -> AsyncIterator[fleet.Part]:
    """Everything that there is, with something to do: pods, workers, and people who look."""
    for name in ("operator-0", "runs"):
        on.watching.watch(WELL, on.processes.health_port(name))
    kubectl = on.processes.kubectl
    async with on.api(WELL, on.server.url("clockhand")) as (part, db):
        tenant = await ailments.Tenant.made(db, session, part.url)
        await tenant.make_jobs(10, every="10s")
        secret = on.folder / "worker"
        secret.write_text(await ailments.worker_token(db), encoding="utf-8")
        on.crew.start(
            WELL,
            "worker",
            api_url=part.url,
            pool=f"{ailments.PLACE}/mailers",
            token_file=str(secret),
            handlers="tests.support.mail_worker:worker",
        )
        pods = [objects.job(f"pods-{number}", objects.succeeding(), schedule=None) for number in range(5)]
        for one in pods:
            one["spec"]["every"] = "10s"
        await asyncio.to_thread(kubectl.apply, *pods)
        async with ailments.doing(ailments.keep(functools.partial(look, kubectl), 4.0)):
            yield part


async def look(kubectl: Kubectl) -> None:
    """Somebody looks at runs, and edits a job."""
    await asyncio.gather(
        asyncio.to_thread(kubectl.call, "get", "runs"),
        asyncio.to_thread(kubectl.call, "annotate", "sjob", "pods-0", "--overwrite", f"looked={time.time()}"),
    )


async def late(on: fleet.Ground, session: aiohttp.ClientSession) -> None:
    """Nothing can be written to live runs for more than half a minute."""
    url = on.new_url()
    async with on.api("late", url, rest_pool="1") as (part, db):
        tenant = await ailments.Tenant.made(db, session, part.url)
        [job, *_] = await tenant.make_jobs(5, every="10s")
        await tenant.work()
        async with ailments.blocked_runs(url):
            await tenant.make_jobs(20, at=await ailments.in_a_moment(db))
            calls = [ailments.keep(functools.partial(tenant.run_now, job)) for _ in range(10)]
            async with ailments.doing(*calls):
                await on.until("late", *DURING)
        async with ailments.doing(ailments.keep(tenant.work)):
            await on.until("late", "ClockhandRunsLate", "ClockhandSlotsMissed")


async def dark(on: fleet.Ground, session: aiohttp.ClientSession) -> None:
    """The database is away."""
    async with TcpProxy("127.0.0.1", on.server.port) as wire:
        url = on.new_url().replace(f":{on.server.port}/", f":{wire.port}/")
        async with on.api("dark", url) as (part, db):
            pool = ailments.Pool(db, session, part.url)
            await pool.furnish()
            wire.cut()
            async with ailments.doing(ailments.keep(pool.report_late)):
                await on.until(
                    "dark",
                    *(
                        "ClockhandDatabaseFailing",
                        "ClockhandShardsUnheld",
                        "ClockhandLoopFailing",
                        "ClockhandApiRefusing",
                    ),
                )


async def leapt(on: fleet.Ground, session: aiohttp.ClientSession) -> None:
    """The database's clock jumps; and a crowd of workers waits."""
    url = on.new_url()
    await asyncio.to_thread(steppable.make, on.server, url.rpartition("/")[2])
    async with on.api("leapt", url) as (part, db):
        pool = ailments.Pool(db, session, part.url)
        await pool.furnish()
        ailments.leap(url)
        async with ailments.doing(pool.crowd()):
            await on.until("leapt", "ClockhandClockPaused", "ClockhandClaimsCrowded")


async def worn(on: fleet.Ground) -> None:
    """Nobody has looked after the database, and the cluster's API server is away."""
    url = on.new_url()
    async with await ailments.worn(url):
        nowhere = on.folder / "nowhere"
        nowhere.write_text(ailments.kubeconfig("https://127.0.0.1:1", ca=str(on.processes.ca)), encoding="utf-8")
        on.crew.start("worn", "operator", database_url=url, kubeconfig=str(nowhere), namespaces="worn")
        await on.until(
            "worn",
            *("ClockhandPartitionsMissing", "ClockhandRetentionOverdue", "ClockhandVacuumHeldBack"),
            *("ClockhandQueueStuck", "ClockhandWatchSilent", "ClockhandApiServerFailing"),
        )


async def throttled(on: fleet.Ground, session: aiohttp.ClientSession) -> None:
    """The cluster's API server does one thing at a time for a user, and somebody keeps it busy with that."""
    kubectl = await asyncio.to_thread(on.processes.kubectl.create_namespace, "throttled")
    await asyncio.to_thread(kubectl.run, "create", "serviceaccount", "operator")
    await asyncio.to_thread(
        kubectl.run, "create", "rolebinding", "reader", "--clusterrole=view", "--serviceaccount=throttled:operator"
    )
    await asyncio.to_thread(kubectl.apply, *ailments.one_at_a_time("throttled", "operator"))
    token = (await asyncio.to_thread(kubectl.run, "create", "token", "operator")).out.strip()
    file = on.folder / "throttled"
    file.write_text(ailments.kubeconfig(on.processes.url, ca=str(on.processes.ca), token=token), encoding="utf-8")
    on.crew.start("throttled", "operator", database_url=on.new_url(), kubeconfig=str(file), namespaces="throttled")
    ask = functools.partial(
        ailments.keep_server_busy, session, f"{on.processes.url}{ailments.PODS}", ca=on.processes.ca, token=token
    )
    async with ailments.doing(*(ailments.keep(ask, 0.1) for _ in range(2))):
        await on.until("throttled", "ClockhandApiServerThrottling")


async def neglected(on: fleet.Ground, session: aiohttp.ClientSession) -> None:
    """A pool whose workers fall silent, fail, freeze and come with wrong tokens, and limits that somebody mistyped."""
    limits = on.folder / "limits.yaml"
    limits.write_text("{}", encoding="utf-8")
    async with on.api("neglected", on.new_url(), limits=str(limits)) as (part, db):
        pool = ailments.Pool(db, session, part.url)
        await pool.furnish()
        limits.write_text("owners: 7", encoding="utf-8")
        await pool.end_twice()
        await pool.die()
        await pool.fall_silent()
        async with ailments.doing(ailments.keep(pool.report_late), ailments.keep(pool.come_with_a_wrong_token)):
            await on.until(
                "neglected",
                *("ClockhandLimitsStale", "ClockhandHistoryConflict", "ClockhandRunsDying", "ClockhandJobsPaused"),
                *("ClockhandWorkersLost", "ClockhandPoolSilent", "ClockhandOutcomesUnseen", "ClockhandStaleWrites"),
                "ClockhandTokensRefused",
            )


def filled(query: str) -> str:
    """As Grafana sends it."""
    return query.replace("$namespace", WELL).replace("$__rate_interval", "20s")


@pytest.mark.parametrize("alert", ALERTS)
def test_it_fires(seen: Seen, alert: str) -> None:
    assert alert in seen.fired


def test_none_fires_where_all_is_well(seen: Seen) -> None:
    assert seen.fired_while_well == set()


@pytest.mark.parametrize(("panel", "query"), QUERIES, ids=[title for title, _ in QUERIES])
def test_each_query_of_the_dashboard_has_data(seen: Seen, panel: str, query: str) -> None:
    assert seen.panels[query], panel


def test_the_rules_do_their_sums() -> None:
    prometheus.promtool("check", "rules", RULES)
    prometheus.promtool("test", "rules", Path(__file__).with_name("alert_cases.yaml"))
