"""The process of the small API server: what it is made of, how it starts and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from clockhand.standalone.kube import settings as settled
from clockhand.standalone.kube import store as stores

MakeKubelet = Callable[[stores.Store], settled.Kubelet]


async def serve(
    settings: settled.Settings, stop: asyncio.Event, *, make_kubelet: MakeKubelet, ready: Callable[[], None]
) -> None:
    """Serves the objects until `stop` is set, and lets a kubelet run their pods; `ready` is called once both do."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    store = stores.Store(settings.data_dir / "objects.sqlite", durable=settings.durable)
    try:
        async with asyncio.TaskGroup() as tasks:
            kubelet = tasks.create_task(make_kubelet(store).run())
            ready()
            await stop.wait()
            kubelet.cancel()
    finally:
        await store.close()
