"""From a container to the command of a process: arguments, variables and paths as a kubelet and an image make them.

There is no image, so that what only an image knows is missing, and there is no root of its own: a path at which a volume
is mounted stands for the volume's folder, in arguments and variables as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from clockhand import errors
from clockhand.domain import pods
from clockhand.standalone.nodes import manifest

ADDRESS = "127.0.0.1"
NODE = "local"
_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
_VARIABLE = re.compile(r"[A-Za-z_.-][A-Za-z0-9_.-]*")
_OURS = "CLOCKHAND_"
_SECRETIVE = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_KEY|PRIVATE_KEY|^PG|^KUBECONFIG$|DATABASE_URL")

Objects = Mapping[tuple[str, str], Mapping[str, bytes]]
"""The data of config maps and secrets of one namespace, by kind and name."""


@dataclass(frozen=True, slots=True)
class Command:
    """What is started."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str


class NoCommand(errors.InvalidInput):
    """Only an image could say what is to be run."""


class Paths:
    """The folders that stand for the paths at which a container mounts its volumes."""

    def __init__(self, folders: Mapping[str, str]) -> None:
        self._folders = {path.rstrip("/") or "/": folder for path, folder in folders.items()}
        longest_first = sorted(self._folders, key=len, reverse=True)
        paths = "|".join(re.escape(path) for path in longest_first if path != "/")
        self._pattern = re.compile(rf"(?<![\w./-])(?:{paths})(?![\w.-])") if paths else None

    def __call__(self, text: str) -> str:
        """`text` with each such path, and what lies below it, in its place on this machine."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: self._folders[found[0]], text)

    def get(self, path: str) -> str | None:
        """The folder mounted at `path` itself."""
        return self._folders.get(path)


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Kubernetes' own way: `$(NAME)` is the value of a variable that is there, `$$` a dollar sign."""

    def value(found: re.Match[str]) -> str:
        name = found[1]
        return "$" if name is None else variables.get(name, found[0])

    return _REFERENCE.sub(value, text)


def inherited(variables: Mapping[str, str], *, programs: str) -> Mapping[str, str]:
    """Of this process's own environment what a pod may see: nothing of ours, and nothing that is called like a secret.

    `programs` is a folder in which programs are looked for last.
    """
    kept = {
        name: value
        for name, value in variables.items()
        if not name.startswith(_OURS) and not _SECRETIVE.search(name.upper())
    }
    return kept | {"PATH": ":".join(part for part in (kept.get("PATH", "/usr/bin:/bin"), programs) if part)}


def command(
    pod: manifest.Pod,
    container: manifest.Container,
    *,
    found: Objects,
    paths: Paths,
    base: Mapping[str, str],
    directory: str,
    entrypoint: Sequence[str] = (),
) -> Command:
    """The process of one container. Raises NotFound for an object that is not there yet, InvalidInput for what can
    never be started.

    `entrypoint` is what the image would run, where that is known.
    """
    own = variables(pod, container, found=found, paths=paths)
    program = container.command or tuple(entrypoint)
    arguments = tuple(expand(paths(one), own) for one in (*program, *container.args))
    if not arguments:
        raise NoCommand("command", "give the container a command: without a cluster there is no image to ask")
    environment = {**base, "HOSTNAME": pod.metadata.name, **own}
    if temporary := paths.get("/tmp"):
        environment.setdefault("TMPDIR", temporary)
    if any("\0" in text for text in (*arguments, *environment.values())):
        raise errors.InvalidInput("command", "a NUL character can stand in no argument and no variable")
    return Command(arguments, environment, paths(container.working_dir) or directory)


def variables(pod: manifest.Pod, container: manifest.Container, *, found: Objects, paths: Paths) -> dict[str, str]:
    """The container's own variables: those of whole objects first, then one by one, each able to name earlier ones."""
    own: dict[str, str] = {}
    for group in container.env_from:
        for name, value in _whole_objects(group, found):
            own[name] = paths(value)
    for one in container.env:
        told = _value(pod, one, found, own, paths)
        if told is not None:
            own[one.name] = told
    return own


def references(pod: manifest.Pod) -> set[tuple[str, str]]:
    """The config maps and secrets that the pod's variables and volumes are made of, by kind and name."""
    return set(_references(pod))


def field(pod: manifest.Pod, path: str) -> str:
    """The value of a field by the names of the downward API."""
    meta, spec = pod.metadata, pod.spec
    known = {
        "metadata.name": meta.name,
        "metadata.namespace": meta.namespace,
        "metadata.uid": meta.uid,
        "spec.nodeName": NODE,
        "spec.serviceAccountName": spec.service_account_name,
        "status.hostIP": ADDRESS,
        "status.hostIPs": ADDRESS,
        "status.podIP": ADDRESS,
        "status.podIPs": ADDRESS,
    }
    if path in known:
        return known[path]
    pairs = {"labels": meta.labels, "annotations": meta.annotations}
    if one := _SUBSCRIPT.fullmatch(path):
        return pairs[one[1]].get(one[2], "")
    kind = path.removeprefix("metadata.")
    if kind not in pairs:
        raise errors.InvalidInput("fieldRef", f"no field {path!r} is known here")
    return "\n".join(f'{name}="{value}"' for name, value in sorted(pairs[kind].items()))


def data(found: Objects, kind: str, name: str, *, optional: bool) -> Mapping[str, bytes]:
    """The data of an object; nothing where it may be missing and is."""
    there = found.get((kind, name))
    if there is None and not optional:
        raise errors.NotFound(f'{kind.lower()} "{name}" not found')
    return there or {}


def _value(
    pod: manifest.Pod, one: manifest.Variable, found: Objects, own: Mapping[str, str], paths: Paths
) -> str | None:
    """None where the variable is left out, as that of a key that may be missing is."""
    origin = one.value_from
    if origin is None:
        # what a run is told is data, which no path is looked for in
        text = one.value if one.name in pods.ENVIRONMENT_NAMES else paths(one.value)
        return expand(text, own)
    if origin.field_ref is not None:
        return field(pod, origin.field_ref.field_path)
    for kind, key in (("ConfigMap", origin.config_map_key_ref), ("Secret", origin.secret_key_ref)):
        if key is not None:
            value = _key(found, kind, key)
            return None if value is None else paths(value)
    raise errors.InvalidInput(f"env.{one.name}", "its valueFrom is of a kind that is not known here")


def _key(found: Objects, kind: str, wanted: manifest.KeyReference) -> str | None:
    value = data(found, kind, wanted.name, optional=wanted.optional).get(wanted.key)
    if value is None and not wanted.optional:
        raise errors.NotFound(f"couldn't find key {wanted.key} in {kind} {wanted.name}")
    return None if value is None else value.decode(errors="replace")


def _whole_objects(group: manifest.Variables, found: Objects) -> Iterator[tuple[str, str]]:
    for kind, wanted in (("ConfigMap", group.config_map_ref), ("Secret", group.secret_ref)):
        if wanted is None:
            continue
        for key, value in sorted(data(found, kind, wanted.name, optional=wanted.optional).items()):
            if _VARIABLE.fullmatch(group.prefix + key):
                yield group.prefix + key, value.decode(errors="replace")


def _references(pod: manifest.Pod) -> Iterator[tuple[str, str]]:
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        for group in container.env_from:
            yield from _pair(group.config_map_ref, group.secret_ref)
        for variable in container.env:
            if (origin := variable.value_from) is not None:
                yield from _pair(origin.config_map_key_ref, origin.secret_key_ref)
    for content in (content for volume in pod.spec.volumes for content in volume.contents):
        for kind, keys in (("ConfigMap", content.config_map), ("Secret", content.secret)):
            if keys is not None:
                yield kind, keys.target


def _pair(config_map: manifest.Named | None, secret: manifest.Named | None) -> Iterator[tuple[str, str]]:
    if config_map is not None:
        yield "ConfigMap", config_map.name
    if secret is not None:
        yield "Secret", secret.name
