"""A proxy on an event loop of its own, for a harness that has none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from tests.support import tcpproxy

T = TypeVar("T")


class Wire:
    """Leads from a port of its own to a server, or to any of several."""

    def __init__(self, host: str, port: int, *more_ports: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._proxy = tcpproxy.TcpProxy(host, port, *more_ports)
        self._wait(self._proxy.__aenter__())
        self.port = self._proxy.port

    def hush(self) -> int:
        """Silences the connections that are open now; returns how many."""
        return self._call(self._proxy.hush)

    def heard(self) -> int:
        """How many open connections are not silent."""
        return self._call(lambda: self._proxy.heard)

    def cut(self) -> None:
        """Breaks every connection, and every new one at once."""
        self._call(self._proxy.cut)

    def clog(self) -> None:
        """Requests get through, answers do not."""
        self._call(self._proxy.clog)

    def mend(self) -> None:
        """Everything gets through again."""
        self._call(self._proxy.clear)
        self._call(self._proxy.mend)

    def close(self) -> None:
        self._wait(self._proxy.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Callable[[], T]) -> T:
        async def call() -> T:
            return work()

        result: T = self._wait(call())
        return result

    def _wait(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)
