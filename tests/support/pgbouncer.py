"""A transaction pooler before the tests' PostgreSQL: each transaction may be on another connection than the one before."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import psycopg
from tests.e2e.cluster import engine
from tests.support import ports

CONNECTIONS = 3
"""To the server; the processes under test have more."""
_NOBODY = "nobody"  # it refuses to run as root
_SECONDS = 20.0
_CONFIG = """
[databases]
* = host=127.0.0.1 port={server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = {connections}
"""


@contextlib.contextmanager
def before(url: str) -> Iterator[str]:
    """The URL of the same database through a pooler."""
    engine.ensure_programs({"pgbouncer": "pgbouncer"})
    target = urllib.parse.urlsplit(url)
    folder = Path(tempfile.mkdtemp(prefix="clockhand-pgbouncer-"))
    port = ports.free_row(1)
    (folder / "users").write_text('"postgres" ""\n')
    config = folder / "pgbouncer.ini"
    config.write_text(_CONFIG.format(server=target.port, port=port, folder=folder, connections=CONNECTIONS))
    user = _NOBODY if os.geteuid() == 0 else None
    if user is not None:
        for path in (folder, folder / "users", config):
            os.chown(path, pwd.getpwnam(user).pw_uid, -1)
    program = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, str(config)], stdout=log, stderr=log, user=user)
    try:
        pooled = url.replace(f":{target.port}/", f":{port}/")
        _wait_for(pooled, process, folder / "log")
        yield pooled
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder)


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            psycopg.connect(url, connect_timeout=1).close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(log.read_text()) from None
            time.sleep(0.05)
