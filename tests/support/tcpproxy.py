"""A wire between a client and a server that a test can cut or clog, which no server does on request."""

from __future__ import annotations

import asyncio
import contextlib
import random
from types import TracebackType


class TcpProxy:
    """Forwards bytes between a port of its own and a server; use it with `async with`.

    With `more_ports` each connection goes to one of several servers, as those behind a Service do: to any that takes it.
    """

    def __init__(self, host: str, port: int, *more_ports: int) -> None:
        self._targets = [(host, one) for one in (port, *more_ports)]
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._silent: set[asyncio.StreamWriter] = set()
        self._answers_pass = asyncio.Event()
        self._answers_pass.set()
        self.is_cut = False
        self.port = 0

    async def __aenter__(self) -> TcpProxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def cut(self) -> None:
        """Break every connection, and every new one at once."""
        self.is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    def mend(self) -> None:
        self.is_cut = False

    def clog(self) -> None:
        """Requests get through, answers do not; the connections stay open."""
        self._answers_pass.clear()

    def clear(self) -> None:
        self._answers_pass.set()

    def hush(self) -> int:
        """The connections that are open now stay open, and nothing comes through them ever again, as where a router
        on the way forgot them; new ones work. Returns how many.
        """
        count = self.heard
        self._silent |= self._writers
        return count

    @property
    def heard(self) -> int:
        """Open connections that something may come through."""
        return len(self._writers - self._silent) // 2

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if not self.is_cut:
                await self._join(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # asyncio's streams would report a task of theirs that ends as cancelled
        with contextlib.suppress(OSError, asyncio.CancelledError):
            server_reader, server_writer = await self._connect()
            self._writers |= {writer, server_writer}
            try:
                await asyncio.gather(self._pump(reader, server_writer), self._pump(server_reader, writer, answers=True))
            finally:
                self._writers -= {writer, server_writer}
                self._silent -= {writer, server_writer}
                server_writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        *others, last = random.sample(self._targets, len(self._targets))
        for target in others:
            with contextlib.suppress(OSError):
                return await asyncio.open_connection(*target)
        return await asyncio.open_connection(*last)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool = False) -> None:
        while data := await reader.read(65536):
            if answers:
                await self._answers_pass.wait()
            if writer in self._silent:
                continue
            writer.write(data)
            await writer.drain()
        writer.transport.abort()
