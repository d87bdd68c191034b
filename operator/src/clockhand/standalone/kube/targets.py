"""Which resource, object or part of one a path names."""

from __future__ import annotations

from dataclasses import dataclass

from clockhand.standalone.kube import kinds, store


@dataclass(frozen=True, slots=True)
class Target:
    """Without a name the collection: of a namespace, or of the cluster where there is none."""

    kind: kinds.Kind
    namespace: str = ""
    name: str = ""
    part: str = ""

    @property
    def key(self) -> store.Key:
        return store.Key(self.kind.resource, self.namespace, self.name)


def target_of(path: str) -> Target | None:
    """None where the path names nothing that there is."""
    parts = path.strip("/").split("/")
    head = 2 if parts[0] == "api" else 3
    base, rest = "/".join(parts[:head]), parts[head:]
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2 and (base, rest[2]) in kinds.BY_PATH:
        namespace, rest = rest[1], rest[2:]
    if not rest or len(rest) > 3 or not all(rest):
        return None
    kind = kinds.BY_PATH.get((base, rest[0]))
    name, part = [*rest[1:], "", ""][:2]
    if kind is None or (part and part not in kind.subresources):
        return None
    is_placed = bool(namespace) == kind.namespaced or not (namespace or name)
    return Target(kind, namespace, name, part) if is_placed else None
