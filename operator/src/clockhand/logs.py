"""Structured logs: how lines look, and what each line about a run says of it.

Nothing that is a secret or a payload gets into a line, whoever writes it.
"""

from __future__ import annotations

import logging
import re
import sys
import uuid
from collections.abc import Mapping, MutableMapping
from typing import Any

import structlog

_SECRET = re.compile(r"token|password|secret|authorization|credential|payload|database_url", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"(?<=://)([^/\s:@]*):[^/\s@]*@")
_HIDDEN = "(hidden)"


def of_run(
    run_id: uuid.UUID,
    *,
    name: str | None = None,
    job: str | None = None,
    owner: str | None = None,
    attempt: int | None = None,
) -> Mapping[str, Any]:
    """The fields by which every line about a run names it, as far as they are known."""
    known = {"run_id": str(run_id), "run": name, "job": job, "owner": owner, "attempt": attempt}
    return {field: value for field, value in known.items() if value is not None}


def to_stderr(form: str) -> None:
    """One JSON object a line, or with any other `form` one readable line each."""
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            exception_formatter=structlog.dev.plain_traceback,  # the rich one prints local variables: secrets among them
        )
    )
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info if form == "json" else _unchanged,
        hide_secrets,
    ]
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(name)s: %(message)s")


def hide_secrets(_logger: object, _name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Takes out what is a secret by its field's name, and passwords in addresses."""
    for field, value in event.items():
        if _SECRET.search(field) and not isinstance(value, bool | int):
            event[field] = _HIDDEN
        elif isinstance(value, str) and "://" in value:
            event[field] = _PASSWORD_IN_URL.sub(rf"\1:{_HIDDEN}@", value)
    return event


def _unchanged(_logger: object, _name: str, event: Any) -> Any:
    return event
