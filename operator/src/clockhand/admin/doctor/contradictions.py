"""What the database and the cluster say of each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from clockhand import errors
from clockhand.admin.doctor.patient import LIMIT, Patient
from clockhand.domain import findings, observed, outcome, pods, sightings
from clockhand.domain.findings import Finding, counted
from clockhand.kube import objects
from clockhand.kube import pods as kube_pods
from clockhand.store import audits, doctor, mirroring, requests, runs

ACTOR = "clockhand doctor"
SETTLED = timedelta(minutes=2)
"""By then events have been seen, and sweeps have been made: what is younger may be on its way."""
MOST = 5_000
"""Objects or pods that are looked at."""
_CALLS_AT_ONCE = 8

T = TypeVar("T")


async def runs_without_pod(patient: Patient) -> Finding:
    """An open attempt has its pod; where that is lost, the attempt ends."""
    missing = await _podless(patient)
    if missing:
        return findings.error(
            f"{counted(len(missing), 'open run')} whose pod is not there",
            "see that operators run, hold every shard and reach the API server: their sweep ends such attempts",
            missing,
        )
    return findings.ok("open runs have their pods")


async def pods_without_run(patient: Patient) -> Finding:
    """A pod that goes on although nobody waits for it does work twice."""
    orphans, foreign, cut = await _stray(patient)
    upto = f" among the first {MOST}" if cut else ""
    if orphans or foreign:
        things = [f"{_named(pod)}, of no open attempt" for pod in orphans]
        return findings.warning(
            f"{counted(len(orphans) + len(foreign), 'pod')} that carry our label and no open attempt{upto}",
            "delete them; a pod that names no run of this database is another installation's, or somebody's who should "
            "not use our label: see that database and cluster belong together",
            [*things, *(f"{_named(pod)}, which names no run of this database" for pod in foreign)],
        )
    return findings.ok(f"every pod that runs has its run{upto}")


async def objects_without_job(patient: Patient) -> Finding:
    """A ScheduledJob that nobody has stored never fires."""
    found = await _objects(patient)
    async with doctor.reading(patient.db) as connection:
        known = await mirroring.known(connection, [one.uid for one in found.settled])
    missing = [f"{one.owner}/{one.name}" for one in found.settled if one.uid not in known or known[one.uid].deleted]
    if missing:
        return findings.error(
            f"{counted(len(missing), 'ScheduledJob')} that no row knows: they do not fire",
            "see that an operator has the duty `mirror`, and read its log",
            missing,
        )
    return findings.ok(f"{counted(found.count, 'ScheduledJob')} looked at, each with its job")


async def jobs_without_object(patient: Patient) -> Finding:
    """A job whose object is gone should fire no more."""
    found = await _objects(patient)
    owners = [f"k8s/{namespace}" for namespace in patient.settings.namespaces] or None
    async with doctor.reading(patient.db) as connection:
        rows = await mirroring.page(connection, after=mirroring.Place(), owners=owners, size=MOST)
    suspects = [row for row in rows if row.job_id not in found.uids][:LIMIT]
    gone = await _each(suspects, lambda row: _is_gone(patient, row))
    still = await _still_there(patient, [row.job_id for row in gone])
    missing = [f"{row.owner}/{row.name}" for row in gone if row.job_id in still]
    if missing:
        return findings.error(
            f"{counted(len(missing), 'job')} whose ScheduledJob is gone: they still fire",
            "see that an operator has the duty `mirror`: it compares all of them every few minutes",
            missing,
        )
    return findings.ok(f"{counted(len(rows), 'job')} looked at, each with its ScheduledJob")


async def delete_pods(patient: Patient) -> Sequence[str]:
    """Pods of attempts that are over; one that names no run of this database is not ours to delete.

    One that is refused keeps nobody from the others.
    """
    orphans, _, _ = await _stray(patient)
    api = kube_pods.Pods(patient.api)
    done = []
    for pod in orphans:
        meta = pod.metadata
        deleted = "deleted"
        try:
            if await api.delete(meta.namespace, meta.name, uid=meta.uid) is not kube_pods.Deletion.REQUESTED:
                continue
        except errors.Uncertain:
            deleted = "perhaps deleted"
        except errors.ClockhandError as error:
            done.append(f"did not delete pod {_named(pod)}: {error}")
            continue
        async with patient.db.transaction() as connection:
            await audits.add(connection, [_deletion(pod)], now=patient.now)
        done.append(f"{deleted} pod {_named(pod)}")
    return done


def _deletion(pod: observed.Pod) -> requests.Asked:
    identity = pods.identity_of(pod)
    assert identity is not None
    return requests.Asked(
        f"k8s/{pod.metadata.namespace}",
        ACTOR,
        "pod-delete",
        job_id=identity.job_uid,
        run_id=identity.run_id,
        detail={"pod": pod.metadata.name, "attempt": identity.attempt},
    )


async def _podless(patient: Patient) -> Sequence[str]:
    rows = await patient.rows("open_runs", before=patient.now - SETTLED, limit=LIMIT)
    suspects = await _each(_watched(patient, rows), lambda row: _has_no_pod(patient, row))
    attempts = [(row.run_id, row.attempt) for row in suspects]
    async with doctor.reading(patient.db) as connection:
        # while we asked, a run may have ended, and its pod gone
        still = await runs.still_open(connection, attempts) if attempts else frozenset()
    return [f"{row.owner}/{row.name}, attempt {row.attempt}" for row in suspects if (row.run_id, row.attempt) in still]


def _watched(patient: Patient, rows: Sequence[Any]) -> Sequence[Any]:
    spaces = {f"k8s/{namespace}" for namespace in patient.settings.namespaces}
    return [row for row in rows if not spaces or row.owner in spaces]


async def _each(items: Sequence[T], test: Callable[[T], Awaitable[bool]]) -> Sequence[T]:
    """The items that pass the test, which asks the API server: a few at a time."""
    gate = asyncio.Semaphore(_CALLS_AT_ONCE)

    async def passes(item: T) -> bool:
        async with gate:
            return await test(item)

    passed = await asyncio.gather(*map(passes, items))
    return [item for item, good in zip(items, passed, strict=True) if good]


async def _has_no_pod(patient: Patient, row: Any) -> bool:
    namespace = row.owner.removeprefix("k8s/")
    try:
        await kube_pods.Pods(patient.api).get(namespace, pods.pod_name(row.job_name, row.run_id, row.attempt))
    except errors.NotFound:
        return True
    return False


async def _stray(patient: Patient) -> tuple[Sequence[observed.Pod], Sequence[observed.Pod], bool]:
    """Pods of no open attempt, pods that name no run of this database, and whether there are more than were looked at.

    A job that was deleted has its row for as long as runs are kept. What names any other is of another installation:
    database and cluster may not belong together.
    """
    found: list[observed.Pod] = []
    for namespace in patient.settings.namespaces or (None,):
        async for page in kube_pods.Pods(patient.api).list_pages(pods.SELECTOR, namespace):
            found += page.pods
            if len(found) >= MOST:
                break
    running = [pod for pod in found[:MOST] if _is_settled(pod, patient.here())]
    ours = {pod.metadata.uid: identity for pod in running if (identity := pods.identity_of(pod))}
    attempts = {(one.run_id, one.attempt) for one in ours.values()}
    async with doctor.reading(patient.db) as connection:
        still = await runs.still_open(connection, attempts) if attempts else frozenset()
        closed = {uid: one for uid, one in ours.items() if (one.run_id, one.attempt) not in still}
        known = await mirroring.known(connection, {one.job_uid for one in closed.values()})
    orphaned = {uid for uid, one in closed.items() if one.job_uid in known}
    suspects = [pod for pod in running if pod.metadata.uid in orphaned][:LIMIT]
    # while we asked, a pod may have ended, and its attempt with it
    orphans = await _each(suspects, lambda pod: _goes_on(patient, pod))
    foreign = [pod for pod in running if pod.metadata.uid not in ours or pod.metadata.uid in closed.keys() - orphaned]
    return orphans, foreign, len(found) > MOST


async def _goes_on(patient: Patient, pod: observed.Pod) -> bool:
    meta = pod.metadata
    try:
        found = await kube_pods.Pods(patient.api).get(meta.namespace, meta.name)
    except errors.NotFound:
        return False
    return found.metadata.uid == meta.uid and _is_settled(found, patient.here())


def _is_settled(pod: observed.Pod, here: datetime) -> bool:
    """Not over, not about to go, and there for a while."""
    meta = pod.metadata
    over = isinstance(outcome.classify(pod), outcome.Succeeded | outcome.Failed | outcome.Disrupted)
    created = meta.creation_timestamp
    return not over and meta.deletion_timestamp is None and created is not None and here - created > SETTLED


@dataclass(frozen=True, slots=True)
class _Found:
    """Objects at the API server: how many were looked at, all uids, and those that have been there for a while."""

    count: int
    uids: frozenset[UUID]
    settled: Sequence[sightings.Sighting]


async def _objects(patient: Patient) -> _Found:
    seen: list[sightings.Sighting] = []
    for namespace in patient.settings.namespaces or (None,):
        async for page in objects.Objects(patient.api).list_pages(namespace, metadata_only=True):
            seen += [sightings.from_object(item) for item in page.items]
            if len(seen) >= MOST:
                break
    old = [one for one in seen if not one.deleted and patient.here() - one.created_at > SETTLED]
    return _Found(len(seen), frozenset(one.uid for one in seen), old)


async def _is_gone(patient: Patient, row: mirroring.Listed) -> bool:
    try:
        found = await objects.Objects(patient.api).get(row.owner.removeprefix("k8s/"), row.name)
    except errors.NotFound:
        return True
    return sightings.from_object(found).uid != row.job_id


async def _still_there(patient: Patient, job_ids: Sequence[UUID]) -> frozenset[UUID]:
    """Those whose rows still say that they are there: the mirror may have come first."""
    if not job_ids:
        return frozenset()
    async with doctor.reading(patient.db) as connection:
        known: Mapping[UUID, mirroring.Known] = await mirroring.known(connection, job_ids)
    return frozenset(job_id for job_id, one in known.items() if not one.deleted)


def _named(pod: observed.Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
