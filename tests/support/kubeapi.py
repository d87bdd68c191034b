"""The few plain calls with which a cluster is set up before any client library is in play."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class ApiError(Exception):
    """An answer of the API server other than 2xx."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


@dataclass(frozen=True)
class KubeApi:
    """One API server, one client certificate; blocking, JSON in and out."""

    url: str
    ca: Path
    certificate: Path
    key: Path

    def call(self, method: str, path: str, body: Any = None, *, content_type: str = "application/json") -> Any:
        """The decoded answer; `ApiError` for a refusal, `OSError` when nobody answers."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": content_type}, method=method)
        try:
            with self._opener().open(request, timeout=10) as answer:
                text = answer.read()
                kind = answer.headers.get_content_type()
        except urllib.error.HTTPError as error:
            with error:
                raise ApiError(error.code, error.read().decode(errors="replace")[:500]) from None
        return json.loads(text) if kind == "application/json" else text.decode()

    def lines(self, path: str) -> Iterator[Any]:
        """The decoded lines of an endless answer, such as a watch; ends when the server ends it."""
        with self._opener().open(urllib.request.Request(self.url + path)) as answer:
            for line in answer:
                yield json.loads(line)

    def _opener(self) -> urllib.request.OpenerDirector:
        """A proxy of the environment must not get between a test and its loopback."""
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(self.certificate, self.key)
        return urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )

    def answers(self, path: str) -> bool:
        """Whether a GET succeeds just now."""
        try:
            self.call("GET", path)
        except (ApiError, OSError):
            return False
        return True
