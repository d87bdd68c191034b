"""The way in."""

from __future__ import annotations

import copy
import os
from collections.abc import AsyncIterator
from datetime import datetime
from types import TracebackType
from typing import Self

from clockhand.client import calls, config, fields, jobs, runs
from clockhand.domain import resources

PATIENCE_SECONDS = 30.0


class Clockhand:
    """The REST API, as one tenant or namespace sees it.

    Without an address it is that of CLOCKHAND_API_URL, else that of a `clockhand dev` on this machine; and so with the
    token: CLOCKHAND_TOKEN_FILE or CLOCKHAND_TOKEN. `namespace` is for tokens of a cluster's user: where to act.

    A call is sent again, for `patience` seconds, while the API is not there or has no time: each one is made so that it
    has no second effect. What is refused is raised at once, as an error that says what to do next.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        token_file: str | None = None,
        namespace: str | None = None,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        settings = config.find(os.environ, api_url=url, token=token, token_file=token_file)
        self.url = settings.api_url
        self._use(calls.Calls(settings, namespace=namespace, patience=patience), namespace)

    def within(self, namespace: str) -> Clockhand:
        """The same API and connections, acting in another namespace."""
        other = copy.copy(self)
        other._use(self._calls.within(namespace), namespace)
        return other

    def _use(self, api: calls.Calls, namespace: str | None) -> None:
        self._calls = api
        self.namespace = namespace
        self.jobs = jobs.Jobs(api)
        self.runs = runs.Runs(api)

    async def __aenter__(self) -> Self:
        await self._calls.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._calls.__aexit__(kind, error, trace)

    @property
    def reached(self) -> bool:
        """Whether any call was answered yet, by whomever."""
        return self._calls.reached

    def audit(
        self,
        *,
        job: jobs.JobId | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        page_size: int = resources.PAGE,
    ) -> AsyncIterator[resources.AuditEntry]:
        """Who asked for what, newest first. `job` may be a name as well: then of all jobs that have it or had it."""
        query: calls.Query = {
            **jobs.chosen(job),
            "since": fields.text_of(since, "since"),
            "until": fields.text_of(until, "until"),
            "limit": page_size,
        }
        return self._calls.walk("/v1/audit", resources.AuditPage, query)
