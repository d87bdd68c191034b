"""What the decoder finds wrong is said in our own words."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest

from clockhand.api import sentences
from clockhand.domain import resources


class Body(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """A body with fields of all types."""

    many_things: list[int]
    text: str | None = None
    ratio: Annotated[float, msgspec.Meta(ge=0)] = 0
    count: Annotated[int, msgspec.Meta(le=9)] | None = None
    sure: bool = False


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "is missing: write it"),
        ([], "must be an object, not a list"),
        ({"manyThings": {}}, "must be a list, not an object"),
        ({"manyThings": [None]}, "must be a whole number, not null"),
        ({"manyThings": [], "text": True}, "must be a string or null, not a boolean"),
        ({"manyThings": [], "ratio": -1}, "must be at least 0.0"),
        ({"manyThings": [], "count": 10}, "must be at most 9"),
        ({"manyThings": [], "sure": 1}, "must be true or false, not a whole number"),
        ({"manyThing": []}, "is not a known field: did you mean manyThings?"),
    ],
)
def test_a_sentence_says_what_should_be_there(given: Any, sentence: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(given, Body)
    said = str(caught.value).partition(" - at ")[0]
    assert sentences.of_decoder(said, sentences.fields_of(Body)) == sentence


def test_what_is_clear_stays_as_it_is_and_what_may_be_there_is_not_made_up() -> None:
    assert sentences.of_decoder("Invalid UUID") == "Invalid UUID"
    assert sentences.of_decoder("Object contains unknown field `x`") == "is not a known field: leave it out"
    assert sentences.fields_of(dict[str, Any]) == ()
    assert "from" in sentences.fields_of(resources.BackfillRequest)
