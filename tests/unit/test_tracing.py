"""Which runs are traced, by which ids, and that without an endpoint nothing is there."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from clockhand import tracing
from clockhand.domain import ids, states

AT = datetime(2026, 11, 1, 2, 30, tzinfo=UTC)
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}


def runs(count: int) -> Iterator[uuid.UUID]:
    for number in range(count):
        yield ids.run_id(job_id=uuid.UUID(int=number), scheduled_at=AT, kind=states.RunKind.SLOT, key="")


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    tracing.end()


def flags(ratio: str) -> list[str]:
    tracing.begin("test", {**ENDPOINT, "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": ratio})
    parents = [tracing.traceparent(run, 1) for run in runs(2_000)]
    tracing.end()
    return [parent.rpartition("-")[2] for parent in parents if parent is not None]


def test_the_ids_follow_from_run_and_attempt() -> None:
    [run] = runs(1)
    tracing.begin("test", ENDPOINT)
    version, trace, span, flag = str(tracing.traceparent(run, 1)).split("-")
    assert (version, trace, flag) == ("00", run.hex, "03")
    assert len(span) == 16
    assert tracing.traceparent(run, 1) != tracing.traceparent(run, 2)


@pytest.mark.parametrize(("ratio", "share"), [("0", 0.0), ("0.25", 0.25), ("1", 1.0), ("not a number", 1.0)])
def test_as_many_runs_are_traced_as_were_asked_for_and_always_the_same(ratio: str, share: float) -> None:
    first = flags(ratio)
    assert abs(first.count("03") / len(first) - share) < 0.05
    assert flags(ratio) == first


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {**ENDPOINT, "OTEL_SDK_DISABLED": "true"},
        {**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_TRACES_SAMPLER": "always_on"},
    ],
)
def test_nothing_is_traced_unless_an_endpoint_is_named(environment: dict[str, str]) -> None:
    tracing.begin("test", environment)
    assert not tracing.on()
    assert tracing.traceparent(next(runs(1)), 1) is None
    with tracing.inside("call", None, {}) as span:
        assert span is None


def test_nothing_is_imported_unless_an_endpoint_is_named() -> None:
    script = (
        "import sys; from clockhand import cli, tracing; from clockhand.api import app; from clockhand.worker import app; "
        "tracing.begin('test', {}); sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_spans_of_handlers_belong_to_their_attempt_though_the_worker_itself_traces_nothing() -> None:
    from opentelemetry import trace

    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03"
    with tracing.handling("mail", parent, {}):
        assert f"{trace.get_current_span().get_span_context().trace_id:032x}" == parent.split("-")[1]
    assert not trace.get_current_span().get_span_context().is_valid
