"""What an aggregated API server needs from the one in front of it: whom to trust, and a way to be trusted."""

from __future__ import annotations

import asyncio
import base64
import collections.abc
import contextlib
import random
from dataclasses import dataclass

import msgspec

from clockhand import errors
from clockhand.kube import client as clients
from clockhand.kube import streams

_NAMESPACE = "kube-system"
_NAME = "extension-apiserver-authentication"
_PATH = f"/api/v1/namespaces/{_NAMESPACE}/configmaps"
_STALL_SECONDS = 70.0
_PAUSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """Who may speak for users: holders of a certificate of `ca` with one of `allowed_names` (empty: any)."""

    ca: str
    allowed_names: tuple[str, ...]
    username_headers: tuple[str, ...]
    group_headers: tuple[str, ...]
    extra_prefixes: tuple[str, ...]
    client_ca: str = ""


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _ConfigMap(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    data: dict[str, str] = {}


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: _ConfigMap


_CONFIG_MAP = msgspec.json.Decoder(_ConfigMap)
_EVENT = msgspec.json.Decoder(_Event)


async def read_front_proxy(client: clients.Client) -> FrontProxy:
    return _front_proxy((await _read(client)).data)


async def front_proxies(
    client: clients.Client, *, stall_seconds: float = _STALL_SECONDS
) -> collections.abc.AsyncGenerator[FrontProxy]:
    """The current trust, and again at each change. Endless: after a failure it reads afresh."""
    last: FrontProxy | None = None
    while True:
        async with contextlib.aclosing(_until_failure(client, stall_seconds)) as states:
            async for state in states:
                if state != last:
                    last = state
                    yield state
        await asyncio.sleep(_PAUSE_SECONDS * random.uniform(0.5, 1.0))


async def set_ca_bundle(client: clients.Client, api_service: str, ca: bytes) -> None:
    """Tell the API server by which CA (PEM) to verify us."""
    body = {"spec": {"caBundle": base64.b64encode(ca).decode(), "insecureSkipTLSVerify": None}}
    await client.write(
        "PATCH",
        f"/apis/apiregistration.k8s.io/v1/apiservices/{clients.path_part(api_service)}",
        clients.encode(body),
        query={"fieldManager": "clockhand"},
        headers={**clients.METADATA_ONLY, **clients.MERGE_PATCH},
    )


async def _until_failure(client: clients.Client, stall_seconds: float) -> collections.abc.AsyncGenerator[FrontProxy]:
    with contextlib.suppress(errors.ClockhandError, msgspec.MsgspecError):
        found = await _read(client)
        yield _front_proxy(found.data)
        query = {
            "watch": "1",
            "fieldSelector": f"metadata.name={_NAME}",
            "resourceVersion": found.metadata.resource_version,
            "allowWatchBookmarks": "true",
        }
        async with contextlib.aclosing(client.watch(_PATH, query, streams.Patience(stall_seconds))) as lines:
            async for line in lines:
                event = _EVENT.decode(line)
                if event.type in ("ADDED", "MODIFIED"):
                    yield _front_proxy(event.object.data)
                elif event.type != "BOOKMARK":
                    return


async def _read(client: clients.Client) -> _ConfigMap:
    return _CONFIG_MAP.decode(await client.get(f"{_PATH}/{_NAME}"))


def _front_proxy(data: collections.abc.Mapping[str, str]) -> FrontProxy:
    return FrontProxy(
        ca=data.get("requestheader-client-ca-file", ""),
        allowed_names=_names(data, "requestheader-allowed-names"),
        username_headers=_names(data, "requestheader-username-headers"),
        group_headers=_names(data, "requestheader-group-headers"),
        extra_prefixes=_names(data, "requestheader-extra-headers-prefix"),
        client_ca=data.get("client-ca-file", ""),
    )


def _names(data: collections.abc.Mapping[str, str], key: str) -> tuple[str, ...]:
    return msgspec.json.decode(data.get(key) or "[]", type=tuple[str, ...])
