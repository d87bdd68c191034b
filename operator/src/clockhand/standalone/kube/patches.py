"""Patches: a merge, a list of steps (JSON patch), or a strategic merge, which knows what tells the items of a list apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jsonpatch

from clockhand.api.runs import status
from clockhand.standalone.kube import schema as schemas

Json = dict[str, Any]
MERGE = "application/merge-patch+json"
STEPS = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
_DIRECTIVE, _ORDER, _GONE = "$patch", "$setElementOrder/", "$deleteFromPrimitiveList/"


def merged(value: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    made = dict(value) if isinstance(value, dict) else {}
    for name, inner in patch.items():
        if inner is None:
            made.pop(name, None)
        else:
            made[name] = merged(made.get(name), inner)
    return made


def stepped(value: Json, steps: Any) -> Json:
    """RFC 6902; a step that cannot be made is a 422, as with the API server."""
    if not isinstance(steps, list):
        raise status.Failure(422, "Invalid", "the patch cannot be applied: it is no list of steps")
    try:
        made: Json = jsonpatch.apply_patch(value, steps)
    except jsonpatch.JsonPatchTestFailed as error:
        raise status.Failure(
            422, "Invalid", f"the server rejected our request due to an error in our request: {error}"
        ) from error
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError, AttributeError, KeyError) as error:
        raise status.Failure(422, "Invalid", f"the patch cannot be applied: {error}") from error
    return made


def strategic(value: Any, patch: Any, schema: Json) -> Any:
    """A strategic merge: lists of objects are merged by their key where the schema names one, other values replaced."""
    try:
        return _strategic(value, patch, schema)
    except (AttributeError, TypeError) as error:  # a directive or an item of a list that is none
        raise status.bad_request(f"the patch cannot be applied: {error}") from error


def _strategic(value: Any, patch: Any, schema: Json) -> Any:
    schema = schemas.resolved(schema)
    if not isinstance(patch, dict):
        return patch
    if patch.get(_DIRECTIVE) == "replace":
        return {name: inner for name, inner in patch.items() if name != _DIRECTIVE}
    made = dict(value) if isinstance(value, dict) else {}
    for name, inner in patch.items():
        _strategic_step(made, name, inner, schema)
    for name, order in patch.items():
        if name.startswith(_ORDER):
            target = name.removeprefix(_ORDER)
            made[target] = _ordered(made.get(target) or [], order, _field(schema, target))
    return made


def _strategic_step(made: Json, name: str, patch: Any, schema: Json) -> None:
    if name.startswith(_GONE):
        target = name.removeprefix(_GONE)
        made[target] = [one for one in made.get(target) or () if one not in patch]
    elif patch is None:
        made.pop(name, None)
    elif not name.startswith("$"):
        made[name] = _strategic_field(made.get(name), patch, _field(schema, name))


def _field(schema: Json, name: str) -> Json:
    inner = schema.get("properties", {}).get(name) or schema.get("additionalProperties")
    return inner if isinstance(inner, dict) else {}


def _strategic_field(value: Any, patch: Any, schema: Json) -> Any:
    if not isinstance(patch, list) or "merge" not in schema.get("x-kubernetes-patch-strategy", ""):
        return _strategic(value, patch, schema)
    key = schema.get("x-kubernetes-patch-merge-key")
    if key is None:
        return [*(value or ()), *(one for one in patch if one not in (value or ()))]
    return _merged_list(list(value or ()), patch, key, schema.get("items", {}))


def _merged_list(items: list[Json], patch: Sequence[Json], key: str, schema: Json) -> list[Json]:
    if any(one.get(_DIRECTIVE) == "replace" for one in patch):
        return [one for one in patch if _DIRECTIVE not in one]
    before = [item.get(key) for item in items]
    for one in patch:
        place = next((at for at, item in enumerate(items) if item.get(key) == one.get(key)), None)
        if one.get(_DIRECTIVE) == "delete":
            items = [item for item in items if item.get(key) != one.get(key)]
        elif place is None:
            items.append(_strategic({}, one, schema))
        else:
            items[place] = _strategic(items[place], one, schema)
    return _interleaved(items, key, [one.get(key) for one in patch], before)


def _interleaved(items: Sequence[Json], key: str, patched: Sequence[Any], before: Sequence[Any]) -> list[Json]:
    """Items of the patch in its order, the others in theirs; between the two, what stood first stays first."""
    named = {item.get(key): item for item in items}
    left = [name for name in patched if name in named]
    right = [name for name in before if name in named and name not in left]
    made = []
    while left or right:
        is_first = not right or (left and (left[0] not in before or before.index(left[0]) < before.index(right[0])))
        made.append(named[(left if is_first else right).pop(0)])
    return made


def _ordered(items: list[Any], order: Sequence[Any], schema: Json) -> list[Any]:
    key = schema.get("x-kubernetes-patch-merge-key")

    def name_of(item: Any) -> Any:
        return item.get(key) if key is not None and isinstance(item, dict) else item

    wanted = [name_of(one) for one in order]
    return sorted(items, key=lambda item: wanted.index(name_of(item)) if name_of(item) in wanted else len(wanted))
