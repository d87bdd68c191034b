"""Everything real that a fault needs: a light cluster, a PostgreSQL server, operator replicas, and jobs that fall due.

A slot comes once a minute at the soonest, so the harness makes instants due by itself: the jobs' own schedule is years away,
and `make_due` moves a job's next slot to an instant just past, as if its schedule had named that one. Everything from there
on is the product's own: it finds the slot due, fires it, and goes back to the schedule. A slot that is still due is never
moved. Jobs are also spread over the shards evenly, which the product leaves to a hash of their owner.
"""

from __future__ import annotations

import abc
import contextlib
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.faults import ground
from tests.faults.recorder import Recorder
from tests.faults.replicas import Crew, clean_environment, wait_for
from tests.support import etcd, kubeapi, light, objects, ports, postgres

from clockhand.domain import ids

ROOT = Path(__file__).parents[2]
LEASE_SECONDS = 3.0
NAMESPACE = "faults"

_KNOWN = "SELECT count(*) FROM jobs WHERE job_id = ANY(%s) AND next_slot_at IS NOT NULL"
_HELD = "SELECT count(*) FROM shard_leases WHERE holder = %s AND expires_at > now()"
_ONE_SHARD = "SELECT holder, max(shard) FROM shard_leases WHERE holder = ANY(%s) AND expires_at > now() GROUP BY holder"
_RUNNING = """
SELECT r.run_id, r.job_name, r.attempt, r.pod_uid::text AS pod_uid, s.holder
FROM live_runs r JOIN shard_leases s USING (shard)
WHERE r.job_id = ANY(%s) AND r.state = 'Running'
"""


@dataclass(frozen=True)
class Plan:
    """A job: the outcomes of its attempts in order, how many may fail, how long its pods run and stay."""

    name: str
    outcome: str = "succeed"
    attempts: int = 3
    duration: str | None = None
    kept_seconds: int = 60

    @property
    def failing(self) -> int:
        outcomes = self.outcome.split(",")
        return len(outcomes) - 1 if outcomes[-1] in ("succeed", "hang") else self.attempts

    def body(self) -> dict[str, Any]:
        retry = {"maxAttempts": self.attempts, "backoff": {"initialSeconds": 1, "factor": 1, "jitter": 0}}
        pod = objects.template(self._script(), outcome=self.outcome, duration=self.duration)
        return objects.job(self.name, pod, retry=retry, podRetention={"succeededSeconds": self.kept_seconds})

    def _script(self) -> str:
        """What kwok plays, for containers that really run."""
        lines = [f"sleep {self.duration.removesuffix('s')} & wait $!;"] if self.duration else []
        outcomes = self.outcome.split(",")
        cases = [f"{number}) {_command(outcome)};;" for number, outcome in enumerate(outcomes, 1)]
        return " ".join([*lines, "case $CLOCKHAND_ATTEMPT in", *cases, f"*) {_command(outcomes[-1])};;", "esac"])


def _command(outcome: str) -> str:
    kind, _, code = outcome.partition(":")
    return {"succeed": "exit 0", "hang": "sleep 3600 & wait $!", "exit": f"exit {code}"}[kind]


Fleet = ground.Fleet[Plan]


class Stage(ground.Ground, abc.ABC):
    """What a fault needs of any cluster: its API, the record of its pods, a database, and replicas to hurt.

    `url` is the database of the replicas, which differs from one mutant to the next.
    """

    namespace = NAMESPACE
    settle_seconds = 90.0

    def __init__(self, api: kubeapi.KubeApi, kubeconfig: Path, recorder: Recorder, directory: Path) -> None:
        super().__init__()
        self.api = api
        self.kubeconfig = kubeconfig
        self.recorder = recorder
        self.directory = directory
        self.crew: Crew
        self.known_crashes: set[str] = set()

    @property
    def jobs_path(self) -> str:
        return f"/apis/clockhand.dev/v1alpha1/namespaces/{self.namespace}/scheduledjobs"

    @property
    def pods_path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    @abc.abstractmethod
    def sync(self) -> None:
        """Returns once the recorder knows everything that is stored now."""

    @abc.abstractmethod
    def restart_postgres(self) -> None:
        """kill -9, and a start on the same data."""

    @abc.abstractmethod
    def restart_apiserver(self) -> None:
        """kill -9, and a start on the same data."""

    def environment(self) -> dict[str, str]:
        """Of a replica."""
        return {
            **clean_environment(),
            "CLOCKHAND_DATABASE_URL": self.url,
            "CLOCKHAND_DATABASE_POOL": "6",
            "CLOCKHAND_KUBECONFIG": str(self.kubeconfig),
            "CLOCKHAND_SHARD_LEASE": f"{LEASE_SECONDS:g}",
            "CLOCKHAND_HEALTH_PORT": "0",
        }

    @contextlib.contextmanager
    def fleet(self, plans: Sequence[Plan]) -> Iterator[Fleet]:
        """Jobs made by the API and mirrored by a replica; afterwards they and their pods are deleted."""
        made = [self.api.call("POST", self.jobs_path, plan.body()) for plan in plans]
        fleet = Fleet({uuid.UUID(one["metadata"]["uid"]): plan for one, plan in zip(made, plans, strict=True)})
        try:
            wait_for("the mirror to store the jobs", lambda: self._count(_KNOWN, fleet.ids) == len(plans))
            self._spread(fleet.ids)
            yield fleet
        finally:
            for plan in plans:
                self.delete(f"{self.jobs_path}/{plan.name}")
            self.delete(f"{self.pods_path}?gracePeriodSeconds=0")

    def delete(self, path: str) -> None:
        """Deletes what is there; an API server that is slow to answer is asked again."""

        def gone() -> bool:
            try:
                self.api.call("DELETE", path)
            except kubeapi.ApiError as error:
                return error.status == 404
            except OSError:
                return False
            return True

        wait_for(f"{path} to be deleted", gone)

    def running(self, fleet: Fleet) -> list[Any]:
        """Runs that are stored as Running: run_id, job_name, attempt, pod_uid, and who holds their shard."""
        return self.query(_RUNNING, fleet.ids)

    def held_by(self, name: str) -> int:
        """How many shards a replica holds."""
        return self._count(_HELD, name)

    def deal(self, fleet: Fleet, names: Sequence[str]) -> None:
        """Gives each of these replicas jobs of each kind, in a shard that it holds now, and as many to nobody."""
        held: dict[str, int] = dict(self.query(_ONE_SHARD, list(names)))
        jobs = sorted(fleet.ids, key=lambda job_id: fleet.plans[job_id].name)
        places = [held.get((*names, "")[n % (len(names) + 1)]) for n in range(len(jobs))]
        step = ids.SHARDS / len(jobs)
        self._place(jobs, [int(n * step) if place is None else place for n, place in enumerate(places)])


class Arena(Stage):
    """A stage of one's own: a light cluster, a PostgreSQL server, and a database for each crew."""

    def __init__(
        self,
        cluster: light.LightCluster,
        server: postgres.PostgresServer,
        *,
        storage: etcd.EtcdWatch,
        recorder: Recorder,
        directory: Path,
    ) -> None:
        super().__init__(cluster.api, cluster.kubeconfig, recorder, directory)
        self._cluster = cluster
        self._server = server
        self._storage = storage

    @contextlib.contextmanager
    def database(self, *changes: str, mutations: Sequence[str] = ()) -> Iterator[None]:
        """A new database, changed by statements, with a crew of its own; both are gone afterwards."""
        name = self._server.new_database()
        self.url = self._server.url(name)
        migrate(self.url)
        for change in changes:
            self._server.execute(change, database=name)
        directory = self.directory / name
        directory.mkdir()
        self.crew = Crew(self.environment(), directory, mutations=mutations)
        try:
            yield
        finally:
            self.crew.close()
            self._server.drop_database(name)

    def restart_postgres(self) -> None:
        self._server.kill()
        self._server.start()

    def restart_apiserver(self) -> None:
        self._cluster.restart_apiserver()

    def sync(self) -> None:
        storage = self._storage
        wait_for("the record of pods", lambda: storage.failure or storage.seen >= storage.revision())
        if storage.failure is not None:
            raise RuntimeError("the record of pods has a gap") from storage.failure


@contextlib.contextmanager
def arena(logs: Path | None = None) -> Iterator[Arena]:
    """From nothing, and nothing afterwards but the replicas' logs in `logs`."""
    port = ports.free_row(1)
    settings = light.LightSettings(etcd_port=port, apiserver_flags=("--storage-media-type=application/json",))
    recorder = Recorder()
    with (
        tempfile.TemporaryDirectory(prefix="clockhand-faults-") as directory,
        light.LightCluster(settings) as cluster,
        postgres.server() as server,
        etcd.EtcdWatch(port, f"/registry/pods/{NAMESPACE}/", recorder.note) as storage,
    ):
        made = Arena(cluster, server, storage=storage, recorder=recorder, directory=Path(directory))
        _define(cluster.api)
        prepare(made)
        try:
            yield made
        finally:
            if logs is not None:
                shutil.copytree(directory, logs, dirs_exist_ok=True)


def prepare(stage: Stage) -> None:
    """Makes its namespace; the definition of ScheduledJob must be there."""
    namespace, api = stage.namespace, stage.api
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    wait_for("the resource to be served", lambda: api.answers(stage.jobs_path))
    wait_for("the service account", lambda: api.answers(f"/api/v1/namespaces/{namespace}/serviceaccounts/default"))


def _define(api: kubeapi.KubeApi) -> None:
    definition = yaml.safe_load((ROOT / "crds" / "scheduledjob.yaml").read_text())
    api.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)


def migrate(url: str) -> None:
    """Makes the schema in an empty database."""
    environment = {**clean_environment(), "CLOCKHAND_DATABASE_URL": url}
    subprocess.run([sys.executable, "-m", "clockhand", "migrate"], check=True, env=environment, capture_output=True)
