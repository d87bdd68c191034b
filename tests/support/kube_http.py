"""Plain calls to an API server, where a test looks at the answer itself."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
MERGE = "application/merge-patch+json"
STEPS = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


@dataclass(frozen=True)
class Answer:
    """`body` is decoded where it is JSON; `warnings` are those of its headers."""

    code: int
    body: Any
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class KubeHttp:
    """One API server and one identity: a bearer token, or files of a client certificate and its key."""

    url: str
    ca: Path
    token: str = ""
    certificate: tuple[Path, Path] | None = None

    def call(
        self, method: str, path: str, body: Any = None, form: str = "application/json", accept: str = "application/json"
    ) -> Answer:
        """Any answer, a refusal too. A body of bytes is sent as it is."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        headers: Mapping[str, str] = {"Content-Type": form, "Accept": accept}
        request = urllib.request.Request(self.url + path, data, {**headers, **self._identity()}, method=method)
        try:
            with self._opener().open(request, timeout=30) as answer:
                return _answer(answer.status, answer)
        except urllib.error.HTTPError as error:
            with error:
                return _answer(error.code, error)

    def _identity(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def _opener(self) -> urllib.request.OpenerDirector:
        context = ssl.create_default_context(cafile=str(self.ca))
        if self.certificate is not None:
            context.load_cert_chain(*self.certificate)
        without_proxy = urllib.request.ProxyHandler({})
        return urllib.request.build_opener(without_proxy, urllib.request.HTTPSHandler(context=context))


def _answer(code: int, response: Any) -> Answer:
    text = response.read()
    try:
        body = json.loads(text)
    except ValueError:
        body = text.decode(errors="replace")
    return Answer(code, body, tuple(response.headers.get_all("Warning") or ()))
