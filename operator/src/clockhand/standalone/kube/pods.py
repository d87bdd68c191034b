"""What the API server fills into pods and has against them. Deployments and the rest get their few defaults here too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clockhand.standalone.kube import causes, metadata

Json = dict[str, Any]
_INT32 = (1 << 31) - 1
_POLICIES = ("Always", "OnFailure", "Never")
_PULLS = ("Always", "IfNotPresent", "Never")
_POD_DEFAULTS: Mapping[str, Any] = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
}
_CONTAINER_DEFAULTS: Mapping[str, Any] = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}


def defaulted(spec: Mapping[str, Any]) -> Json:
    """The spec of a pod, or of the pods of a template, with its defaults."""
    filled = {**_POD_DEFAULTS, "securityContext": {}, **spec}
    if filled["terminationGracePeriodSeconds"] < 0:
        filled["terminationGracePeriodSeconds"] = 1
    for field in ("initContainers", "containers"):
        if field in spec:
            filled[field] = [_container(one) for one in spec[field]]
    return filled


def of_its_own(spec: Mapping[str, Any]) -> Json:
    """The spec of a pod itself: with the service account that it runs as, the namespace's own unless it names another."""
    named = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    return {"enableServiceLinks": True, **spec, "serviceAccountName": named, "serviceAccount": named}


def deployment(spec: Mapping[str, Any]) -> Json:
    """The spec of a Deployment with its defaults."""
    template = spec.get("template") or {}
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}
    usual = {"replicas": 1, "strategy": rolling, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600}
    given = {key: value for key, value in spec.items() if value != {} or key == "selector"}
    return {**usual, **given, "template": {**template, "spec": defaulted(template.get("spec") or {})}}


def first_status(spec: Mapping[str, Any]) -> Json:
    """The status of a pod that nobody has looked at yet."""
    wishes = [one.get("resources") or {} for one in spec.get("containers", ())]
    quality = "Burstable" if any(wish.get("requests") or wish.get("limits") for wish in wishes) else "BestEffort"
    return {"phase": "Pending", "qosClass": quality}


def mistakes(spec: Mapping[str, Any], path: str = "spec") -> Iterator[causes.Cause]:
    """What a schema does not say about the spec of a pod."""
    if spec.get("containers") == []:
        yield causes.required(f"{path}.containers")
    volumes: set[Any] = set()
    for place, volume in enumerate(spec.get("volumes") or ()):
        if volume.get("name") in volumes:
            yield causes.duplicate(f"{path}.volumes[{place}].name", volume["name"])
        volumes.add(volume.get("name"))
    seen: set[str] = set()
    for field in ("initContainers", "containers"):
        for place, container in enumerate(spec.get(field) or ()):
            yield from _of_container(container, f"{path}.{field}[{place}]", volumes, seen)
    if spec["restartPolicy"] not in _POLICIES:
        yield causes.unsupported(f"{path}.restartPolicy", spec["restartPolicy"], _POLICIES)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _INT32:
        yield causes.invalid(f"{path}.activeDeadlineSeconds", deadline, f"must be between 1 and {_INT32}, inclusive")


def _container(container: Mapping[str, Any]) -> Json:
    image = str(container.get("image") or "")
    tag = image.rpartition("/")[2].partition(":")[2]
    pull = "Always" if tag in ("", "latest") and "@" not in image else "IfNotPresent"
    return {**_CONTAINER_DEFAULTS, "imagePullPolicy": pull, **container}


def _of_container(container: Json, path: str, volumes: set[Any], seen: set[str]) -> Iterator[causes.Cause]:
    name = container.get("name") or ""
    if name:
        yield from metadata.of_name(f"{path}.name", name, as_label=True)
    if name and name in seen:
        yield causes.duplicate(f"{path}.name", name)
    seen.add(name)
    if not container.get("image"):
        yield causes.required(f"{path}.image")
    if container["imagePullPolicy"] not in _PULLS:
        yield causes.unsupported(f"{path}.imagePullPolicy", container["imagePullPolicy"], sorted(_PULLS))
    yield from _of_mounts(container.get("volumeMounts") or (), f"{path}.volumeMounts", volumes)
    for place, variable in enumerate(container.get("env") or ()):
        if "=" in variable.get("name", ""):
            sentence = (
                "a valid environment variable name must consist only of printable ASCII characters other than '='"
            )
            yield causes.invalid(f"{path}.env[{place}].name", variable["name"], sentence)


def _of_mounts(mounts: Sequence[Json], path: str, volumes: set[Any]) -> Iterator[causes.Cause]:
    seen: set[str] = set()
    for place, mount in enumerate(mounts):
        if mount.get("name") not in volumes:
            yield causes.missing(f"{path}[{place}].name", mount.get("name", ""))
        where = mount.get("mountPath", "")
        if where in seen:
            sentence = "must be unique"
            yield causes.invalid(f"{path}[{place}].mountPath", where, sentence)
        seen.add(where)
