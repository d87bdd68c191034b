"""From a job's template to the body of one attempt's pod, and back from a pod to the attempt it belongs to.

The name is a pure function of run and attempt, so that a create repeated by anybody meets `AlreadyExists`
instead of making a second pod. A body is rendered once per job generation with gaps where runs differ;
filling the gaps costs microseconds, which matters when thousands of runs fall due in one second.
"""

from __future__ import annotations

import base64
import collections.abc
import copy
import hashlib
import typing
import uuid
from dataclasses import dataclass
from datetime import datetime

import msgspec

from clockhand import errors
from clockhand.domain import instants, observed

MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "clockhand"
JOB_LABEL = "clockhand.dev/job"
SELECTOR = f"{MANAGED_BY_LABEL}={MANAGED_BY}"
RESERVED_PREFIX = "clockhand.dev/"
_NAME_CUT = 40
_HASH_CHARACTERS = 13
_TEMPLATE = "spec.template"
_CONTAINERS = ("containers", "initContainers")
_RUN_ENVIRONMENT = (
    "RUN_ID",
    "RUN_NAME",
    "JOB",
    "NAMESPACE",
    "SCHEDULED_AT",
    "ATTEMPT",
    "FENCING_TOKEN",
    "PAYLOAD",
)
TRACEPARENT = "TRACEPARENT"
"""Where runs are traced; OpenTelemetry's name for it."""
ENVIRONMENT_NAMES = frozenset(f"CLOCKHAND_{name}" for name in _RUN_ENVIRONMENT)

Json = dict[str, typing.Any]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What differs from one attempt's pod to the next. `payload` is JSON text."""

    run_id: uuid.UUID
    run_name: str
    job_uid: uuid.UUID
    attempt: int
    token: int
    fencing_token: int
    shard: int
    scheduled_at: datetime
    payload: bytes = b"{}"
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class Keep:
    """How long finished pods stay: succeeded ones for a while, of the failed ones the newest few of each job.

    The pod carries it, so that clearing away needs no look at a job that may be gone.
    """

    succeeded_seconds: int = 60
    failed_count: int = 3

    def text(self) -> str:
        return f"{self.succeeded_seconds}/{self.failed_count}"


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """Which attempt a pod says it is."""

    run_id: uuid.UUID
    job_uid: uuid.UUID
    attempt: int
    token: int
    shard: int


_KEEP = Keep()


def pod_name(job_name: str, run_id: uuid.UUID, attempt: int) -> str:
    """The one name that this attempt's pod can have."""
    stem = job_name[:_NAME_CUT].replace(".", "-").strip("-").lower()
    digest = hashlib.sha256(run_id.bytes).digest()
    mark = base64.b32encode(digest).decode().lower()[:_HASH_CHARACTERS]
    return f"{stem}-{mark}-{attempt}" if stem else f"{mark}-{attempt}"


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """A body with gaps: `pieces` alternates fixed text and the name of what belongs in between."""

    namespace: str
    job: str
    main_container: str
    pieces: tuple[bytes, ...]
    gaps: tuple[str, ...]

    def name_for(self, run: RunFacts) -> str:
        return pod_name(self.job, run.run_id, run.attempt)

    def body_for(self, run: RunFacts) -> bytes:
        """The JSON of this attempt's pod."""
        values = {
            "name": _quoted(self.name_for(run)),
            "run-id": _quoted(str(run.run_id)),
            "job-uid": _quoted(str(run.job_uid)),
            "attempt": _quoted(str(run.attempt)),
            "token": _quoted(str(run.token)),
            "shard": _quoted(str(run.shard)),
            "environment": self._environment(run),
        }
        parts = [self.pieces[0]]
        for gap, piece in zip(self.gaps, self.pieces[1:], strict=True):
            parts += (values[gap], piece)
        return b"".join(parts)

    def probe(self) -> bytes:
        """A body for asking the API server, by a dry run, whether it would take this template at all."""
        nothing = uuid.UUID(int=0)
        facts = RunFacts(nothing, self.job, nothing, 0, 0, 0, 0, instants.EPOCH)
        return self.body_for(facts)

    def _environment(self, run: RunFacts) -> bytes:
        values = (
            str(run.run_id),
            run.run_name,
            self.job,
            self.namespace,
            instants.rfc3339_ms(run.scheduled_at),
            str(run.attempt),
            str(run.fencing_token),
            run.payload.decode(),
        )
        entries = [
            # Kubernetes expands $(NAME) in values and reads $$ as one dollar sign.
            {"name": f"CLOCKHAND_{name}", "value": value.replace("$", "$$")}
            for name, value in zip(_RUN_ENVIRONMENT, values, strict=True)
        ]
        if run.traceparent is not None:
            entries.append({"name": TRACEPARENT, "value": run.traceparent})
        return msgspec.json.encode(entries)[1:-1]


def render_template(
    template: collections.abc.Mapping[str, typing.Any], *, namespace: str, job: str, keep: Keep = _KEEP
) -> PodTemplate:
    """Render a PodTemplateSpec for one generation of `job`; refuses what it cannot render."""
    metadata = _mapping(template.get("metadata"), f"{_TEMPLATE}.metadata")
    spec = copy.deepcopy(_mapping(template.get("spec"), f"{_TEMPLATE}.spec"))
    annotations = _own_kind(metadata, "annotations") | {observed.KEEP: keep.text()}
    main = _main_container(spec, annotations)
    _demand_never(spec)
    for key in _CONTAINERS:
        for container in _containers(spec, key):
            _make_room(container, f"{_TEMPLATE}.spec.{key}.env")
    labels = _own_kind(metadata, "labels") | {MANAGED_BY_LABEL: MANAGED_BY, JOB_LABEL: job}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": None, "namespace": namespace, "labels": labels, "annotations": annotations},
        "spec": spec,
    }
    pieces, gaps = _cut(body)
    return PodTemplate(namespace, job, main, pieces, gaps)


def main_container(template: collections.abc.Mapping[str, typing.Any]) -> Json:
    """The container of a template whose exit code is the outcome."""
    spec = _mapping(template.get("spec"), f"{_TEMPLATE}.spec")
    name = _main_container(spec, _own_kind(_mapping(template.get("metadata"), f"{_TEMPLATE}.metadata"), "annotations"))
    return next(one for one in _containers(spec, "containers") if str(one.get("name", "")) == name)


def keep_of(pod: observed.Pod) -> Keep:
    """What the pod says of its own retention; the defaults where it says nothing readable."""
    seconds, _, count = pod.metadata.marks.keep.partition("/")
    try:
        return Keep(int(seconds), int(count))
    except ValueError:
        return _KEEP


def identity_of(pod: observed.Pod) -> PodIdentity | None:
    """None for a pod that carries no complete, readable identity: it is not ours."""
    marks = pod.metadata.marks
    try:
        return PodIdentity(
            run_id=uuid.UUID(marks.run_id),
            job_uid=uuid.UUID(marks.job_uid),
            attempt=int(marks.attempt),
            token=int(marks.token),
            shard=int(marks.shard),
        )
    except ValueError:
        return None


def belongs_to(pod: observed.Pod, run: RunFacts) -> bool:
    """Whether this is the pod of exactly this attempt; the shard may have changed since."""
    identity = identity_of(pod)
    return identity is not None and (
        (identity.run_id, identity.job_uid, identity.attempt, identity.token)
        == (run.run_id, run.job_uid, run.attempt, run.token)
    )


def _cut(body: Json) -> tuple[tuple[bytes, ...], tuple[str, ...]]:
    """Put a mark in each gap, render, and cut at the marks.

    The mark holds a hash of the body, so no body can contain its own mark by accident or on purpose.
    """
    mark = hashlib.sha256(msgspec.json.encode(body)).hexdigest()

    def gap(name: str) -> str:
        return f"{mark}:{name}"

    body["metadata"]["name"] = gap("name")
    for name in ("run-id", "job-uid", "attempt", "token", "shard"):
        body["metadata"]["annotations"][RESERVED_PREFIX + name] = gap(name)
    for key in _CONTAINERS:
        for container in _containers(body["spec"], key):
            container["env"].insert(0, gap("environment"))
    first, *rest = msgspec.json.encode(body).split(f'"{mark}:'.encode())
    gaps_and_pieces = [part.partition(b'"') for part in rest]
    return (first, *(piece for _, _, piece in gaps_and_pieces)), tuple(name.decode() for name, _, _ in gaps_and_pieces)


def _mapping(value: object, field: str) -> Json:
    if value is None:
        return {}
    if not isinstance(value, collections.abc.Mapping):
        raise errors.InvalidInput(field, "must be an object")
    return dict(value)


def _own_kind(metadata: Json, kind: str) -> dict[str, str]:
    """The user's labels or annotations; names under our prefix would be taken for ours."""
    field = f"{_TEMPLATE}.metadata.{kind}"
    pairs = _mapping(metadata.get(kind), field)
    for name in pairs:
        if str(name).startswith(RESERVED_PREFIX):
            raise errors.InvalidInput(f"{field}.{name}", f"names under {RESERVED_PREFIX} are set by Clockhand")
    return pairs


def _containers(spec: Json, key: str) -> list[Json]:
    field = f"{_TEMPLATE}.spec.{key}"
    containers = spec.get(key) or []
    if not isinstance(containers, list) or not all(isinstance(one, dict) for one in containers):
        raise errors.InvalidInput(field, "must be a list of containers")
    return containers


def _main_container(spec: Json, annotations: dict[str, str]) -> str:
    """The container whose exit code is the outcome."""
    names = [str(one.get("name", "")) for one in _containers(spec, "containers")]
    if not names:
        raise errors.InvalidInput(f"{_TEMPLATE}.spec.containers", "must name at least one container")
    chosen = annotations.get(observed.DEFAULT_CONTAINER, names[0])
    if chosen not in names:
        raise errors.InvalidInput(
            f"{_TEMPLATE}.metadata.annotations.{observed.DEFAULT_CONTAINER}",
            f"names no container of this template: {chosen}",
        )
    return chosen


def _demand_never(spec: Json) -> None:
    """A container restarted in place would be an attempt that nobody counts."""
    policy = spec.setdefault("restartPolicy", "Never")
    if policy != "Never":
        raise errors.InvalidInput(
            f"{_TEMPLATE}.spec.restartPolicy",
            f"must be Never, not {policy}: attempts are counted by spec.retry",
        )


def _make_room(container: Json, field: str) -> None:
    environment = container.get("env") or []
    if not isinstance(environment, list) or not all(_is_named(one) for one in environment):
        raise errors.InvalidInput(field, "must be a list of names and values")
    container["env"] = [one for one in environment if one["name"] not in ENVIRONMENT_NAMES]


def _is_named(entry: object) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("name"), str)


def _quoted(text: str) -> bytes:
    return msgspec.json.encode(text)
