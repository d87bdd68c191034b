"""The runs API behind TLS, and callers who come as the front API server does, or as those who would like to be it."""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from tests.support import answers, pki

from clockhand.api.runs import certificates, feed, frontproxy, listener, server
from clockhand.kube import access, aggregation
from clockhand.store import database

BASE = "/apis/runs.clockhand.dev/v1alpha1"
MASTER: Mapping[str, str] = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
KEPT_DAYS = 30
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


class Nobody:
    """An API server that knows no token and grants nothing: rights must come from the connection."""

    async def user_of(self, token: str) -> access.User | None:
        return None

    async def decide(self, user: access.User, action: access.Action) -> access.Decision:
        return access.Decision(False, "nobody may do anything here")


@dataclass(frozen=True)
class Caller:
    """One TLS identity; `headers` go with every call."""

    session: aiohttp.ClientSession
    url: str
    headers: Mapping[str, str]

    async def call(self, method: str, path: str, *, accept: str = "", body: Any = None, **query: str) -> answers.Answer:
        headers = {**self.headers, **({"Accept": accept} if accept else {})}
        async with self.session.request(method, self.url + path, params=query, headers=headers, json=body) as answer:
            return await answers.answer_of(answer)

    async def get(self, path: str, *, accept: str = "", **query: str) -> answers.Answer:
        return await self.call("GET", path, accept=accept, **query)

    @contextlib.asynccontextmanager
    async def watch(self, path: str, *, accept: str = "", **query: str) -> AsyncIterator[AsyncIterator[Any]]:
        """The events of a watch, decoded."""
        headers = {**self.headers, **({"Accept": accept} if accept else {})}
        timeout = aiohttp.ClientTimeout(total=60)
        parameters = {"watch": "true", **query}
        async with self.session.get(self.url + path, params=parameters, headers=headers, timeout=timeout) as answer:
            assert answer.status == 200, await answer.text()
            yield _events(answer)


class RunsServer:
    """A server of its own on a free port, with certificates of its own."""

    def __init__(self, db: database.Database, folder: Path, *, in_flight: int = 64) -> None:
        self._folder = folder
        self.cluster_ca = pki.authority(folder, "ca")
        self.front_ca = pki.authority(folder, "front-ca")
        self.gatekeeper = frontproxy.Gatekeeper(Nobody())
        self.feed = feed.Feed(db, poll_seconds=0.05)
        app = server.RunsServer(db, self.feed, self.gatekeeper, kept_days=KEPT_DAYS, in_flight=in_flight)
        self.listener = listener.Listener(app.application(), port=0, host="127.0.0.1")

    async def start(self) -> None:
        self.cluster_ca.issue("serving", common_name="runs", hosts=("localhost", "127.0.0.1"))
        certificate, key = ((self._folder / f"serving.{end}").read_bytes() for end in ("crt", "key"))
        ca = (self._folder / "front-ca.crt").read_text()
        trust = aggregation.FrontProxy(
            ca=ca,
            allowed_names=("front-proxy-client",),
            username_headers=("X-Remote-User",),
            group_headers=("X-Remote-Group",),
            extra_prefixes=("X-Remote-Extra-",),
        )
        await self.listener.present(certificates.Serving(certificate, key, b""))
        assert not self.listener.ready
        await self.listener.believe(trust)
        self.gatekeeper.trust = trust

    async def close(self) -> None:
        self.feed.close()
        await self.listener.close()

    @contextlib.asynccontextmanager
    async def caller(
        self, *, authority: pki.Authority | None = None, name: str = "", headers: Mapping[str, str] = MASTER
    ) -> AsyncIterator[Caller]:
        """A caller with a client certificate of `authority` for `name`, or without any."""
        context = ssl.create_default_context(cafile=str(self._folder / "ca.crt"))
        if authority is not None:
            stem = f"client-{name}-{authority.name}"
            authority.issue(stem, common_name=name)
            context.load_cert_chain(self._folder / f"{stem}.crt", self._folder / f"{stem}.key")
        connector = aiohttp.TCPConnector(ssl=context, limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            yield Caller(session, f"https://localhost:{self.listener.port}", headers)

    def front_proxy(self, headers: Mapping[str, str] = MASTER) -> contextlib.AbstractAsyncContextManager[Caller]:
        """The front API server, speaking for a user."""
        return self.caller(authority=self.front_ca, name="front-proxy-client", headers=headers)


async def _events(answer: aiohttp.ClientResponse) -> AsyncIterator[Any]:
    async for line in answer.content:
        yield json.loads(line)
