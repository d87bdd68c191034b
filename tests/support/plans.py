"""How the database carries out what the store sends: every statement explained on its way, then carried out."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

import psycopg
from psycopg import adapt, sql

from clockhand.store import database

_PLACEHOLDER = re.compile(r"%\((?P<name>\w+)\)s")
_SCANS = ("Seq Scan", "Index Scan", "Index Only Scan", "Bitmap Heap Scan", "Bitmap Index Scan")


@dataclasses.dataclass(frozen=True, slots=True)
class Scan:
    """What one node read of a table; `relation` is the table, or the parent of the partition `table`."""

    kind: str
    table: str
    relation: str
    index: str
    read: float


@dataclasses.dataclass(frozen=True, slots=True)
class Explained:
    """A statement and its plan as it was carried out."""

    text: str
    plan: Mapping[str, Any]

    def scans(self) -> list[Scan]:
        """Every node that reads a table or an index."""
        return [_scan(node) for node in _nodes(self.plan) if node["Node Type"] in _SCANS]


class Explainer:
    """Stands where a connection does; `mode` is `force_custom_plan` or `force_generic_plan`."""

    def __init__(self, connection: database.Connection, mode: str) -> None:
        self._connection = connection
        self._mode = mode
        self.explained: list[Explained] = []

    @property
    def connection(self) -> database.Connection:
        """Itself, as the store's functions want it."""
        return cast(database.Connection, self)

    async def execute(self, text: str, parameters: Mapping[str, Any] | None = None) -> psycopg.AsyncCursor[Any]:
        """Explains the statement, undoes that, and carries it out."""
        if not text.startswith("SET"):
            self.explained.append(Explained(text, await self._explain(text, parameters or {})))
        return await self._connection.execute(text.encode(), parameters)

    async def _explain(self, text: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        values = [parameters[name] for name in names(text)]
        transformer = adapt.Transformer(self._connection)
        transformer.dump_sequence(values, [adapt.PyFormat.AUTO] * len(values))
        types = [self._type(oid) for oid in transformer.types or ()]
        await self._connection.execute("SAVEPOINT explained")
        await self._connection.execute(f"SET LOCAL plan_cache_mode = {self._mode}".encode())
        await self._connection.execute(prepared(text, types).encode())
        given = sql.SQL(", ").join(map(sql.Literal, values)).as_string(self._connection)
        call = f"EXECUTE explained ({given})" if values else "EXECUTE explained"
        cursor = await self._connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {call}".encode())
        [[[found]]] = await cursor.fetchall()
        await self._connection.execute("DEALLOCATE explained")
        await self._connection.execute("ROLLBACK TO explained")
        plan: Mapping[str, Any] = found["Plan"]
        return plan

    def _type(self, oid: int) -> str:
        info = self._connection.adapters.types.get(oid)
        if info is None:
            return "unknown"
        return info.name if oid == info.oid else f"{info.name}[]"


def names(text: str) -> list[str]:
    """The parameters of a query, in the order in which they first appear."""
    return list(dict.fromkeys(_PLACEHOLDER.findall(text)))


def prepared(text: str, types: list[str]) -> str:
    """The query as PREPARE takes it, under the name `explained`."""
    numbers = {name: number for number, name in enumerate(names(text), 1)}
    numbered = _PLACEHOLDER.sub(lambda match: f"${numbers[match['name']]}", text).replace("%%", "%")
    given = f" ({', '.join(types)})" if types else ""
    return f"PREPARE explained{given} AS {numbered.rstrip().rstrip(';')}"


def _nodes(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for below in node.get("Plans", ()):
        yield from _nodes(below)


def _scan(node: Mapping[str, Any]) -> Scan:
    dropped = sum(node.get(f"Rows Removed by {what}", 0) for what in ("Filter", "Index Recheck"))
    relation = node.get("Relation Name", "")
    return Scan(
        kind=node["Node Type"],
        table=relation,
        relation=re.sub(r"_\d{4}w\d{2}$", "", relation),
        index=node.get("Index Name", ""),
        read=(node["Actual Rows"] + dropped) * node["Actual Loops"],
    )
