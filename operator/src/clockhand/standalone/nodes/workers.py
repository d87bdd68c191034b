"""Workers of a pool, which share this machine's name and addresses: each is told a name and a port of its own."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping
from dataclasses import replace

from clockhand.standalone.nodes import manifest, rendering

_HEALTH_PORT = "CLOCKHAND_HEALTH_PORT"
_NAME_CUT = 64


def of_this_machine(
    pod: manifest.Pod, container: manifest.Container, command: rendering.Command
) -> tuple[rendering.Command, Mapping[int, int]]:
    """The command, and which port of this machine stands for which of the container; as it is for any other container."""
    told = command.environment.get(_HEALTH_PORT, "")
    if container.name != pod.worker or not told.isdecimal():
        return command, {}
    port = _free_port()
    own = {
        "CLOCKHAND_WORKER_NAME": f"{pod.metadata.name[:_NAME_CUT]}-{secrets.token_hex(4)}",
        "CLOCKHAND_LISTEN": rendering.ADDRESS,
        **command.environment,
        _HEALTH_PORT: str(port),
    }
    return replace(command, environment=own), {int(told): port}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((rendering.ADDRESS, 0))
        return int(probe.getsockname()[1])
