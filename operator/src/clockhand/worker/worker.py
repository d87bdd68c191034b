"""Your code's side of a worker: which function is for which handler."""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
import logging
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from clockhand import errors, tracing
from clockhand.worker import children, runner, sdk, threads
from clockhand.worker.attempts import Attempt

F = TypeVar("F", bound=Callable[..., Any])


class Worker:
    """Handlers, by their names.

    `pool` is what the code is for, as `mailers` or `team-a/mailers`: a worker that is started for another pool says so and
    does not start.
    """

    def __init__(self, pool: str | None = None) -> None:
        self.pool = pool
        self.threads = threads.Threads()
        self.children = children.Children()
        self.calls: dict[str, runner.Call] = {}

    def handler(self, name: str, *, processes: bool = False) -> Callable[[F], F]:
        """Registers a function of one argument, the run. What it returns is the run's result, as JSON.

        A coroutine function runs on the worker's event loop, any other one in a thread, or in a process if it keeps a
        processor busy: `processes=True`.
        """

        def register(function: F) -> F:
            if name in self.calls:
                raise errors.InvalidInput(name, "has a handler already")
            self.calls[name] = self._call(name, function, processes)
            return function

        return register

    def run(self) -> None:
        """Runs until SIGTERM or SIGINT, with settings from the environment; exit code 2 where they are wrong."""
        from clockhand.worker import app, config

        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        try:
            settings = config.from_environment(os.environ, pool=self.pool)
            tracing.begin("clockhand-worker", os.environ)
            asyncio.run(app.serve(settings, self))
        except errors.InvalidInput as error:
            sys.exit(f"{Path(sys.argv[0]).name}: {error}")
        finally:
            tracing.end()

    def _call(self, name: str, function: Callable[[sdk.Run], Any], processes: bool) -> runner.Call:
        if inspect.iscoroutinefunction(function):
            if processes:
                raise errors.InvalidInput(
                    name, "a coroutine function runs on the event loop: leave processes=True away"
                )
            return functools.partial(_on_loop, function)
        if processes:
            return functools.partial(self.children.call, children.reference(name, function))
        return functools.partial(self._in_thread, function)

    async def _in_thread(self, function: Callable[[sdk.Run], object], _: Attempt, run: sdk.Run) -> object:
        return await self.threads.call(functools.partial(function, run))


def _on_loop(
    function: Callable[[sdk.Run], Coroutine[Any, Any, object]], _: Attempt, run: sdk.Run
) -> Coroutine[Any, Any, object]:
    return function(run)


def load(reference: str) -> Worker:
    """The worker that `module:name` names; raises InvalidInput where there is none."""
    module, _, name = reference.partition(":")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        sentence = f"{reference}: {error}; its folder belongs in PYTHONPATH"
        raise errors.InvalidInput("CLOCKHAND_HANDLERS", sentence) from error
    if not isinstance(found, Worker):
        raise errors.InvalidInput("CLOCKHAND_HANDLERS", f"{reference} is no Worker of clockhand.worker")
    return found


def fits(pool: str, code: str | None) -> bool:
    """Whether code for the pool `code` may serve `pool`."""
    return code is None or code in (pool, pool.partition("/")[2])
