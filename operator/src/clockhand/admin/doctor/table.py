"""Every check, in the order in which they are made; docs/doctor.md shows the same."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from clockhand.admin.doctor import cluster, contradictions, server, serving, upkeep, work
from clockhand.admin.doctor.patient import Patient
from clockhand.domain.findings import Finding


@dataclass(frozen=True, slots=True)
class Remedy:
    """What can be done about it safely, however often: `mend` says what it did."""

    does: str
    mend: Callable[[Patient], Awaitable[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to look at, once the checks that it `needs` are not in error."""

    name: str
    look: Callable[[Patient], Awaitable[Finding]]
    needs: tuple[str, ...] = ()
    remedy: Remedy | None = None

    @property
    def text(self) -> str:
        """Why it is looked at."""
        return (self.look.__doc__ or "").strip()


_SERVER = ("database",)
_TABLES = ("database", "schema")
_CLUSTER = ("kubernetes",)
_BOTH = (*_TABLES, *_CLUSTER)

CHECKS: Sequence[Check] = (
    Check("database", server.database),
    Check("durability", server.durability, _SERVER),
    Check("standby", server.standby, _SERVER),
    Check("timeouts", server.timeouts, _SERVER),
    Check("autovacuum", server.autovacuum, _SERVER),
    Check("snapshots", server.snapshots, _SERVER),
    Check("replication-slots", server.slots, _SERVER),
    Check("host-clock", server.host_clock, _SERVER),
    Check("schema", upkeep.schema, _SERVER),
    Check("connections", server.connections, _TABLES),
    Check("clock", upkeep.clock, _TABLES),
    Check("epoch", upkeep.epoch, _TABLES),
    Check(
        "table-settings",
        upkeep.table_settings,
        _TABLES,
        Remedy("set the storage parameters of the tables back", upkeep.restore_settings),
    ),
    Check("bloat", upkeep.bloat, _TABLES, Remedy("vacuum and analyse those tables", upkeep.vacuum)),
    Check(
        "partitions",
        upkeep.weeks,
        _TABLES,
        Remedy("make the partitions that are missing, and drop those that were detached", upkeep.make_weeks),
    ),
    Check("kept", upkeep.kept, _TABLES, Remedy("delete what was kept for more than a day", upkeep.forget_kept)),
    Check("tokens", upkeep.tokens, _TABLES),
    Check("limits", upkeep.limits),
    Check("replicas", work.replicas, _TABLES),
    Check("shards", work.shards, _TABLES),
    Check("worker-leases", work.worker_leases, _TABLES),
    Check("overdue", work.overdue, _TABLES),
    Check("parked", work.parked, _TABLES),
    Check("changes", work.changes, _TABLES, Remedy("number the changes that can be numbered", work.number_changes)),
    Check("conflicts", work.conflicts, _TABLES),
    Check("kubernetes", cluster.kubernetes),
    Check("rights", cluster.permissions, _CLUSTER),
    Check("definitions", cluster.definitions, _CLUSTER),
    Check("runs-api", cluster.runs_api, _CLUSTER),
    Check("certificates", cluster.certificates, _CLUSTER),
    Check("served-certificate", serving.certificate, _CLUSTER),
    Check("admission", cluster.admission, _CLUSTER),
    Check("objects-without-job", contradictions.objects_without_job, _BOTH),
    Check("jobs-without-object", contradictions.jobs_without_object, _BOTH),
    Check("runs-without-pod", contradictions.runs_without_pod, _BOTH),
    Check(
        "pods-without-run",
        contradictions.pods_without_run,
        _BOTH,
        Remedy("delete pods that go on although their attempt is over", contradictions.delete_pods),
    ),
)
BY_NAME: Mapping[str, Check] = MappingProxyType({check.name: check for check in CHECKS})
