"""The process in which a handler runs with `processes=True`: `python -m clockhand.worker.child`.

Orders come as lines on standard input, answers go as lines to what was standard output; whatever the handler prints goes
to standard error, with a mark at the end of each run.
"""

from __future__ import annotations

import concurrent.futures
import functools
import importlib
import logging
import os
import runpy
import signal
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any, BinaryIO, cast

import msgspec

from clockhand import tracing
from clockhand.domain import protocol
from clockhand.worker import outcomes, sdk
from clockhand.worker.children import Answer, Order


def main() -> None:
    """Takes orders until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    orders, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    _serve(orders, answers)


def _serve(orders: BinaryIO, answers: BinaryIO) -> None:
    for line in orders:
        order = msgspec.json.decode(line, type=Order)
        answer = _follow(order)
        sys.stdout.flush()
        sys.stderr.write(order.mark + "\n")
        sys.stderr.flush()
        answers.write(msgspec.json.encode(answer) + b"\n")
        answers.flush()


def _follow(order: Order) -> Answer:
    run = sdk.Run(order.run, is_ours=_always, beat=_answered)
    try:
        with tracing.handling(order.run.handler, order.run.traceparent, {}):
            value = _found(order.function)(run)
    except Exception as error:
        if not isinstance(error, sdk.Fail | sdk.RetryAfter):
            traceback.print_exception(error)
        return Answer(failure=outcomes.failure_of(error))
    result = outcomes.as_json(value)
    return Answer(failure=result) if isinstance(result, protocol.Failure) else Answer(result=msgspec.Raw(result))


@functools.cache
def _found(reference: str) -> Callable[[sdk.Run], object]:
    module, _, name = reference.rpartition(":")
    found: Any = _script(module) if module.endswith(".py") else importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return cast(Callable[[sdk.Run], object], found)


@functools.cache
def _script(path: str) -> types.SimpleNamespace:
    return types.SimpleNamespace(**runpy.run_path(path, run_name="clockhand_handlers"))


def _always() -> bool:
    return True  # the parent renews the lease, and kills this process if it cannot


def _answered() -> concurrent.futures.Future[None]:
    done: concurrent.futures.Future[None] = concurrent.futures.Future()
    done.set_result(None)
    return done


if __name__ == "__main__":
    main()
