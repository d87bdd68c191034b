"""A node in a process of its own, to be killed: `python -m tests.support.local_node HOME SCRIPT`.

It runs a pod whose script is started once and one whose is started again.
When both run it prints their names and the processes that they named in their logs.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from clockhand.standalone.kube import settings, store
from clockhand.standalone.nodes import ground, kubelet


async def main(home: Path, script: str) -> None:
    objects = store.Store(home / "objects.sqlite")
    node = kubelet.Kubelet(
        objects, home=home / "node", issue=lambda *_, **__: "", environment={"PATH": os.environ["PATH"]}
    )
    running = asyncio.create_task(node.run())
    keys = [store.Key("pods", "team-a", name) for name in ("once", "service")]
    for key, policy in zip(keys, ("Never", "Always"), strict=True):
        container = {"name": "main", "command": ["sh", "-c", script]}
        spec = {"restartPolicy": policy, "containers": [container]}
        await objects.create(key, {"metadata": ground.metadata(key, now="2026-03-01T12:00:00Z"), "spec": spec})
    logs = [await _first_line(objects, node, key) for key in keys]
    print(*(key.name for key in keys), *logs, flush=True)
    await running


async def _first_line(objects: store.Store, node: kubelet.Kubelet, key: store.Key) -> str:
    while True:
        pod: dict[str, Any] | None = objects.get(key)
        if pod and (pod.get("status") or {}).get("phase") == "Running":
            async for piece in node.log(pod, settings.LogRequest(follow=True)):
                return piece.decode().strip()
        await asyncio.sleep(0.01)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(folder, sys.argv[2]))
