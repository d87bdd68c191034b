"""Parameters of the query: each is known, and reads as its type."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from clockhand import errors
from clockhand.api import problems, sentences
from clockhand.api.rest import routes
from clockhand.domain import documents

NAMESPACE = routes.Parameter(
    "namespace", str | None, "Where a user of the cluster acts; by default the namespace of its service account."
)


class _Query(Protocol):
    """What came after the question mark: names that may come more than once."""

    def __iter__(self) -> typing.Iterator[str]: ...

    def getall(self, name: str) -> Sequence[str]: ...


def read(known: Sequence[routes.Parameter], given: _Query) -> Mapping[str, Any]:
    """Every known parameter by its name, those that were not given with their defaults; 422 that names what is wrong."""
    by_name = {one.name: one for one in (*known, NAMESPACE)}
    values = {name: one.default for name, one in by_name.items()}
    for name in dict.fromkeys(given):
        if name not in by_name:
            raise problems.wrong_parameter(name, _unknown(name, by_name))
        values[name] = _value(by_name[name], given.getall(name))
    return values


def is_many(parameter: routes.Parameter) -> bool:
    """Whether it may come repeated."""
    return typing.get_origin(parameter.type) is tuple


def _value(parameter: routes.Parameter, texts: Sequence[str]) -> Any:
    if len(texts) > 1 and not is_many(parameter):
        raise problems.wrong_parameter(parameter.name, "is there more than once: write it once")
    try:
        for text in texts:
            documents.check_text(text, at=parameter.name)
        return msgspec.convert(texts if is_many(parameter) else texts[0], parameter.type, strict=False)
    except errors.InvalidInput as error:
        raise problems.wrong_parameter(parameter.name, error.sentence) from None
    except msgspec.ValidationError as error:
        said = sentences.of_decoder(str(error).partition(" - at ")[0])
        raise problems.wrong_parameter(parameter.name, said) from None


def _unknown(name: str, known: Mapping[str, routes.Parameter]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return "is not known here: " + (f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}")
