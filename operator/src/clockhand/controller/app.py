"""The operator process: what it is made of, and how it starts and ends."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from clockhand import config, health, metrics
from clockhand.controller import duty, watch
from clockhand.domain import workloads as pool_workloads
from clockhand.engine import (
    events,
    jobclasses,
    loops,
    mirror,
    poolnews,
    prune,
    replica,
    resync,
    schema,
    status,
    survey,
    templates,
    workerpools,
    workforce,
)
from clockhand.engine import limits as limit_files
from clockhand.kube import client as clients
from clockhand.kube import connection as connections
from clockhand.kube import events as event_calls
from clockhand.kube import flow, objects, pods, workloads
from clockhand.store import database, duties

_FIRST_IN_FLIGHT = 32
"""Pod creations in flight at first; more makes an API server on few cores slower, and the limit grows while it keeps up."""
_STATUS_SECONDS = 1.0


async def serve(settings: config.Settings) -> None:
    """`clockhand operator`: runs until SIGTERM or SIGINT."""
    metrics.begin("operator")
    stop = loops.stop_on_signals()
    file = limit_files.LimitsFile(settings.limits)
    db = database.Database(
        settings.database_url, size=settings.database_pool, name="operator", options=settings.database_session_options
    )
    await db.open()
    try:
        connection = await connections.find(settings.kubeconfig)
        most = settings.pod_launches
        limits = flow.FlowSettings(initial_in_flight=min(_FIRST_IN_FLIGHT, most), max_in_flight=most)
        async with clients.connect(connection, limits) as client:
            one = replica.Replica(
                db,
                client,
                name=settings.replica,
                lease=settings.shard_lease,
                namespaces=settings.namespaces,
                file=file,
            )
            async with health.served(
                health.Probes(one.alive, one.ready), port=settings.health_port, host=settings.listen
            ):
                await schema.until_it_fits(db, stop)
                if not stop.is_set():
                    await one.run(stop, also=_beside(one, settings, db=db, client=client))
    finally:
        await db.close()


def _beside(
    one: replica.Replica, settings: config.Settings, *, db: database.Database, client: clients.Client
) -> Mapping[str, loops.Step]:
    """The loops beside the replica's own: what one replica does for all, where it has the duty, and the objects' status."""
    recorder = events.Recorder(event_calls.Events(client, instance=settings.replica))
    mirroring = _mirroring(one, settings, db=db, client=client, recorder=recorder)
    writer = status.StatusWriter(db, objects.Objects(client), recorder=recorder)
    pruning = prune.Prune(
        db,
        replica=settings.replica,
        retention_days=settings.retention_days,
        is_free=lambda: duties.PRUNE in one.held.free_duties,
    )
    surveying = survey.Survey(db, retention_days=settings.retention_days, is_mine=lambda: pruning.holds)

    async def write_status() -> float:
        await one.news.wait()
        await writer.run_once(one.held.holder().generations)
        return _STATUS_SECONDS

    async def mirror_objects() -> float:
        await mirroring.run()
        return 0.0

    return {
        "status": write_status,
        "events": recorder.step,
        "mirror": mirror_objects,
        "prune": pruning.step,
        "survey": surveying.step,
    }


def _mirroring(
    one: replica.Replica,
    settings: config.Settings,
    *,
    db: database.Database,
    client: clients.Client,
    recorder: events.Recorder,
) -> duty.MirrorDuty:
    checked = templates.Templates(db, pods.Pods(client))
    catalogue = jobclasses.Catalogue(db, objects.Objects(client, objects.JOB_CLASSES))
    mirrored = mirror.Mirror(db, checked, catalogue)
    compared = resync.Resync(db, objects.Objects(client), mirrored, namespaces=settings.namespaces)
    pools = _pools(mirrored, settings, db=db, client=client, recorder=recorder)
    classes = jobclasses.JobClasses(db, catalogue, checked, turn=mirrored.turn)
    return duty.MirrorDuty(
        db,
        replica=settings.replica,
        lease=timedelta(seconds=settings.shard_lease),
        parts=duty.Parts(mirrored, compared, checked, pools, classes),
        make_watch=lambda box: watch.Watch(
            box, kubeconfig=settings.kubeconfig, namespaces=settings.namespaces, pool_seen=pools.nudge
        ),
        is_free=lambda: duties.MIRROR in one.held.free_duties,
    )


def _pools(
    mirrored: mirror.Mirror,
    settings: config.Settings,
    *,
    db: database.Database,
    client: clients.Client,
    recorder: events.Recorder,
) -> workerpools.WorkerPools:
    defaults = pool_workloads.Defaults(settings.worker_image, settings.api_url, settings.kafka)
    staff = workforce.Workforce(workloads.Workloads(client), defaults, namespaces=settings.namespaces)
    listed = objects.Objects(client, objects.WORKER_POOLS)
    news = poolnews.PoolNews(recorder)
    return workerpools.WorkerPools(db, listed, staff, news=news, turn=mirrored.turn, namespaces=settings.namespaces)
