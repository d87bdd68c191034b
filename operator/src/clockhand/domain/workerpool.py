"""What a pool of workers is, as one frozen value: the parsed `WorkerPool.spec`, and the object that it is of."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from clockhand import errors
from clockhand.domain import documents, forms
from clockhand.domain.workerpool_fields import TABLE
from clockhand.domain.workerpool_fields import Dispatch as Dispatch

EVERYBODY = "*"
IMAGE_OR_TEMPLATE = "and spec.template exclude each other: name the image in the template"
FIXED_OR_SCALED = "is a fixed number, and spec.maxReplicas scales: leave one of them out"
ONLY_SCALED = "is only for a pool with spec.maxReplicas: leave it out"
LESS_THAN_MIN = "must not be less than minReplicas"
TOO_SELDOM = "must be less than half of spec.leaseSeconds, so that one lost heartbeat costs no lease"
NOT_EXTERNAL = "is not for an external pool, whose workers somebody else runs: leave it out"
NOT_OF_EXTERNAL = ("image", "template", "replicas", "maxReplicas")
NO_DOTS = "must not contain a dot: jobs name their pool by it"
ACCOUNT_PREFIX = "clockhand-pool-"


class Http(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the http handler may do."""

    allowed_hosts: tuple[str, ...] = ()
    allowed_networks: tuple[str, ...] = ()
    secret_name: str | None = None


class PoolSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One pool. None stands for "not set"."""

    handlers: tuple[str, ...] = ()
    image: str | None = None
    template: dict[str, object] | None = None
    external: bool = TABLE.default("external", bool)
    replicas: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    scale_up_after_seconds: int = TABLE.default("scaleUpAfterSeconds", int)
    scale_down_after_seconds: int = TABLE.default("scaleDownAfterSeconds", int)
    concurrency: int = TABLE.default("concurrency", int)
    termination_grace_period_seconds: int = TABLE.default("terminationGracePeriodSeconds", int)
    dispatch: Dispatch = TABLE.default("dispatch", Dispatch)
    lease_seconds: int = TABLE.default("leaseSeconds", int)
    heartbeat_seconds: int = TABLE.default("heartbeatSeconds", int)
    allowed_namespaces: tuple[str, ...] = ()
    exec_commands: dict[str, tuple[str, ...]] | None = None
    http: Http = Http()

    @property
    def fewest(self) -> int:
        """Of the workers, also where they are scaled."""
        if self.max_replicas is None:
            return 1 if self.replicas is None else self.replicas
        return min(1, self.max_replicas) if self.min_replicas is None else self.min_replicas

    @property
    def most(self) -> int:
        return self.fewest if self.max_replicas is None else self.max_replicas

    @property
    def allowed_owners(self) -> tuple[str, ...]:
        """Who may name the pool, beside its own namespace."""
        return tuple(name if name == EVERYBODY else f"k8s/{name}" for name in self.allowed_namespaces)


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """A WorkerPool as the API server showed it; `fault` says why its spec cannot be used."""

    uid: uuid.UUID
    namespace: str
    name: str
    generation: int
    resource_version: int
    status: Mapping[str, object]
    spec: PoolSpec | None
    fault: str | None = None

    @property
    def owner(self) -> str:
        return f"k8s/{self.namespace}"

    @property
    def key(self) -> str:
        return f"{self.owner}/{self.name}"

    @property
    def service_account(self) -> str | None:
        """Whose tokens may act for the pool; None where static ones alone may."""
        if self.spec is None or self.spec.external:
            return None
        pod = (self.spec.template or {}).get("spec")
        named = pod.get("serviceAccountName") if isinstance(pod, Mapping) else None
        return named if isinstance(named, str) and named else f"{ACCOUNT_PREFIX}{self.name}"


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    uid: uuid.UUID
    namespace: str
    name: str
    resource_version: int
    generation: int = 1
    deletion_timestamp: str | None = None


def from_object(raw: Mapping[str, object]) -> Pool | None:
    """A pool from the JSON of a WorkerPool, None where it is going away; InvalidInput where it is no Kubernetes object."""
    try:
        metadata = msgspec.convert(raw.get("metadata"), _Metadata, strict=False)
    except msgspec.ValidationError as error:
        raise errors.InvalidInput("metadata", str(error)) from error
    if metadata.deletion_timestamp is not None:
        return None
    fault: str | None = None
    spec: PoolSpec | None = None
    try:
        spec = _spec_of(metadata.name, raw.get("spec"))
    except errors.InvalidInput as error:
        fault = str(error)
    except RecursionError:
        fault = "spec: is nested too deep: write it flatter"
    status = raw.get("status")
    return Pool(
        uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        generation=metadata.generation,
        resource_version=metadata.resource_version,
        status=status if isinstance(status, Mapping) else {},
        spec=spec,
        fault=fault,
    )


def _spec_of(name: str, spec: object) -> PoolSpec:
    if "." in name:
        raise errors.InvalidInput("metadata.name", NO_DOTS)
    return parse(spec if isinstance(spec, Mapping) else {})


def parse(spec: Mapping[str, object]) -> PoolSpec:
    """Read a spec, or raise `InvalidInput` with the path of the field and one sentence."""
    pool = msgspec.convert(documents.check(spec, TABLE), PoolSpec)
    for field, sentence in _mistakes(pool):
        raise errors.InvalidInput(f"spec.{field}", sentence)
    forms.check(_texts(pool))
    if pool.template is not None:
        _check_template(pool.template)
    return pool


def _mistakes(pool: PoolSpec) -> Iterator[tuple[str, str]]:
    """What makes no sense together."""
    if pool.external:
        given = (pool.image, pool.template, pool.replicas, pool.max_replicas)
        yield from (
            (name, NOT_EXTERNAL) for name, value in zip(NOT_OF_EXTERNAL, given, strict=True) if value is not None
        )
    if pool.image is not None and pool.template is not None:
        yield "image", IMAGE_OR_TEMPLATE
    if pool.replicas is not None and pool.max_replicas is not None:
        yield "replicas", FIXED_OR_SCALED
    if pool.min_replicas is not None and pool.max_replicas is None:
        yield "minReplicas", ONLY_SCALED
    if pool.fewest > pool.most:
        yield "maxReplicas", LESS_THAN_MIN
    if 2 * pool.heartbeat_seconds >= pool.lease_seconds:
        yield "heartbeatSeconds", TOO_SELDOM


def _texts(pool: PoolSpec) -> Iterator[tuple[str, str | None, forms.Form]]:
    lists = (
        ("handlers", pool.handlers, forms.HANDLER),
        ("allowedNamespaces", pool.allowed_namespaces, forms.NAMESPACE),
        ("http.allowedHosts", pool.http.allowed_hosts, forms.HOST),
        ("http.allowedNetworks", pool.http.allowed_networks, forms.NETWORK),
    )
    for field, texts, form in lists:
        yield from ((f"{field}[{number}]", text, form) for number, text in enumerate(texts))
    yield from (("execCommands", name, forms.COMMAND) for name in pool.exec_commands or ())
    yield "http.secretName", pool.http.secret_name, forms.SECRET
    yield "image", pool.image, forms.IMAGE


def _check_template(template: Mapping[str, object]) -> None:
    """As far as the operator fills it in; the rest is the API server's."""
    pod, at = template["spec"], "spec.template.spec"
    assert isinstance(pod, dict)
    containers = _objects(pod, "containers", at=at)
    if not containers:
        raise errors.InvalidInput(f"{at}.containers", "must list at least one container")
    for number, container in enumerate(containers):
        for name in ("env", "ports", "volumeMounts"):
            _objects(container, name, at=f"{at}.containers[{number}]")
    _objects(pod, "volumes", at=at)
    if pod.get("restartPolicy", "Always") != "Always":
        raise errors.InvalidInput(f"{at}.restartPolicy", "must be Always: workers are kept running")


def _objects(parent: Mapping[str, object], name: str, *, at: str) -> Sequence[Mapping[str, object]]:
    found = parent.get(name) or []
    if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
        raise errors.InvalidInput(f"{at}.{name}", "must be a list of objects")
    return found
