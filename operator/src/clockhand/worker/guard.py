"""Where the handler `http` may connect: hosts that the pool's owner listed, at addresses that are public or listed too.

A URL comes from whoever may write a payload, so neither it nor what a name server says of its host is trusted. URLs are
read by the parser that the client connects with; every address of a name is looked at, and the connection goes to one of
those that were looked at.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp.abc
import msgspec
import yaml
import yarl

from clockhand import errors

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_LONGEST_URL = 2_048
# not ending in a number: what looks like an address is read as one by some
_NAME = re.compile(r"([a-z0-9_-]{1,63}\.)*(?!([0-9]+|0x[0-9a-f]*)$)[a-z0-9_-]{1,63}")
_NOT_IN_URLS = re.compile(r"[\x00-\x20\x7f\\]")
_ENTRY = re.compile(
    r"((?P<scheme>https?)://)?(?P<host>\*|(\*\.)?[^\s/:*@\[\]]+|\[[0-9a-fA-F:.]+\])(:(?P<port>[0-9]{1,5}))?"
)
_PORTS = {"http": 80, "https": 443}

# special-purpose registries of IANA, less what is reachable from everywhere; Python's own list differs between releases
_RESERVED = [
    ipaddress.ip_network(text)
    for text in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"),
        *("192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24"),
        *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "168.63.129.16/32"),
        *("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20"),
    )
]
# of IPv6 nothing else is public: what maps or translates IPv4 addresses lies outside
_UNICAST = ipaddress.ip_network("2000::/3")


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    hosts: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()


class _Entry(msgspec.Struct, frozen=True):
    scheme: str
    host: str
    port: int

    def fits(self, url: yarl.URL) -> bool:
        host = url.raw_host or ""
        named = self.host == "*" or host == self.host or (self.host[:2] == "*." and host.endswith(self.host[1:]))
        return named and url.scheme == self.scheme and url.port == self.port


class Guard(msgspec.Struct, frozen=True):
    """The hosts and networks that may be called."""

    entries: Sequence[_Entry]
    networks: Sequence[Network] = ()

    def url(self, text: str) -> yarl.URL:
        """The URL that `text` is; raises Refused where it may not be called."""
        if len(text) > _LONGEST_URL or _NOT_IN_URLS.search(text):
            raise errors.Refused("the URL is too long or has characters that no URL has")
        try:
            url = yarl.URL(text)
            host, port = url.raw_host, url.port
        except ValueError as error:
            raise errors.Refused(f"the URL cannot be read: {error}") from error
        if url.scheme not in _PORTS or not host or port is None:
            raise errors.Refused("the URL is neither http://host nor https://host")
        if url.raw_user is not None or url.raw_password is not None:
            raise errors.Refused("the URL has a user or a password: send a header instead")
        self._host(host)
        if not any(entry.fits(url) for entry in self.entries):
            raise errors.Refused(f"{url.scheme}://{host}:{port} is not among the hosts of this pool")
        return url

    def addresses(self, texts: Sequence[str]) -> None:
        """Raises Refused unless all of the addresses may be connected to."""
        for text in texts:
            if not self._is_open(ipaddress.ip_address(text)):
                raise errors.Refused(
                    "the host has an address that is not public, and not among the networks of this pool"
                )

    def _host(self, host: str) -> None:
        if ":" in host or host.replace(".", "").isdigit():
            try:
                self.addresses([str(ipaddress.ip_address(host))])
            except ValueError as error:
                raise errors.Refused(f"{host} is not an address as it is usually written") from error
        elif not _NAME.fullmatch(host):
            raise errors.Refused(f"{host} is not a host name")

    def _is_open(self, address: Address) -> bool:
        if any(address in network for network in self.networks):
            return True
        if isinstance(address, ipaddress.IPv6Address) and (address.scope_id or address not in _UNICAST):
            return False
        return not any(address in network for network in _RESERVED)


def read(path: str) -> Guard:
    """What a YAML file allows: `hosts`, and `networks` beyond the public ones. Raises InvalidInput where it is wrong."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        listed = msgspec.convert(yaml.safe_load(text) or {}, type=_File)
        return Guard(
            entries=tuple(_entry(host) for host in listed.hosts),
            networks=tuple(ipaddress.ip_network(network) for network in listed.networks),
        )
    except (OSError, ValueError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise errors.InvalidInput("CLOCKHAND_HTTP_HOSTS", f"{path} is no list of hosts: {error}") from error


def _entry(text: str) -> _Entry:
    match = _ENTRY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is none of hooks.example.com, *.example.com, https://hooks.example.com:8443")
    scheme = match["scheme"] or "https"
    starred, host = match["host"].startswith("*."), match["host"].removeprefix("*.")
    known = host if host == "*" else yarl.URL.build(scheme=scheme, host=host.strip("[]")).raw_host or host
    port = int(match["port"]) if match["port"] else _PORTS[scheme]
    return _Entry(scheme=scheme, host=f"*.{known}" if starred else known, port=port)


class Resolver(aiohttp.abc.AbstractResolver):
    """Looks names up, and refuses one of which any address may not be connected to."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[aiohttp.abc.ResolveResult]:
        """The addresses of `host`, all of them good."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, family=family)
        self._guard.addresses([str(address[0]) for *_, address in found])
        return [_result(host, port, kind, str(address[0])) for kind, *_, address in found]

    async def close(self) -> None:
        """Holds nothing."""


def _result(host: str, port: int, family: int, address: str) -> aiohttp.abc.ResolveResult:
    return {
        "hostname": host,
        "host": address,
        "port": port,
        "family": family,
        "proto": socket.IPPROTO_TCP,
        "flags": socket.AI_NUMERICHOST,
    }


def connector(guard: Guard) -> aiohttp.TCPConnector:
    """Connects where `guard` allows it, and looks at each address once more when it has come to the socket."""

    def opened(info: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, _, address = info
        guard.addresses([address[0]])
        return socket.socket(family, kind, protocol)

    return aiohttp.TCPConnector(resolver=Resolver(guard), use_dns_cache=False, socket_factory=opened)
