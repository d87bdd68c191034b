"""The kinds of objects that the small API server has, and what is particular about each."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any

import msgspec

from clockhand.domain import crd, definition, jobclass_crd, workerpool_crd

Json = dict[str, Any]
READ = ("get", "list", "watch")
WRITE = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kind:
    """One kind. `schema` is the name of its definition; `custom` is set for those that a CustomResourceDefinition makes."""

    group: str
    version: str
    kind: str
    plural: str
    schema: str
    short_names: tuple[str, ...] = ()
    namespaced: bool = True
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = WRITE
    subresources: tuple[str, ...] = ("status",)
    counts_generations: bool = False
    custom: definition.Resource | None = None

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """Its name among all: `pods`, `deployments.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified(self) -> str:
        """What messages call an object of it: `Pod`, `ScheduledJob.clockhand.dev`."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def path(self) -> str:
        """Where its group and version begin: `api/v1`, `apis/apps/v1`."""
        return f"apis/{self.api_version}" if self.group else f"api/{self.version}"


def _core(kind: str, plural: str, *short: str, **more: Any) -> Kind:
    return Kind(
        group="", version="v1", kind=kind, plural=plural, schema=f"io.k8s.api.core.v1.{kind}", short_names=short, **more
    )


def _custom(resource: definition.Resource) -> Kind:
    return Kind(
        group=definition.GROUP,
        version=definition.VERSION,
        kind=resource.kind,
        plural=resource.plural,
        schema=f"dev.clockhand.{definition.VERSION}.{resource.kind}",
        short_names=(resource.short_name,),
        namespaced=resource.namespaced,
        subresources=(*(() if resource.status is None else ("status",)), *resource.subresources),
        counts_generations=True,
        custom=resource,
    )


PODS = _core("Pod", "pods", "po", categories=("all",), subresources=("status", "log"), counts_generations=True)
NAMESPACES = _core("Namespace", "namespaces", "ns", namespaced=False, subresources=("status", "finalize"))
LASTING_NAMESPACES = ("default", "kube-system")
"""Those that are always there."""
ACCOUNTS = _core("ServiceAccount", "serviceaccounts", "sa", subresources=("token",))
EVENTS = _core("Event", "events", "ev", subresources=())
DEPLOYMENTS = Kind(
    group="apps",
    version="v1",
    kind="Deployment",
    plural="deployments",
    schema="io.k8s.api.apps.v1.Deployment",
    short_names=("deploy",),
    categories=("all",),
    subresources=("status", "scale"),
    counts_generations=True,
)
DEFINITIONS = Kind(
    group="apiextensions.k8s.io",
    version="v1",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
    schema="io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
    short_names=("crd", "crds"),
    namespaced=False,
    verbs=READ,
)
API_SERVICES = Kind(
    group="apiregistration.k8s.io",
    version="v1",
    kind="APIService",
    plural="apiservices",
    schema="io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.APIService",
    namespaced=False,
    verbs=READ,
)
SCHEDULED_JOBS = _custom(crd.RESOURCE)
WORKER_POOLS = _custom(workerpool_crd.RESOURCE)
JOB_CLASSES = _custom(jobclass_crd.RESOURCE)
ALL: Sequence[Kind] = (
    PODS,
    NAMESPACES,
    ACCOUNTS,
    EVENTS,
    _core("ConfigMap", "configmaps", "cm", subresources=()),
    _core("Secret", "secrets", subresources=()),
    _core("Node", "nodes", "no", namespaced=False),
    _core("Service", "services", "svc", verbs=READ),
    DEPLOYMENTS,
    Kind(
        group="apps",
        version="v1",
        kind="ReplicaSet",
        plural="replicasets",
        schema="io.k8s.api.apps.v1.ReplicaSet",
        short_names=("rs",),
        categories=("all",),
        counts_generations=True,
    ),
    Kind(
        group="policy",
        version="v1",
        kind="PodDisruptionBudget",
        plural="poddisruptionbudgets",
        schema="io.k8s.api.policy.v1.PodDisruptionBudget",
        short_names=("pdb",),
        counts_generations=True,
    ),
    Kind(
        group="coordination.k8s.io",
        version="v1",
        kind="Lease",
        plural="leases",
        schema="io.k8s.api.coordination.v1.Lease",
        subresources=(),
    ),
    DEFINITIONS,
    API_SERVICES,
    SCHEDULED_JOBS,
    WORKER_POOLS,
    JOB_CLASSES,
)
BY_PATH: Mapping[tuple[str, str], Kind] = MappingProxyType({(kind.path, kind.plural): kind for kind in ALL})
BY_RESOURCE: Mapping[str, Kind] = MappingProxyType({kind.resource: kind for kind in ALL})


@functools.cache
def definitions() -> Mapping[str, Json]:
    """The schemas of all kinds by name: those that Kubernetes publishes, and ours as its definitions say them."""
    published = _read("definitions.json")
    ours = {kind.schema: _published(kind) for kind in ALL if kind.custom is not None}
    return MappingProxyType({**published, **ours})


@functools.cache
def wire() -> Mapping[str, Mapping[str, tuple[str, str, str]]]:
    """The numbers of fields in protobuf."""
    return MappingProxyType(_read("wire.json"))


@functools.cache
def structural(kind: Kind) -> Json:
    """The schema of a custom kind as its definition has it."""
    assert kind.custom is not None
    built: Any = definition.build(kind.custom)
    schema: Json = built["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def _published(kind: Kind) -> Json:
    """As Kubernetes publishes it: with what its metadata is, and of which kind it is."""
    schema = structural(kind)
    meta = {"allOf": [{"$ref": f"#/components/schemas/{META}"}]}
    named = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    properties = {**schema["properties"], "metadata": meta}
    return {**schema, "properties": properties, "x-kubernetes-group-version-kind": [named]}


def _read(name: str) -> Any:
    return msgspec.json.decode(resources.files(__package__).joinpath(name).read_bytes())
