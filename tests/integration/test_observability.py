"""Traces and logs of real processes: one trace a run, whichever of them dies, and each line about a run names it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.support import generated, local_kube, otlp, ports, postgres, workers_api
from tests.support import kubectl as kubectls
from tests.support.crd_cases import job

from clockhand.domain import tokens
from clockhand.standalone.nodes import kubelet
from clockhand.store import database

Json = dict[str, Any]
OWNER, POOL = "k8s/default", "mailers"
SECRET = "what-no-line-may-say"
PARENT = "4bf92f3577b34da6a3ce929d0e0e4736"
SECONDS = 60.0
TWICE = {"maxAttempts": 2, "backoff": {"initialSeconds": 1, "maxSeconds": 1, "jitter": 0}}


class Scene:
    """An operator, an API and a worker, which all trace, and a cluster of one node."""

    def __init__(self, folder: Path, url: str, kube: local_kube.LocalKube, traces: otlp.Receiver) -> None:
        self.folder, self.url, self.kubectl, self.traces = folder, url, kube.kubectl, traces
        self.port, self._health = ports.free(2)
        self.secrets = asyncio.run(_make_tokens(url))
        self._api: subprocess.Popen[bytes] | None = None

    def environment(self, **settings: str) -> Mapping[str, str]:
        own = {f"CLOCKHAND_{name.upper()}": value for name, value in settings.items()}
        return {"PATH": os.environ["PATH"], **self.tracing, **own}

    @property
    def tracing(self) -> Mapping[str, str]:
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.traces.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "100"}

    def start_api(self) -> None:
        settings = {"database_url": self.url, "api_port": f"{self.port}", "health_port": f"{self._health}"}
        self._api = self.process("api", self.environment(**settings))
        kubectls.wait_for("the API", self._is_ready)

    def kill_api(self) -> None:
        assert self._api is not None
        self._api.send_signal(signal.SIGKILL)
        self._api.wait()

    def start_worker(self) -> subprocess.Popen[bytes]:
        settings = {
            "api_url": f"http://127.0.0.1:{self.port}",
            "pool": f"default/{POOL}",
            "token": self.secrets[tokens.Role.WORKER],
            "handlers": "tests.support.mail_worker:worker",
            "health_port": "0",
        }
        beside = {"PYTHONPATH": str(generated.ROOT), "EFFECTS": str(self.folder)}
        return self.process("worker", {**self.environment(**settings), **beside})

    def process(self, what: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{what}.log").open("ab") as log:
            return subprocess.Popen([sys.executable, "-m", "clockhand", what], env=environment, stdout=log, stderr=log)

    def stop(self) -> None:
        if self._api is not None:
            self._api.terminate()
            self._api.wait()

    def get(self, path: str) -> None:
        headers = {
            "Authorization": f"Bearer {self.secrets[tokens.Role.VIEWER]}",
            "traceparent": f"00-{PARENT}-{1:016x}-01",
        }
        urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers=headers)).close()

    def run_of(self, name: str, state: str) -> Json:
        """The run of a job, once it is in this state."""
        return kubectls.wait_for(f"a run of {name} that is {state}", lambda: self._run(name, state))

    def lines(self, what: str) -> Sequence[Json]:
        """What a process logged, of that which is JSON."""
        found = []
        for line in (self.folder / f"{what}.log").read_text().splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return found

    def _run(self, name: str, state: str) -> Json | None:
        text = "SELECT run_id, name, attempt FROM runs WHERE job_name = %s AND state = %s"
        with psycopg.connect(self.url) as connection:
            row = connection.execute(text, (name, state)).fetchone()
        return None if row is None else {"run_id": str(row[0]), "trace": row[0].hex, "run": row[1], "attempt": row[2]}

    def _is_ready(self) -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self._health}/readyz", timeout=5).close()
        except (urllib.error.URLError, ConnectionError):
            return False
        return True


async def _make_tokens(url: str) -> Mapping[tokens.Role, str]:
    db = database.Database(url, size=1, name="test")
    await db.open()
    try:
        return {role: await workers_api.make_token(db, owner=OWNER, role=role, pool=POOL) for role in tokens.Role}
    finally:
        await db.close()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("scene")
    with postgres.server() as server, otlp.receiving() as traces:
        url = server.url(server.new_database())
        local_kube.migrate(url)
        node = kubelet.maker(folder / "node", environment=dict(os.environ))
        with local_kube.running(folder, url, node) as kube:
            one = Scene(folder, url, kube, traces)
            with local_kube.operator(folder, url, kube.kubeconfig, one.tracing):
                one.start_api()
                worker = one.start_worker()
                try:
                    _apply(one)
                    yield one
                finally:
                    worker.terminate()
                    worker.wait()
                    one.stop()


def _apply(scene: Scene) -> None:
    """Every job at once: each runs when it is made."""
    pool = {
        "apiVersion": "clockhand.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": POOL},
        "spec": {"handlers": ["fail", "wait"], "external": True},
    }
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    once = {"schedule": None, "template": None, "at": at}
    pod = {"containers": [{"name": "main", "image": "any", "command": ["sh", "-c", "echo at $TRACEPARENT; exit 3"]}]}
    scene.kubectl.apply(pool)
    payload = {"as": SECRET}
    scene.kubectl.apply(job("mail", **once, pool=POOL, handler="fail", retry=TWICE, payload=payload))
    scene.kubectl.apply(job("pod", **{**once, "template": {"spec": pod}}, retry=TWICE, payload=payload))


def spans_of(scene: Scene, trace: str, **counts: int) -> Sequence[otlp.Span]:
    """The spans of a trace, once there are so many of each name."""

    def whole() -> Sequence[otlp.Span] | None:
        found = scene.traces.of_trace(trace)
        names = [span.name for span in found]
        return found if all(names.count(name.replace("_", " ")) == count for name, count in counts.items()) else None

    return kubectls.wait_for(f"{counts} of {trace}: {scene.traces.of_trace(trace)}", whole, seconds=SECONDS)


def hangs_together(spans: Sequence[otlp.Span]) -> bool:
    """Whether each span is below another one, but for that of the run."""
    known = {span.span_id for span in spans}
    return all(span.parent_id in known for span in spans if span.name != "run") and len(known) == len(spans)


def test_the_api_and_the_worker_meet_in_the_trace_of_a_run(scene: Scene) -> None:
    run = scene.run_of("mail", "Dead")
    spans = spans_of(scene, run["trace"], run=1, attempt=2, claim=2, report=1, handler_fail=2)
    assert hangs_together(spans)
    assert {span.service for span in spans} == {"clockhand-api", "clockhand-worker"}
    [whole] = [span for span in spans if span.name == "run"]
    assert (whole.parent_id, whole.failed) == ("", True)
    assert whole.attributes["clockhand.state"] == "Dead"
    assert {span.attributes["clockhand.run_id"] for span in spans} == {run["run_id"]}
    assert all(span.failed for span in spans if span.name == "handler fail")
    assert SECRET not in "".join(span.said for span in spans)


def test_the_operator_and_the_pod_meet_in_the_trace_of_a_run(scene: Scene) -> None:
    run = scene.run_of("pod", "Dead")
    spans = spans_of(scene, run["trace"], run=1, attempt=2, launch=2, report=1)
    assert hangs_together(spans)
    assert {span.service for span in spans} == {"clockhand-operator"}
    attempts = {span.attributes["clockhand.attempt"]: span.span_id for span in spans if span.name == "attempt"}
    with psycopg.connect(scene.url) as connection:
        rows = connection.execute(
            "SELECT attempt, log_tail FROM attempts WHERE run_id = %s", (run["run_id"],)
        ).fetchall()
    told = {number: tail.strip() for number, tail in rows}
    assert told == {number: f"at 00-{run['trace']}-{span}-03" for number, span in attempts.items()}


def test_a_run_stays_one_trace_when_the_api_dies_under_it(scene: Scene) -> None:
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    scene.kubectl.apply(job("long", schedule=None, template=None, at=at, pool=POOL, handler="wait"))
    kubectls.wait_for("its handler", lambda: "long 1 begun" in _effects(scene))
    [claimed] = kubectls.wait_for("the claim", lambda: [s for s in scene.traces.named("claim") if _is_of(s, "long")])
    scene.kill_api()
    scene.start_api()
    (scene.folder / "go").touch()
    run = scene.run_of("long", "Succeeded")
    spans = spans_of(scene, run["trace"], run=1, attempt=1, claim=1, report=1, handler_wait=1)
    assert claimed in spans
    assert hangs_together(spans)


def _effects(scene: Scene) -> str:
    path = scene.folder / "effects"
    return path.read_text() if path.exists() else ""


def _is_of(span: otlp.Span, name: str) -> bool:
    return bool(span.attributes.get("clockhand.job") == name)


def test_calls_and_batches_are_traces_of_their_own(scene: Scene) -> None:
    scene.get("/v1/jobs")
    [call] = kubectls.wait_for("the call", lambda: scene.traces.of_trace(PARENT))
    assert (call.service, call.attributes["http.response.status_code"]) == ("clockhand-api", 200)
    for name in ("fire", "claim"):
        assert any(span.service == "clockhand-operator" for span in scene.traces.named(name))


@pytest.mark.parametrize(
    ("name", "what", "events"),
    [
        ("mail", "api", ["attempt_failed", "run_ended"]),
        ("mail", "worker", ["attempt_not_well", "attempt_not_well"]),
        ("pod", "operator", ["attempt_failed", "run_ended"]),
    ],
)
def test_every_line_about_a_run_names_it(scene: Scene, name: str, what: str, events: Sequence[str]) -> None:
    run = scene.run_of(name, "Dead")
    lines = [line for line in scene.lines(what) if run["run_id"] in str(line) or run["run"] in str(line)]
    assert [line["event"] for line in lines] == events
    for line in lines:
        assert (line["run_id"], line["run"], line["job"], line["owner"]) == (run["run_id"], run["run"], name, OWNER)
    assert [line["attempt"] for line in lines] == [1, 2]


def test_no_line_has_a_payload_or_a_token(scene: Scene) -> None:
    scene.run_of("mail", "Dead")
    scene.run_of("pod", "Dead")
    said = "".join((scene.folder / f"{what}.log").read_text() for what in ("operator", "api", "worker"))
    assert SECRET not in said.replace(f"mail: looking for {SECRET}", "")  # what a handler logs is its own
    for secret in scene.secrets.values():
        assert secret not in said
