"""From how a handler ended to what is reported of it."""

from __future__ import annotations

import traceback
from types import TracebackType

import msgspec

from clockhand.domain import protocol
from clockhand.worker import sdk, tail
from clockhand.worker.attempts import Attempt, Ending

_MESSAGE_CHARACTERS = 4_096
_ERROR_CHARACTERS = 256
_LONGEST_RETRY = 604_800.0
_NULL = msgspec.Raw(b"null")
_encode = msgspec.json.Encoder().encode


class Failed(Exception):
    """A failure whose parts are known, as the built-in handlers raise it."""

    def __init__(self, failure: protocol.Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def returned(attempt: Attempt, value: object, seconds: float) -> protocol.Report:
    """A success with its result, or the failure that the result is."""
    if value is None:
        return _report(attempt, protocol.Outcome.SUCCEEDED, seconds)
    result = as_json(value)
    if isinstance(result, protocol.Failure):
        return _failed(attempt, result, seconds)
    return _report(attempt, protocol.Outcome.SUCCEEDED, seconds, result=msgspec.Raw(result))


def as_json(value: object) -> bytes | protocol.Failure:
    """A result as it is reported, or why it cannot be."""
    try:
        result = _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        return _failure("ResultNotJson", f"the result cannot be written as JSON: {error}")
    if len(result) > protocol.MAX_RESULT_BYTES:
        sentence = f"the result has {len(result):,} bytes of JSON, {protocol.MAX_RESULT_BYTES:,} are allowed"
        return _failure("ResultTooLarge", sentence)
    return result


def raised(attempt: Attempt, error: BaseException, seconds: float) -> protocol.Report:
    """The end of an attempt whose handler did not return: the reason for which it was ended counts before its error."""
    ending = attempt.ending
    if ending is Ending.TIMEOUT:
        limit = f"the attempt took longer than its {attempt.run.timeout_seconds} s"
        return _failed(attempt, _failure(ending.value, limit), seconds)
    if ending is not None:
        return interrupted(attempt, seconds)
    if not isinstance(error, Failed | sdk.Fail | sdk.RetryAfter):
        attempt.tail.write("".join(traceback.format_exception(type(error), error, _own_trace(error))))
    return _failed(attempt, failure_of(error), seconds)


def interrupted(attempt: Attempt, seconds: float | None = None) -> protocol.Report:
    """An attempt that was ended from outside."""
    ending = attempt.ending or Ending.DRAIN
    failure = _failure(ending.value, attempt.reason or "")
    return _report(attempt, protocol.Outcome.DISRUPTED, seconds, failure=failure, log=attempt.tail.text())


def released(attempt: Attempt) -> protocol.Report:
    """An attempt that was never begun."""
    return _report(attempt, protocol.Outcome.RELEASED, None)


def _failed(attempt: Attempt, failure: protocol.Failure, seconds: float) -> protocol.Report:
    return _report(attempt, protocol.Outcome.FAILED, seconds, failure=failure, log=attempt.tail.text())


def failure_of(error: BaseException) -> protocol.Failure:
    """What a handler says by what it raises."""
    match error:
        case Failed():
            return error.failure
        case sdk.Fail():
            return _failure(error.error, str(error), fatal=True)
        case sdk.RetryAfter():
            return _failure(error.error, str(error), retry_after=min(max(float(error.seconds), 0.0), _LONGEST_RETRY))
    return _failure(type(error).__name__, str(error))


def _failure(error: str, message: str, *, fatal: bool = False, retry_after: float | None = None) -> protocol.Failure:
    return protocol.Failure(
        error=tail.clean(error)[:_ERROR_CHARACTERS] or "Error",
        message=tail.clean(message)[:_MESSAGE_CHARACTERS] or None,
        fatal=fatal,
        retry_after_seconds=retry_after,
    )


def _report(
    attempt: Attempt,
    outcome: protocol.Outcome,
    seconds: float | None,
    *,
    result: msgspec.Raw = _NULL,
    failure: protocol.Failure | None = None,
    log: str | None = None,
) -> protocol.Report:
    return protocol.Report(
        run_id=attempt.run.run_id,
        token=attempt.run.token,
        outcome=outcome,
        seconds=seconds,
        result=result,
        failure=failure,
        log=log,
    )


def _own_trace(error: BaseException) -> TracebackType | None:
    """The trace from the handler on: what called it says nothing to its author."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith(__package__ or ""):
        trace = trace.tb_next
    return trace
