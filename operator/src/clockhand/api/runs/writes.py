"""Making, cancelling and retrying runs: the checks of the API machinery around use cases of the engine."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from clockhand import errors
from clockhand.api.runs import group, objects, status
from clockhand.domain import backfill, names
from clockhand.engine import requests
from clockhand.store import changes, database, listing
from clockhand.store import requests as rows

log = structlog.get_logger(__name__)

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_KNOWN: Mapping[str, frozenset[str]] = {
    "": frozenset({"apiVersion", "kind", "metadata", "spec", "status"}),
    "metadata": frozenset(
        {"annotations", "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers"}
        | {"generateName", "generation", "labels", "managedFields", "name", "namespace", "ownerReferences"}
        | {"resourceVersion", "selfLink", "uid"}
    ),
    "spec": frozenset({"job", "kind", "scheduledTime", "payload", "backfill"}),
    "spec.backfill": frozenset(backfill.FIELDS),
}
_PAYLOAD = "cannot be given beside spec.backfill: every run of a backfill has the payload of its job"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, where, and whether only to see what would happen."""

    namespace: str
    user: str
    dry_run: bool = False

    @property
    def owner(self) -> str:
        return group.owner_of(self.namespace)


@dataclass(frozen=True, slots=True)
class Order:
    """A Run that was sent to be made, checked as far as that goes without the database."""

    name: str
    job: str
    payload: object = msgspec.UNSET
    backfill: backfill.Wanted | None = None
    warnings: tuple[str, ...] = field(default=())


class _DryRun(Exception):
    """Rolls back what was only tried."""


class Writes:
    """The three use cases. Each answers with the object as it is afterwards."""

    def __init__(self, db: database.Database) -> None:
        self._db = db
        self._numbering: set[asyncio.Task[None]] = set()

    async def create(self, caller: Caller, order: Order) -> objects.Json:
        async def act(connection: database.Connection) -> objects.Json:
            if await listing.by_name(connection, owner=caller.owner, name=order.name):
                raise status.already_exists(order.name)
            await _request(connection, caller, order)
            return await _seen(connection, caller.owner, order.name)

        return await self._change(caller, order.name, act)

    async def cancel(self, caller: Caller, name: str, *, uid: str = "") -> objects.Json:
        async def act(connection: database.Connection) -> objects.Json:
            run = await _found(connection, caller.owner, name)
            if uid and uid != str(run.run_id):
                raise status.conflict(name, f"the UID in the precondition ({uid}) does not match ({run.run_id})")
            if run.state == listing.SKIPPED:
                raise status.conflict(name, "it stands for slots that did not run: there is nothing to cancel")
            if run.finished_at is not None:
                raise status.conflict(name, f"it is over ({run.state}): only a run that is not over can be cancelled")
            await _cancel(connection, caller, run)
            return await _seen(connection, caller.owner, name)

        return await self._change(caller, name, act)

    async def retry(self, caller: Caller, name: str) -> objects.Json:
        async def act(connection: database.Connection) -> objects.Json:
            run = await _found(connection, caller.owner, name)
            if run.state == listing.SKIPPED:
                raise status.conflict(name, "skipped slots have no run to retry: create a Run of the job instead")
            if run.backfill is not None:
                raise status.conflict(
                    name, "a backfill cannot be retried: retry those of its runs that did not succeed"
                )
            now = await database.now(connection)
            await requests.retry(connection, owner=caller.owner, run_id=run.run_id, actor=caller.user, now=now)
            return await _seen(connection, caller.owner, name)

        return await self._change(caller, name, act)

    async def _change(self, caller: Caller, name: str, act: Any) -> objects.Json:
        done: objects.Json = {}
        try:
            async with self._db.transaction() as connection:
                done = await act(connection)
                if caller.dry_run:
                    raise _DryRun
        except _DryRun:
            return done
        except errors.ClockhandError as error:
            raise status.of_error(error, name) from error
        task = asyncio.create_task(self._number())
        self._numbering.add(task)
        task.add_done_callback(self._numbering.discard)
        return done

    async def _number(self) -> None:
        try:
            await changes.number_pending(self._db)
        except errors.ClockhandError as error:
            log.warning("changes_unnumbered", error=str(error))  # the next reader or writer numbers them


async def _request(connection: database.Connection, caller: Caller, order: Order) -> None:
    job_id = await rows.job_named(connection, owner=caller.owner, name=order.job)
    if job_id is None:
        sentence = f"no ScheduledJob {order.job!r} is known in this namespace: if it is new, wait until it is Ready"
        raise errors.NotFound(sentence)
    now = await database.now(connection)
    about: dict[str, Any] = {"owner": caller.owner, "job_id": job_id, "actor": caller.user, "now": now}
    if order.backfill is not None:
        await requests.request_backfill(connection, name=order.name, wanted=order.backfill, **about)
    else:
        await requests.request_run(connection, name=order.name, payload=order.payload, **about)


async def _cancel(connection: database.Connection, caller: Caller, run: listing.Run) -> None:
    now = await database.now(connection)
    if run.backfill is not None:
        await requests.cancel_backfill(
            connection, owner=caller.owner, backfill_id=run.run_id, actor=caller.user, now=now
        )
    else:
        await requests.cancel(connection, owner=caller.owner, run_id=run.run_id, actor=caller.user, now=now)


def order_of(body: bytes, *, namespace: str, validation: str, kept_days: int) -> Order:
    """The order in a request's body; 400 or 422 with every mistake. Backfills reach back no further than `kept_days`."""
    document = _document(body)
    metadata, spec = _part(document, "metadata"), _part(document, "spec")
    _check_identity(document, metadata, namespace)
    warnings = _unknown(document, metadata, spec, validation)
    name = _name(metadata)
    wanted, mistakes = _backfill(spec, kept_days)
    causes = [*_name_causes(name), *_spec_causes(spec), *mistakes]
    if causes:
        raise status.invalid(name, causes)
    if metadata.get("labels"):
        warnings = (*warnings, "metadata.labels: not kept; a run has the labels of its job")
    return Order(name, spec["job"], spec.get("payload", msgspec.UNSET), wanted, warnings)


def is_dry_run(values: list[str]) -> bool:
    """The meaning of `dryRun`; 400 for a value that no client should send."""
    if any(value != "All" for value in values):
        raise status.bad_request(f"dryRun: {', '.join(values)} is not supported; write All")
    return bool(values)


def _document(body: bytes) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise status.bad_request(f"the body is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise status.bad_request("the body is not a JSON object")
    return document


def _part(document: dict[str, Any], key: str) -> dict[str, Any]:
    part = document.get(key)
    if part is None:
        return {}
    if not isinstance(part, dict):
        raise status.invalid("", [(key, "must be an object")])
    return part


def _check_identity(document: dict[str, Any], metadata: dict[str, Any], namespace: str) -> None:
    kind = (document.get("apiVersion", group.API_VERSION), document.get("kind", group.KIND))
    if kind != (group.API_VERSION, group.KIND):
        raise status.bad_request(f"{kind[0]} {kind[1]} cannot be created here; write {group.API_VERSION} {group.KIND}")
    if metadata.get("namespace", namespace) != namespace:
        raise status.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def _unknown(
    document: dict[str, Any], metadata: dict[str, Any], spec: dict[str, Any], validation: str
) -> tuple[str, ...]:
    if validation not in ("", "Ignore", "Warn", "Strict"):
        raise status.bad_request(f"fieldValidation: {validation!r} is none of Ignore, Warn, Strict")
    parts = {"": document, "metadata": metadata, "spec": spec}
    if isinstance(spec.get("backfill"), dict):
        parts["spec.backfill"] = spec["backfill"]
    found = tuple(
        f'unknown field "{f"{path}." if path else ""}{key}"'
        for path, part in parts.items()
        for key in part
        if key not in _KNOWN[path]
    )
    if found and validation == "Strict":
        raise status.bad_request(f"strict decoding error: {', '.join(found)}")
    return () if validation == "Ignore" else found


def _name(metadata: dict[str, Any]) -> str:
    name, prefix = metadata.get("name"), metadata.get("generateName")
    if name:
        return str(name)
    if not prefix:
        return ""
    ending = "".join(secrets.choice(_SUFFIX) for _ in range(_SUFFIX_LENGTH))
    return f"{str(prefix)[: names.LONGEST - _SUFFIX_LENGTH]}{ending}"


def _name_causes(name: str) -> list[tuple[str, str]]:
    if not name:
        return [("metadata.name", "is missing: give name or generateName")]
    mistake = names.mistake(name)
    return [("metadata.name", mistake)] if mistake else []


def _spec_causes(spec: dict[str, Any]) -> list[tuple[str, str]]:
    causes = []
    job = spec.get("job")
    if not isinstance(job, str) or not job:
        causes.append(("spec.job", "must name a ScheduledJob of the same namespace"))
    elif len(job) > names.LONGEST or not names.FORM.fullmatch(job):
        causes.append(("spec.job", f"{job[:80]!r} cannot be the name of a ScheduledJob"))
    if spec.get("kind", "Manual") != "Manual":
        causes.append(("spec.kind", "is given by the server: leave it out"))
    if "scheduledTime" in spec:
        causes.append(("spec.scheduledTime", "is given by the server: leave it out"))
    return causes


def _backfill(spec: dict[str, Any], kept_days: int) -> tuple[backfill.Wanted | None, list[tuple[str, str]]]:
    """What is asked for of past slots, if anything, and what is wrong with it."""
    if spec.get("backfill") is None:
        return None, []
    mistakes = [("spec.payload", _PAYLOAD)] if "payload" in spec else []
    try:
        return backfill.read(spec["backfill"], kept_days=kept_days), mistakes
    except errors.InvalidInput as error:
        return None, [*mistakes, (error.field, error.sentence)]


async def _found(connection: database.Connection, owner: str, name: str) -> listing.Run:
    run = await listing.by_name(connection, owner=owner, name=name)
    if run is None:
        raise status.not_found(name)
    return run


async def _seen(connection: database.Connection, owner: str, name: str) -> objects.Json:
    run = await _found(connection, owner, name)
    standing = await changes.newest(connection)
    payload, result = await listing.contents(connection, run.run_id)
    attempts = await listing.attempts(connection, run.run_id)
    version = changes.version(standing.epoch, standing.newest)
    return objects.detailed(run, version, payload=payload, result=result, attempts=attempts)
