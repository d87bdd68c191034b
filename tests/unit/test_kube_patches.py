"""Patches as kubectl makes them."""

from __future__ import annotations

from typing import Any

import pytest

from clockhand.api.runs import status
from clockhand.standalone.kube import kinds, patches, selection

Json = dict[str, Any]
POD = kinds.definitions()[kinds.PODS.schema]


def containers(*names: str, **more: Any) -> Json:
    return {"spec": {"containers": [{"name": name, **more} for name in names]}}


def names(pod: Json) -> list[str]:
    return [one["name"] for one in pod["spec"]["containers"]]


@pytest.mark.parametrize(
    ("value", "patch", "merged"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_as_rfc_7396_has_it(value: Any, patch: Any, merged: Any) -> None:
    assert patches.merged(value, patch) == merged


def test_items_of_a_list_are_merged_by_their_key() -> None:
    pod = containers("a", "b", image="one")
    patched = patches.strategic(pod, {"spec": {"containers": [{"name": "b", "image": "two"}, {"name": "c"}]}}, POD)
    assert names(patched) == ["a", "b", "c"]
    assert [one.get("image") for one in patched["spec"]["containers"]] == ["one", "two", None]
    assert pod == containers("a", "b", image="one")


def test_directives_delete_replace_and_order() -> None:
    pod = containers("a", "b", "c")
    gone = patches.strategic(pod, {"spec": {"containers": [{"name": "b", "$patch": "delete"}]}}, POD)
    assert names(gone) == ["a", "c"]
    alone = patches.strategic(pod, {"spec": {"containers": [{"$patch": "replace"}, {"name": "z"}]}}, POD)
    assert names(alone) == ["z"]
    order = [{"name": name} for name in "cab"]
    sorted_anew = patches.strategic(pod, {"spec": {"$setElementOrder/containers": order}}, POD)
    assert names(sorted_anew) == ["c", "a", "b"]
    spec = patches.strategic(pod, {"spec": {"$patch": "replace", "hostname": "x"}}, POD)
    assert spec["spec"] == {"hostname": "x"}


def test_lists_of_plain_values_are_joined_where_the_schema_says_so() -> None:
    value = {"metadata": {"finalizers": ["a"]}, "spec": {"containers": [{"name": "a", "args": ["x"]}]}}
    patch = {"metadata": {"finalizers": ["b", "a"]}, "spec": {"containers": [{"name": "a", "args": ["y"]}]}}
    patched = patches.strategic(value, patch, POD)
    assert patched["metadata"]["finalizers"] == ["a", "b"]
    assert patched["spec"]["containers"][0]["args"] == ["y"]
    without = patches.strategic(value, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}, POD)
    assert without["metadata"]["finalizers"] == []


@pytest.mark.parametrize(
    "steps", [7, "x", "[]", {}, [7], [{"op": "odd"}], [{"op": "remove", "path": "/none"}], [{"op": "test"}]]
)
def test_steps_that_cannot_be_made_are_refused(steps: Any) -> None:
    with pytest.raises(status.Failure) as failure:
        patches.stepped({"a": 1}, steps)
    assert failure.value.code == 422


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"containers": [5]}},
        {"spec": {"containers": [[]]}},
        {"metadata": {"$setElementOrder/finalizers": 5}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": 5}},
    ],
)
def test_a_strategic_merge_that_is_none_is_refused(patch: Json) -> None:
    pod = {"metadata": {"finalizers": ["a"]}, **containers("a")}
    with pytest.raises(status.Failure) as failure:
        patches.strategic(pod, patch, POD)
    assert failure.value.code == 400


@pytest.mark.parametrize(
    ("selector", "is_chosen"),
    [
        ("", True),
        ("app=web", True),
        ("app==web,tier!=back", True),
        ("app!=web", False),
        ("app in (api, web)", True),
        ("app notin (web)", False),
        ("other notin (web)", True),
        ("app", True),
        ("!app", False),
        ("!other,app in (web)", True),
        ("other=", False),
    ],
)
def test_label_selectors(selector: str, is_chosen: bool) -> None:
    assert selection.parse(selector, None)({"metadata": {"labels": {"app": "web"}}}) is is_chosen


@pytest.mark.parametrize("selector", ["==", "a in b", "a in (b", "a b", "a=b c=d", "a,,b", ",", "a=(b)"])
def test_selector_that_cannot_be_read_is_refused(selector: str) -> None:
    with pytest.raises(status.Failure):
        selection.parse(selector, None)
