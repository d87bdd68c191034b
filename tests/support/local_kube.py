"""The small API server in a thread of the test, with a certificate, a kubeconfig and, unless told otherwise, idle nodes."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.support import kube_http, pki, ports
from tests.support import kubectl as kubectls

from clockhand.standalone.kube import accounts, app, settings, store
from clockhand.store import database, migrations

TOKEN = "the-token-of-the-tests"
USER = "developer"
Json = dict[str, Any]


class IdleKubelet:
    """Runs nothing: pods stay as they are stored."""

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def log(self, pod: Json, wanted: settings.LogRequest) -> AsyncGenerator[bytes]:
        yield f"{pod['metadata']['name']} {wanted.container} {wanted.tail_lines}\n".encode()


def idle(_: store.Store, __: accounts.Accounts) -> settings.Kubelet:
    return IdleKubelet()


class LocalKube:
    """One server; `start` and `stop` as often as wanted, over the same folder and port."""

    def __init__(self, folder: Path, database_url: str, make_kubelet: app.MakeKubelet = idle) -> None:
        self.folder = folder
        self.port = ports.free_row(1)
        self.kubeconfig = folder / "kubeconfig"
        self._database_url = database_url
        self._make_kubelet = make_kubelet
        authority = pki.authority(folder, "ca")
        authority.issue("server", common_name="server", hosts=["127.0.0.1"])
        self._write_kubeconfig()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def kubectl(self) -> kubectls.Kubectl:
        return kubectls.Kubectl(self.kubeconfig)

    @property
    def http(self) -> kube_http.KubeHttp:
        return kube_http.KubeHttp(self.url, self.ca, token=TOKEN)

    def start(self) -> None:
        """Returns once it serves; raises what kept it from that."""
        began = threading.Event()
        self._failure: BaseException | None = None

        def main() -> None:
            try:
                asyncio.run(self._serve(began))
            except BaseException as error:
                self._failure = error
            finally:
                began.set()

        self._thread = threading.Thread(target=main, name="local-kube", daemon=True)
        self._thread.start()
        began.wait()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    async def _serve(self, began: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        settled = settings.Settings(
            data_dir=self.folder / "data",
            port=self.port,
            certificate=self.folder / "server.crt",
            key=self.folder / "server.key",
            tokens={TOKEN: USER},
            database_url=self._database_url,
            durable=False,
        )
        await app.serve(settled, self._stop, make_kubelet=self._make_kubelet, ready=began.set)

    def _write_kubeconfig(self) -> None:
        authority = base64.b64encode(self.ca.read_bytes()).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "local", "cluster": {"server": self.url, "certificate-authority-data": authority}}],
            "users": [{"name": "local", "user": {"token": TOKEN}}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": "local"}}],
            "current-context": "local",
        }
        self.kubeconfig.write_text(json.dumps(config))


@contextlib.contextmanager
def running(folder: Path, database_url: str, make_kubelet: app.MakeKubelet = idle) -> Iterator[LocalKube]:
    """One for the length of the block."""
    kube = LocalKube(folder, database_url, make_kubelet)
    kube.start()
    try:
        yield kube
    finally:
        kube.stop()


def migrate(database_url: str) -> None:
    """Brings a fresh database to this release."""

    async def apply() -> None:
        db = database.Database(database_url, size=2, name="test")
        await db.open()
        await migrations.apply(db)
        await db.close()

    asyncio.run(apply())


@contextlib.contextmanager
def operator(
    folder: Path, database_url: str, kubeconfig: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """An operator's process as it is in a cluster, which logs to `operator.log`; stopped at the end."""
    settings = {"DATABASE_URL": database_url, "KUBECONFIG": str(kubeconfig), "HEALTH_PORT": "0", "SHARD_LEASE": "2"}
    told = {**os.environ, **{f"CLOCKHAND_{name}": value for name, value in settings.items()}, **(environment or {})}
    with (folder / "operator.log").open("ab") as log:
        process = subprocess.Popen([sys.executable, "-m", "clockhand", "operator"], env=told, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
