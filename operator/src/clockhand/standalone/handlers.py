"""The handlers of the worker that `clockhand dev` runs, beside the built-in ones."""

from __future__ import annotations

from typing import Any

from clockhand.worker import Run, Worker

worker = Worker()


@worker.handler("echo")
async def echo(run: Run) -> Any:
    """Gives its payload back, as the run's result."""
    return run.payload
