"""The administrator's limits: how many runs may be under way at once, and whose turn counts for more.

They come from one YAML file, docs/limits.md. Reading it is strict: a limit that somebody mistyped would be a limit that
nobody keeps, so what is not known is refused by its name.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import yaml

from clockhand import errors

EVERYBODY = "*"
MOST_RUNS = 100_000
MOST_WEIGHT = 100
MOST_REQUESTS = 100_000
MOST_JOBS = 100_000_000


class OwnerLimits(msgspec.Struct, frozen=True, rename="camel"):
    """Of a namespace or a tenant; None: as `*` has it."""

    max_concurrent_runs: int | None = None
    weight: int | None = None
    max_jobs: int | None = None
    """No more can be made over REST; objects of the cluster count, and the quota of a namespace limits those."""
    requests_per_second: int | None = None
    """For the REST API, of each process that serves it."""


class GroupLimits(msgspec.Struct, frozen=True, rename="camel"):
    """Of a concurrency group; None: no limit."""

    max_concurrent_runs: int | None = None


class PoolLimits(msgspec.Struct, frozen=True, rename="camel"):
    """Of a pool. All but the first are for a tenant's pool: those of the others are in their WorkerPool objects."""

    max_concurrent_runs: int | None = None
    lease_seconds: int = 90
    heartbeat_seconds: int = 30
    allowed_owners: tuple[str, ...] = ()
    """Whose runs its workers take beside those of its own owner; `*`: everybody's."""


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """All of them. A key without a limit is never counted."""

    owners: Mapping[str, OwnerLimits] = dataclasses.field(default_factory=dict)
    groups: Mapping[str, GroupLimits] = dataclasses.field(default_factory=dict)
    pools: Mapping[str, PoolLimits] = dataclasses.field(default_factory=dict)

    def owner_cap(self, owner: str) -> int | None:
        """How many attempts of `owner` may be open at once; None: any number."""
        cap = self._owner(owner).max_concurrent_runs
        return self._owner(EVERYBODY).max_concurrent_runs if cap is None else cap

    def pool_cap(self, pool: str) -> int | None:
        """How many attempts the workers of `pool` may have at once; None: any number."""
        return self.pool_settings(pool).max_concurrent_runs

    def group_cap(self, group: str) -> int | None:
        """How many runs of `group` may have a place at once; None: any number. A group that is not known has none."""
        known = self.groups.get(group)
        return known.max_concurrent_runs if known else 0

    def why_no_place(self, group: str) -> str | None:
        """A sentence, where no run of `group` can have a place whatever ends; else None."""
        if group not in self.groups:
            return f'the limits have no group "{group}": nothing of it runs until an administrator adds it'
        return f'the limits give the group "{group}" no places' if self.group_cap(group) == 0 else None

    def weight(self, owner: str) -> int:
        """How many runs `owner` is given each time that it is its turn."""
        return self._owner(owner).weight or self._owner(EVERYBODY).weight or 1

    def job_cap(self, owner: str) -> int | None:
        """How many jobs `owner` may have; None: any number."""
        cap = self._owner(owner).max_jobs
        return self._owner(EVERYBODY).max_jobs if cap is None else cap

    def request_rate(self, owner: str) -> int | None:
        """How many requests `owner` may make in a second; None: any number."""
        rate = self._owner(owner).requests_per_second
        return self._owner(EVERYBODY).requests_per_second if rate is None else rate

    def pool_settings(self, pool: str) -> PoolLimits:
        """What the file says of `pool`, or the defaults."""
        return self.pools.get(pool, PoolLimits())

    def _owner(self, owner: str) -> OwnerLimits:
        return self.owners.get(owner, OwnerLimits())


NONE = Limits()


def parse(text: str) -> Limits:
    """Limits from the text of the file; raises InvalidInput with the path of the field that is wrong."""
    document = _document(text)
    for name in document:
        if name not in _SECTIONS:
            raise errors.InvalidInput(name, _unknown(name, _SECTIONS))
    return Limits(**{name: _section(document.get(name), name) for name in _SECTIONS})


class _Loader(yaml.SafeLoader):
    """Refuses a key that is there twice, of which YAML would keep one in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise errors.InvalidInput(str(key.value), f"is there twice, again in line {key.start_mark.line + 1}")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _document(text: str) -> Mapping[str, object]:
    try:
        document = yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        where = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise errors.InvalidInput("", f"is not YAML: {error.problem}{where}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise errors.InvalidInput("", f"is not YAML: {str(error).splitlines()[0]}") from None
    return {} if document is None else _mapping(document, at="")


def _section(value: object, name: str) -> Mapping[str, Any]:
    kind, is_key, example = _SECTIONS[name]
    found = {}
    for key, entry in (_mapping(value, at=name) if value is not None else {}).items():
        at = f'{name}["{key}"]'
        if not re.fullmatch(is_key, key):
            raise errors.InvalidInput(at, f"is no name that can be here: write one such as {example}")
        found[key] = kind(**_entry(entry, kind, at=at))
        if kind is PoolLimits:
            _check_pool(key, found[key], at=at)
    return found


def _entry(value: object, kind: type, *, at: str) -> Mapping[str, object]:
    known = {field.encode_name: field.name for field in msgspec.structs.fields(kind)}
    read = {}
    for name, item in _mapping(value, at=at).items():
        if name not in known:
            raise errors.InvalidInput(f"{at}.{name}", _unknown(name, known))
        read[known[name]] = _READERS[name](item, f"{at}.{name}")
    return read


def _check_pool(pool: str, limits: PoolLimits, *, at: str) -> None:
    if pool.startswith("k8s/") and limits != PoolLimits(limits.max_concurrent_runs):
        sentence = "can only have maxConcurrentRuns: set the rest in its WorkerPool object"
        raise errors.InvalidInput(at, sentence)
    if limits.heartbeat_seconds * 2 > limits.lease_seconds:
        sentence = f"must be at most half of leaseSeconds, which is {limits.lease_seconds}"
        raise errors.InvalidInput(f"{at}.heartbeatSeconds", sentence)


def _mapping(value: object, *, at: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise errors.InvalidInput(at, "must be a mapping: write names with a colon")
    for key in value:
        if not isinstance(key, str):
            raise errors.InvalidInput(at, f"has the key {key!r}, which is no text: put it in quotes")
    return value


def _whole(low: int, high: int) -> Callable[[object, str], int]:
    def read(value: object, at: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise errors.InvalidInput(at, f"must be a whole number from {low} to {high}")
        return value

    return read


def _owners(value: object, at: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise errors.InvalidInput(at, 'must be a list of owners, such as ["rest/acme"]')
    for index, owner in enumerate(value):
        if not isinstance(owner, str) or not re.fullmatch(_OWNER, owner):
            raise errors.InvalidInput(f"{at}[{index}]", 'is no owner: write one such as rest/acme, or "*"')
    return tuple(value)


def _unknown(name: str, known: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return "is not a known field: " + (f"did you mean {near[0]}?" if near else f"write {', '.join(known)}")


_NAME = "[a-zA-Z0-9]([a-zA-Z0-9._-]*[a-zA-Z0-9])?"
_OWNER = rf"\*|(k8s|rest)/{_NAME}"
_SECTIONS: Mapping[str, tuple[type, str, str]] = {
    "owners": (OwnerLimits, _OWNER, 'k8s/team-a, rest/acme or "*"'),
    "groups": (GroupLimits, ".{1,63}", "exports"),
    "pools": (PoolLimits, f"(k8s|rest)/{_NAME}/{_NAME}", "k8s/team-a/mailers or rest/acme/jobs"),
}
_READERS: Mapping[str, Callable[[object, str], object]] = {
    "maxConcurrentRuns": _whole(0, MOST_RUNS),
    "weight": _whole(1, MOST_WEIGHT),
    "maxJobs": _whole(0, MOST_JOBS),
    "requestsPerSecond": _whole(1, MOST_REQUESTS),
    "leaseSeconds": _whole(10, 86_400),
    "heartbeatSeconds": _whole(1, 43_200),
    "allowedOwners": _owners,
}
