"""Traces for OpenTelemetry. Off, which they are unless an endpoint is named, nothing of it is imported and nothing done.

A run is one trace, whose id is the run's, and the ids of its spans that others hang on follow from run and attempt: so each
process adds what it knows, whichever of them dies, and nobody has to hand on or to store anything. Which runs are traced
follows from the id too.
"""

from __future__ import annotations

import contextlib
import contextvars
import hashlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import structlog

from clockhand.domain import instants

log = structlog.get_logger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_CHANCE = 1 << 56
"""The last so many values of a trace id are evenly spread, as W3C asks for."""
_LAST_SECONDS = 3.0
_MICROSECOND = timedelta(microseconds=1)
_HEADER = "traceparent"

Attributes = Mapping[str, str | int | float | bool]


class _Tracer:
    """What is there once tracing has begun."""

    def __init__(self, service: str, ratio: float) -> None:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk import resources
        from opentelemetry.sdk import trace as sdk
        from opentelemetry.sdk.trace import export, id_generator, sampling

        chosen: contextvars.ContextVar[tuple[int, int] | None] = contextvars.ContextVar("ids", default=None)
        chance = id_generator.RandomIdGenerator()
        bound = round(ratio * _CHANCE)

        class Ids(id_generator.IdGenerator):
            def generate_trace_id(self) -> int:
                ids = chosen.get()
                return chance.generate_trace_id() if ids is None else ids[0]

            def generate_span_id(self) -> int:
                ids = chosen.get()
                return chance.generate_span_id() if ids is None or not ids[1] else ids[1]

            def is_trace_id_random(self) -> bool:
                return True

        class ByRun(sampling.Sampler):
            def should_sample(self, parent_context: Any, trace_id: int, *others: Any, **named: Any) -> Any:
                keep = sampling.Decision.RECORD_AND_SAMPLE if trace_id % _CHANCE < bound else sampling.Decision.DROP
                return sampling.SamplingResult(keep, others[2] if len(others) > 2 else named.get("attributes"))

            def get_description(self) -> str:
                return f"ByRun{{{ratio}}}"

        self.api = trace
        self.chosen = chosen
        self.bound = bound
        self.provider = sdk.TracerProvider(
            sampler=ByRun(),
            id_generator=Ids(),
            shutdown_on_exit=False,
            # what OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say comes before it
            resource=resources.Resource({"service.name": service}).merge(resources.OTELResourceDetector().detect()),
        )
        self.provider.add_span_processor(export.BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(self.provider)
        self.tracer = self.provider.get_tracer("clockhand")

    def below(self, run_id: uuid.UUID, span_id: int) -> Any:
        """A context in which a span of `run_id` begins below another one."""
        flags = self.api.TraceFlags(self.api.TraceFlags.SAMPLED | self.api.TraceFlags.RANDOM_TRACE_ID)
        parent = self.api.SpanContext(run_id.int, span_id, is_remote=True, trace_flags=flags)
        return self.api.set_span_in_context(self.api.NonRecordingSpan(parent))


_state: _Tracer | None = None


def begin(service: str, environment: Mapping[str, str]) -> None:
    """Begins to trace, where the variables of OpenTelemetry in `environment` name an endpoint and do not say no."""
    global _state
    named = any(environment.get(name) for name in _ENDPOINTS)
    disabled = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if not named or disabled or environment.get("OTEL_TRACES_EXPORTER", "otlp") != "otlp":
        return
    try:
        _state = _Tracer(service, _ratio(environment))
    except ImportError as error:
        log.warning("tracing_not_installed", error=str(error), hint="install clockhand[otel]")


def end() -> None:
    """Sends what has not been sent yet, as far as that is possible in some seconds."""
    global _state
    if _state is not None:
        # the exporter goes on trying for half a minute
        last = threading.Thread(target=_state.provider.shutdown, name="last-spans", daemon=True)
        last.start()
        last.join(_LAST_SECONDS)
        _state = None


def on() -> bool:
    """Whether anything is traced."""
    return _state is not None


def traceparent(run_id: uuid.UUID, attempt: int) -> str | None:
    """What the spans of an attempt begin below, as W3C writes it; None where nothing is traced."""
    if _state is None:
        return None
    return f"00-{run_id.hex}-{_attempt_id(run_id, attempt):016x}-{'03' if _traced(run_id) else '02'}"


def run_over(run_id: uuid.UUID, ended: datetime, attributes: Attributes) -> None:
    """The whole run, from its scheduled instant to its end."""
    if _state is not None and _traced(run_id):
        began = instants.EPOCH + (run_id.int >> 80) * instants.MILLISECOND
        _write("run", run_id, (_run_span(run_id), 0), began, ended, attributes)


def attempt_over(run_id: uuid.UUID, attempt: int, *, began: datetime, ended: datetime, attributes: Attributes) -> None:
    """An attempt, from its claim to its end."""
    if _state is not None and _traced(run_id):
        ids = (_attempt_id(run_id, attempt), _run_span(run_id))
        _write("attempt", run_id, ids, began, ended, {"clockhand.attempt": attempt, **attributes})


def part_over(name: str, run_id: uuid.UUID, attempt: int, *, began: int, attributes: Attributes) -> None:
    """A part of an attempt, which began at `began` and ends now, by this host's clock in nanoseconds."""
    if _state is not None and _traced(run_id):
        context = _state.below(run_id, _attempt_id(run_id, attempt))
        span = _state.tracer.start_span(name, context, attributes=_named(run_id, attributes), start_time=began)
        span.end()


def batch_over(name: str, *, began: int, attributes: Attributes) -> None:
    """Work for many runs, a trace of its own."""
    if _state is not None:
        _state.tracer.start_span(name, attributes=attributes, start_time=began).end()


def now() -> int:
    """When something begins, by this host's clock in nanoseconds."""
    return time.time_ns()


def at(instant: datetime) -> int:
    """The same of an instant."""
    return (instant - instants.EPOCH) // _MICROSECOND * 1_000


@contextlib.contextmanager
def inside(name: str, parent: str | None, attributes: Attributes) -> Iterator[Any]:
    """A span around the block, below `parent` as W3C writes it: what the block traces belongs to it."""
    if _state is None:
        yield None
        return
    from opentelemetry.trace.propagation import tracecontext

    carrier = {} if parent is None else {_HEADER: parent}
    context = tracecontext.TraceContextTextMapPropagator().extract(carrier)
    kind = _state.api.SpanKind.SERVER
    with _state.tracer.start_as_current_span(
        name, context, kind=kind, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except Exception as error:  # what it says may hold anything
            span.set_status(_state.api.StatusCode.ERROR, type(error).__name__)
            raise


@contextlib.contextmanager
def handling(handler: str, parent: str | None, about: Attributes) -> Iterator[None]:
    """A span around a handler's attempt. Where this process traces nothing itself, the handler's own spans are below
    `parent` nevertheless.
    """
    if _state is not None:
        with inside(f"handler {handler}", parent, {f"clockhand.{name}": value for name, value in about.items()}):
            yield
        return
    leave = _entered(parent)
    try:
        yield
    finally:
        leave()


def current() -> str | None:
    """The span that this code is inside of, as W3C writes it; None where nothing is traced."""
    if _state is None:
        return None
    from opentelemetry.trace.propagation import tracecontext

    carrier: dict[str, str] = {}
    tracecontext.TraceContextTextMapPropagator().inject(carrier)
    return carrier.get(_HEADER)


def _write(
    name: str, run_id: uuid.UUID, ids: tuple[int, int], began: datetime, ended: datetime, attributes: Attributes
) -> None:
    assert _state is not None
    own, parent = ids
    token = _state.chosen.set((run_id.int, own))
    try:
        context = _state.below(run_id, parent) if parent else _state.api.set_span_in_context(_state.api.INVALID_SPAN)
        span = _state.tracer.start_span(name, context, attributes=_named(run_id, attributes), start_time=at(began))
    finally:
        _state.chosen.reset(token)
    if attributes.get("clockhand.state", "Succeeded") != "Succeeded":
        span.set_status(_state.api.StatusCode.ERROR, str(attributes.get("clockhand.reason", "")))
    span.end(at(ended))


def _entered(parent: str | None) -> Callable[[], None]:
    """Makes `parent` the span that this code is inside of, where there is one and OpenTelemetry is installed."""
    try:
        if parent is None:
            return _nothing
        from opentelemetry import context
        from opentelemetry.trace.propagation import tracecontext
    except ImportError:
        return _nothing
    token = context.attach(tracecontext.TraceContextTextMapPropagator().extract({_HEADER: parent}))
    return lambda: context.detach(token)


def _nothing() -> None:
    """There was nothing to enter."""


def _named(run_id: uuid.UUID, attributes: Attributes) -> Attributes:
    return {"clockhand.run_id": str(run_id), **attributes}


def _traced(run_id: uuid.UUID) -> bool:
    return _state is not None and run_id.int % _CHANCE < _state.bound


def _run_span(run_id: uuid.UUID) -> int:
    return _attempt_id(run_id, 0)


def _attempt_id(run_id: uuid.UUID, attempt: int) -> int:
    digest = hashlib.sha256(run_id.bytes + attempt.to_bytes(4, "big")).digest()
    return int.from_bytes(digest[:8], "big") or 1


def _ratio(environment: Mapping[str, str]) -> float:
    sampler = environment.get("OTEL_TRACES_SAMPLER", "").removeprefix("parentbased_")
    if sampler == "always_off":
        return 0.0
    if sampler != "traceidratio":
        return 1.0
    try:
        return min(max(float(environment.get("OTEL_TRACES_SAMPLER_ARG", "1")), 0.0), 1.0)
    except ValueError:
        log.warning("sampling_not_understood", OTEL_TRACES_SAMPLER_ARG=environment["OTEL_TRACES_SAMPLER_ARG"])
        return 1.0
