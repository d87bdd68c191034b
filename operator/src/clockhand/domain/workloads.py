"""What the operator keeps in the cluster for a pool: a Deployment of workers, their account, settings and budget.

All of it belongs to the WorkerPool object and goes with it. Where the pool has a template, the template has the last word:
only what it does not say is filled in.
"""

from __future__ import annotations

import copy
import hashlib
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from clockhand.domain import definition, observed, protocol, workerpool_crd
from clockhand.domain.workerpool import ACCOUNT_PREFIX, Dispatch, Pool, PoolSpec

POOL_LABEL = "clockhand.dev/pool"
COMPONENT_LABEL = "app.kubernetes.io/component"
_LABELS = {"app.kubernetes.io/name": "clockhand-worker", COMPONENT_LABEL: "worker"}
_SETTINGS_MARK = "clockhand.dev/settings"
_CONTAINER = "worker"
_HEALTH_PORT = 8081
_TOKEN_SECONDS = 3_600
_GRACE_RESERVE = 5
_SETTINGS_AT, _TOKEN_AT, _KEYS_AT = "/etc/clockhand/pool", "/var/run/secrets/clockhand", "/etc/clockhand/keys"
_EXEC_FILE, _HOSTS_FILE = "exec.yaml", "hosts.yaml"

Json = dict[str, typing.Any]


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the installation says of workers."""

    image: str
    api_url: str
    kafka: str | None = None


def name_of(pool: Pool) -> str:
    """Of each object of the pool."""
    return f"{ACCOUNT_PREFIX}{pool.name}"


def labels_of(pool: Pool) -> Mapping[str, str]:
    """By which the pods of the pool are found."""
    return {**_LABELS, POOL_LABEL: pool.name}


def selector_of(pool: Pool) -> str:
    """The same, as text."""
    return ",".join(f"{name}={value}" for name, value in labels_of(pool).items())


def render(pool: Pool, spec: PoolSpec, defaults: Defaults, *, replicas: int) -> Sequence[Json]:
    """The objects, in the order in which they are needed."""
    settings = _settings(spec)
    found = [_config_map(pool, settings), _deployment(pool, spec, defaults, replicas, settings), _budget(pool)]
    if pool.service_account == name_of(pool):
        found.insert(0, _object(pool, "v1", "ServiceAccount", {"automountServiceAccountToken": False}))
    return found


def _object(pool: Pool, version: str, kind: str, body: Json) -> Json:
    owner = {
        "apiVersion": f"{definition.GROUP}/{definition.VERSION}",
        "kind": workerpool_crd.KIND,
        "name": pool.name,
        "uid": str(pool.uid),
        "controller": True,
    }
    metadata = {
        "name": name_of(pool),
        "namespace": pool.namespace,
        "labels": dict(labels_of(pool)),
        "ownerReferences": [owner],
    }
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **body}


def _settings(spec: PoolSpec) -> Mapping[str, str]:
    """The files of the built-in handlers that the pool has. JSON is YAML too."""
    files: dict[str, object] = {}
    if spec.exec_commands:
        files[_EXEC_FILE] = spec.exec_commands
    if spec.http.allowed_hosts:
        files[_HOSTS_FILE] = {"hosts": spec.http.allowed_hosts, "networks": spec.http.allowed_networks}
    return {name: msgspec.json.encode(content, order="deterministic").decode() for name, content in files.items()}


def _config_map(pool: Pool, settings: Mapping[str, str]) -> Json:
    return _object(pool, "v1", "ConfigMap", {"data": dict(settings)})


def _budget(pool: Pool) -> Json:
    spec = {
        "maxUnavailable": "25%",
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": dict(labels_of(pool))},
    }
    return _object(pool, "policy/v1", "PodDisruptionBudget", {"spec": spec})


def _deployment(pool: Pool, spec: PoolSpec, defaults: Defaults, replicas: int, settings: Mapping[str, str]) -> Json:
    body = {
        "replicas": replicas,
        "selector": {"matchLabels": dict(labels_of(pool))},
        # a worker goes only when its successor is ready, and then takes no more runs and finishes those that it has
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}},
        "template": _pod(pool, spec, defaults, settings),
    }
    return _object(pool, "apps/v1", "Deployment", {"spec": body})


def _pod(pool: Pool, spec: PoolSpec, defaults: Defaults, settings: Mapping[str, str]) -> Json:
    template: Json = copy.deepcopy(spec.template) if spec.template is not None else {}
    metadata = template.get("metadata") or {}
    pod = template.get("spec") or {"containers": [{"name": _CONTAINER}]}
    digest = hashlib.sha256(msgspec.json.encode(settings, order="deterministic")).hexdigest()[:16]
    annotations = {**(metadata.get("annotations") or {}), _SETTINGS_MARK: digest}
    worker = _main_container(pod, annotations)
    _fill_container(worker, pool, spec, defaults, settings)
    if spec.image is not None:
        worker["image"] = spec.image
    pod["volumes"] = [*(pod.get("volumes") or ()), *_volumes(pool, spec, settings)]
    _fill(pod, _pod_defaults(pool, spec))
    labels = {**(metadata.get("labels") or {}), **labels_of(pool)}
    return {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod}


def _main_container(pod: Json, annotations: Mapping[str, str]) -> Json:
    containers: list[Json] = pod["containers"]
    wanted = annotations.get(observed.DEFAULT_CONTAINER)
    return next((one for one in containers if one.get("name") == wanted), containers[0])


def _pod_defaults(pool: Pool, spec: PoolSpec) -> Json:
    return {
        "serviceAccountName": pool.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,  # variables made from Services would be read as settings
        "terminationGracePeriodSeconds": spec.termination_grace_period_seconds,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": dict(labels_of(pool))},
            }
        ],
    }


def _fill_container(
    container: Json, pool: Pool, spec: PoolSpec, defaults: Defaults, settings: Mapping[str, str]
) -> None:
    given = {str(one.get("name")) for one in container.get("env") or ()}
    ours = [{"name": name, "value": value} for name, value in _environment(pool, spec, defaults, settings)]
    container["env"] = [*(one for one in ours if one["name"] not in given), *(container.get("env") or ())]
    mounts: list[Json] = container.get("volumeMounts") or []
    taken = {str(one.get("mountPath")).rstrip("/") for one in mounts}
    container["volumeMounts"] = [*mounts, *(one for one in _mounts(spec, settings) if one["mountPath"] not in taken)]
    ports: list[Json] = container.get("ports") or []
    if not any(port.get("name") == "health" for port in ports):
        container["ports"] = [*ports, {"name": "health", "containerPort": _HEALTH_PORT, "protocol": "TCP"}]
    if "command" not in container:
        container.setdefault("args", ["worker"])
    _fill(
        container,
        {
            "image": defaults.image,
            "imagePullPolicy": "IfNotPresent",
            "livenessProbe": {
                "httpGet": {"path": "/healthz", "port": "health"},
                "initialDelaySeconds": 10,
                "periodSeconds": 10,
                "timeoutSeconds": 5,
                "failureThreshold": 6,
            },
            "readinessProbe": {
                "httpGet": {"path": "/readyz", "port": "health"},
                "periodSeconds": 3,
                "timeoutSeconds": 3,
            },
            "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}},
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
        },
    )


def _environment(
    pool: Pool, spec: PoolSpec, defaults: Defaults, settings: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    yield "CLOCKHAND_API_URL", defaults.api_url
    yield "CLOCKHAND_POOL", f"{pool.namespace}/{pool.name}"
    yield "CLOCKHAND_TOKEN_FILE", f"{_TOKEN_AT}/token"
    yield "CLOCKHAND_CONCURRENCY", str(spec.concurrency)
    yield "CLOCKHAND_GRACE_SECONDS", str(spec.termination_grace_period_seconds - _GRACE_RESERVE)
    yield "CLOCKHAND_HEALTH_PORT", str(_HEALTH_PORT)
    if _EXEC_FILE in settings:
        yield "CLOCKHAND_EXEC_COMMANDS", f"{_SETTINGS_AT}/{_EXEC_FILE}"
    if _HOSTS_FILE in settings:
        yield "CLOCKHAND_HTTP_HOSTS", f"{_SETTINGS_AT}/{_HOSTS_FILE}"
    if spec.http.secret_name is not None:
        yield "CLOCKHAND_HTTP_KEYS", _KEYS_AT
    if spec.dispatch is Dispatch.KAFKA and defaults.kafka is not None:
        yield "CLOCKHAND_KAFKA", defaults.kafka


def _volumes(pool: Pool, spec: PoolSpec, settings: Mapping[str, str]) -> Iterator[Json]:
    token = {"audience": protocol.AUDIENCE, "expirationSeconds": _TOKEN_SECONDS, "path": "token"}
    yield {"name": "clockhand-token", "projected": {"sources": [{"serviceAccountToken": token}]}}
    yield {"name": "clockhand-tmp", "emptyDir": {"sizeLimit": "64Mi"}}
    if settings:
        yield {"name": "clockhand-pool", "configMap": {"name": name_of(pool)}}
    if spec.http.secret_name is not None:
        yield {"name": "clockhand-keys", "secret": {"secretName": spec.http.secret_name}}


def _mounts(spec: PoolSpec, settings: Mapping[str, str]) -> Iterator[Json]:
    yield {"name": "clockhand-token", "mountPath": _TOKEN_AT, "readOnly": True}
    yield {"name": "clockhand-tmp", "mountPath": "/tmp"}
    if settings:
        yield {"name": "clockhand-pool", "mountPath": _SETTINGS_AT, "readOnly": True}
    if spec.http.secret_name is not None:
        yield {"name": "clockhand-keys", "mountPath": _KEYS_AT, "readOnly": True}


def _fill(target: Json, defaults: Mapping[str, typing.Any]) -> None:
    for key, value in defaults.items():
        target.setdefault(key, value)
