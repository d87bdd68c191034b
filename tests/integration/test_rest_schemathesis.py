"""Requests that are made of the OpenAPI document, right and wrong ones: each answer is one that the document names."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks
from tests.support import postgres, served_apart

Operation = schemathesis.APIOperation[Any, Any, Any, Any]
_CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]

# the loops of the API, which runs in a thread beside, draw random numbers while strategies do
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module")


@pytest.fixture(scope="module")
def apart(server: postgres.PostgresServer, template: str) -> Iterator[served_apart.Apart]:
    name = server.new_database(template=template)
    with served_apart.served(server.url(name)) as running:
        yield running
    server.drop_database(name)


@pytest.fixture(scope="module")
def operations(apart: served_apart.Apart) -> list[Operation]:
    """All but an answer that has no end, and workers' calls, which may wait for runs: both have tests of their own."""
    schema = schemathesis.openapi.from_dict(apart.document)
    schema.config.update(base_url=apart.url)
    chosen = schema.exclude(operation_id="streamRuns").exclude(path_regex="^/v1/pools/")
    return [operation.ok() for operation in chosen.get_all_operations() if isinstance(operation, Ok)]


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_every_answer_is_one_that_the_document_names(
    apart: served_apart.Apart, operations: list[Operation], mode: GenerationMode
) -> None:
    assert len(operations) > 20
    wrong, carried_out = {}, set()
    for operation in operations:
        try:
            if any(status < 300 for status in _try_out(operation, apart, mode)):
                carried_out.add(f"{operation.method} {operation.path}")
        except Exception as error:
            wrong[f"{operation.method} {operation.path}"] = error
    assert not wrong, "\n".join(f"{name}: {_told(error)}" for name, error in wrong.items())

    if mode is GenerationMode.POSITIVE:
        # not only refused in the right way
        assert len(carried_out) > len(operations) / 2, carried_out


def _try_out(operation: Operation, apart: served_apart.Apart, mode: GenerationMode) -> set[int]:
    """The statuses of all answers."""
    turns, seen = itertools.count(), set()
    known = apart.runs if operation.path.startswith("/v1/runs") else apart.jobs

    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    @hypothesis.settings(max_examples=20, derandomize=True, suppress_health_check=list(hypothesis.HealthCheck))
    def answered(case: schemathesis.Case[Any]) -> None:
        turn = next(turns)
        if "id" in (case.path_parameters or {}) and turn % 3:
            case.path_parameters["id"] = str(known[turn % len(known)])
        answer = case.call_and_validate(checks=_CHECKS, headers={"Authorization": f"Bearer {apart.secret}"})
        seen.add(answer.status_code)

    answered()
    return seen


def _told(error: BaseException) -> str:
    """With the errors in it, which hypothesis gathers."""
    return "\n".join([str(error), *map(_told, getattr(error, "exceptions", ()))])
