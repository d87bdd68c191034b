"""The part of a pod's object that decides how its processes are run. What else it says has no meaning here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from clockhand import errors
from clockhand.domain import observed, workloads

Json = Mapping[str, Any]


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    """A part of the object, by Kubernetes' names."""


class Named(_Part, frozen=True):
    """An object in the pod's namespace."""

    name: str = ""
    optional: bool = False


class KeyReference(Named, frozen=True, kw_only=True):
    key: str


class FieldReference(_Part, frozen=True):
    field_path: str


class Origin(_Part, frozen=True):
    """Where the value of a variable comes from."""

    field_ref: FieldReference | None = None
    config_map_key_ref: KeyReference | None = None
    secret_key_ref: KeyReference | None = None


class Variable(_Part, frozen=True):
    name: str
    value: str = ""
    value_from: Origin | None = None


class Variables(_Part, frozen=True):
    """All keys of an object as variables."""

    prefix: str = ""
    config_map_ref: Named | None = None
    secret_ref: Named | None = None


class Mount(_Part, frozen=True):
    name: str
    mount_path: str
    sub_path: str = ""


class HttpGet(_Part, frozen=True):
    port: int | str
    path: str = "/"
    scheme: str = "HTTP"


class Exec(_Part, frozen=True):
    command: tuple[str, ...] = ()


class TcpSocket(_Part, frozen=True):
    port: int | str


class Probe(_Part, frozen=True):
    http_get: HttpGet | None = None
    exec: Exec | None = None
    tcp_socket: TcpSocket | None = None
    initial_delay_seconds: int = 0
    period_seconds: int = 10
    timeout_seconds: int = 1
    success_threshold: int = 1
    failure_threshold: int = 3


class Port(_Part, frozen=True):
    container_port: int
    name: str = ""


class Container(_Part, frozen=True):
    name: str
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[Variable, ...] = ()
    env_from: tuple[Variables, ...] = ()
    volume_mounts: tuple[Mount, ...] = ()
    ports: tuple[Port, ...] = ()
    restart_policy: str = ""
    readiness_probe: Probe | None = None
    termination_message_path: str = "/dev/termination-log"
    termination_message_policy: str = "File"

    @property
    def is_sidecar(self) -> bool:
        """Of init containers: one that goes on beside the others."""
        return self.restart_policy == "Always"


class Item(_Part, frozen=True):
    """A key, or a field, and the file that it becomes."""

    path: str
    key: str = ""
    field_ref: FieldReference | None = None


class Keys(Named, frozen=True):
    """All keys of an object as files, or some. A volume that is a secret calls its name `secretName`."""

    items: tuple[Item, ...] = ()
    secret_name: str = ""

    @property
    def target(self) -> str:
        return self.name or self.secret_name


class Token(_Part, frozen=True):
    path: str
    audience: str = ""
    expiration_seconds: int = 3600


class Fields(_Part, frozen=True):
    items: tuple[Item, ...] = ()


class Content(_Part, frozen=True, kw_only=True):
    """Where files come from: one of these."""

    config_map: Keys | None = None
    secret: Keys | None = None
    downward_api: Fields | None = msgspec.field(default=None, name="downwardAPI")


class Source(Content, frozen=True, kw_only=True):
    """A part of a projected volume."""

    service_account_token: Token | None = None


class Projected(_Part, frozen=True):
    sources: tuple[Source, ...] = ()


class HostPath(_Part, frozen=True):
    path: str


class EmptyDir(_Part, frozen=True):
    pass


class Volume(Content, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of these, an emptyDir where it says nothing. Other kinds need a cluster and are refused."""

    name: str
    empty_dir: EmptyDir | None = None
    host_path: HostPath | None = None
    projected: Projected | None = None

    @property
    def sources(self) -> tuple[Source, ...]:
        return self.projected.sources if self.projected else ()

    @property
    def contents(self) -> tuple[Content, ...]:
        """All that its files come from."""
        return (self, *self.sources)

    @property
    def is_scratch(self) -> bool:
        return not (self.host_path or self.config_map or self.secret or self.projected or self.downward_api)


class Owner(_Part, frozen=True):
    kind: str
    name: str
    uid: str
    controller: bool = False


class Metadata(_Part, frozen=True):
    name: str
    namespace: str
    uid: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    owner_references: tuple[Owner, ...] = ()
    deletion_timestamp: str = ""
    deletion_grace_period_seconds: int | None = None


class Gate(_Part, frozen=True):
    name: str


class Spec(_Part, frozen=True):
    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    restart_policy: str = "Always"
    node_name: str = ""
    node_selector: Mapping[str, str] = {}
    scheduling_gates: tuple[Gate, ...] = ()
    service_account_name: str = "default"
    termination_grace_period_seconds: int = 30
    active_deadline_seconds: int | None = None


class Before(_Part, frozen=True):
    """What an earlier process wrote of the container."""

    name: str
    restart_count: int = 0


class Status(_Part, frozen=True):
    phase: str = "Pending"
    start_time: str = ""
    container_statuses: tuple[Before, ...] = ()
    init_container_statuses: tuple[Before, ...] = ()


class Pod(_Part, frozen=True):
    metadata: Metadata
    spec: Spec
    status: Status = Status()

    @property
    def is_over(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def restarts_always(self) -> bool:
        return self.spec.restart_policy == "Always"

    @property
    def worker(self) -> str:
        """The container of a pool's pod that is the worker; empty where it is no pod of a pool."""
        if workloads.POOL_LABEL not in self.metadata.labels:
            return ""
        wanted = self.metadata.annotations.get(observed.DEFAULT_CONTAINER)
        names = [one.name for one in self.spec.containers]
        return wanted if wanted in names else names[0]


def read(document: Json) -> Pod:
    """A pod as an API server hands it out; raises InvalidInput where a field has another type than it should."""
    try:
        return msgspec.convert(_without_nulls(document), type=Pod)
    except msgspec.ValidationError as error:
        raise errors.InvalidInput("", f"the pod cannot be read: {error}") from error


def _without_nulls(value: Any) -> Any:
    """A null is a field that was left out."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_without_nulls(one) for one in value]
    return value
