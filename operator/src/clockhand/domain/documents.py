"""Checks of a JSON document against a table of fields, before anything is made of it.

The API server checks the same table on apply; this is for everything that it cannot see (raw objects) and for
documents that never pass through it. What comes out is plain JSON with every default filled in.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from clockhand import errors
from clockhand.domain import fields
from clockhand.domain.table import Field, Kind, Table

MAX_DEPTH = 64
_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**64 - 1
_ROOT = "spec"


def check(document: Mapping[str, object], table: Table = fields.TABLE) -> dict[str, object]:
    """The document with defaults, or `InvalidInput` with the path of the first field that is wrong."""
    return _Reader(table).fields_of(document, path="", at=_ROOT)


def check_text(value: object, *, at: str) -> None:
    """Refuse what JSON and Postgres cannot hold: NUL, lone surrogates, NaN, infinity, bottomless nesting."""
    pending = [(value, at, 0)]
    while pending:
        item, path, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise errors.InvalidInput(at, f"is nested deeper than {MAX_DEPTH} levels: write it flatter")
        if isinstance(item, str):
            _check_string(item, at=path)
        elif isinstance(item, int | float):
            _check_number(item, at=path)
        else:
            pending.extend((part, name, depth + 1) for part, name in _parts(item, at=path))


def _parts(item: object, *, at: str) -> Iterator[tuple[object, str]]:
    if isinstance(item, Mapping):
        for key, part in item.items():
            if not isinstance(key, str):
                raise errors.InvalidInput(at, "has a key that is not a string: write only string keys")
            _check_string(key, at=at)
            yield part, f"{at}.{key}"
    elif isinstance(item, Sequence) and not isinstance(item, bytes):
        yield from ((part, f"{at}[{index}]") for index, part in enumerate(item))
    elif item is not None:
        raise errors.InvalidInput(at, "is not JSON: write a string, number, boolean, null, list or object")


def _check_string(text: str, *, at: str) -> None:
    if "\x00" in text:
        raise errors.InvalidInput(at, "holds a NUL character: leave it out or encode the text, in base64 say")
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise errors.InvalidInput(at, "holds half of a surrogate pair: write whole Unicode characters")


def _check_number(number: float, *, at: str) -> None:
    if isinstance(number, int):
        if not _MIN_INTEGER <= number <= _MAX_INTEGER:
            raise errors.InvalidInput(at, "is an integer beyond 64 bits: write it as a string")
    elif not math.isfinite(number):
        raise errors.InvalidInput(at, "is NaN or infinite: write a finite number or a string")


class _Reader:
    """Reads what has parts; the parts are in the table."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def fields_of(self, value: object, *, path: str, at: str) -> dict[str, object]:
        known = self._table.children(path)
        given = _mapping(value, at=at)
        for name in given:
            if name not in known:
                raise errors.InvalidInput(f"{at}.{name}", unknown(name, known))
        result: dict[str, object] = {}
        for name, field in known.items():
            found = given.get(name)
            if found is None and not (field.kind is Kind.ANY and name in given):
                found = _absent(field, at=f"{at}.{name}")
                if found is None:
                    continue
            result[name] = self._field(found, row=field, at=f"{at}.{name}")
        return result

    def _field(self, value: object, *, row: Field, at: str) -> object:
        match row.kind:
            case Kind.OBJECT:
                return self.fields_of(value, path=row.path, at=at)
            case Kind.ARRAY:
                return self._array(value, row=row, at=at)
            case Kind.MAP:
                return self._map(value, row=row, at=at)
        return _READERS[row.kind](value, row=row, at=at)

    def _array(self, value: object, *, row: Field, at: str) -> list[object]:
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            raise errors.InvalidInput(at, f"must be a list, not {kind_of(value)}")
        _check_bounds(len(value), row=row, at=at, unit=" items")
        item = self._table.item(row)
        return [self._field(part, row=item, at=f"{at}[{index}]") for index, part in enumerate(value)]

    def _map(self, value: object, *, row: Field, at: str) -> dict[str, object]:
        given = _mapping(value, at=at)
        _check_bounds(len(given), row=row, at=at, unit=" entries")
        item = self._table.item(row)
        for key in given:
            _check_string(key, at=at)
        return {key: self._field(part, row=item, at=f"{at}.{key}") for key, part in given.items()}


def unknown(name: str, known: Iterable[str]) -> str:
    """The sentence for a field that is none of `known`."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return "is not a known field: " + (f"did you mean {near[0]}?" if near else f"write {', '.join(known)}")


def _absent(field: Field, *, at: str) -> object:
    if field.required:
        raise errors.InvalidInput(at, "is missing: write it")
    return field.default


def _mapping(value: object, *, at: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise errors.InvalidInput(at, f"must be an object, not {kind_of(value)}")
    if not all(isinstance(key, str) for key in value):
        raise errors.InvalidInput(at, "has a key that is not a string: write only string keys")
    return value


def _string(value: object, *, row: Field, at: str) -> str:
    if not isinstance(value, str):
        raise errors.InvalidInput(at, f"must be a string, not {kind_of(value)}")
    _check_string(value, at=at)
    if row.enum and value not in row.enum:
        near = difflib.get_close_matches(value, row.enum, n=1, cutoff=0.6)
        hint = f"did you mean {near[0]}?" if near else f"write {', '.join(row.enum)}"
        raise errors.InvalidInput(at, f'"{value[:64]}" is not a known value: {hint}')
    _check_bounds(len(value), row=row, at=at, unit=" characters")
    return str(value)


def _integer(value: object, *, row: Field, at: str) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise errors.InvalidInput(at, f"must be a whole number, not {kind_of(value)}")
    _check_bounds(value, row=row, at=at)
    return value


def _number(value: object, *, row: Field, at: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise errors.InvalidInput(at, f"must be a number, not {kind_of(value)}")
    _check_number(value, at=at)
    _check_bounds(value, row=row, at=at)
    return float(value)


def _boolean(value: object, *, row: Field, at: str) -> bool:
    if not isinstance(value, bool):
        raise errors.InvalidInput(at, f"must be true or false, not {kind_of(value)}")
    return value


def _labels(value: object, *, row: Field, at: str) -> dict[str, object]:
    given = _mapping(value, at=at)
    _check_bounds(len(given), row=row, at=at, unit=" entries")
    for key, text in given.items():
        _check_string(key, at=at)
        if not isinstance(text, str):
            raise errors.InvalidInput(f"{at}.{key}", f"must be a string, not {kind_of(text)}: put it in quotes")
        _check_string(text, at=f"{at}.{key}")
    return dict(given)


def _raw(value: object, *, row: Field, at: str) -> dict[str, object]:
    check_text(value, at=at)
    return dict(_mapping(value, at=at))


def _any(value: object, *, row: Field, at: str) -> object:
    check_text(value, at=at)
    return dict(value) if isinstance(value, Mapping) else value


def _check_bounds(number: float, *, row: Field, at: str, unit: str = "") -> None:
    if unit and number < 1 and row.low == 1:
        raise errors.InvalidInput(at, "must not be empty")
    if row.low is not None and number < row.low:
        raise errors.InvalidInput(at, f"must be at least {row.low:g}{unit}, not {number}")
    if row.high is not None and number > row.high:
        advice = f": {row.beyond}" if row.beyond else ""
        raise errors.InvalidInput(at, f"must be at most {row.high:.15g}{unit}, not {number}{advice}")


def kind_of(value: object) -> str:
    """What a value is, for a sentence that says what it should be."""
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", type(None): "null"}
    if isinstance(value, Mapping):
        return "an object"
    return names.get(type(value), "a list" if isinstance(value, Sequence) else type(value).__name__)


_READERS: Mapping[Kind, Callable[..., object]] = {
    Kind.STRING: _string,
    Kind.INTEGER: _integer,
    Kind.NUMBER: _number,
    Kind.BOOLEAN: _boolean,
    Kind.LABELS: _labels,
    Kind.RAW: _raw,
    Kind.ANY: _any,
}
