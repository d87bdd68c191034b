"""What the API server really stored, read from its etcd: every write in order, also while the API server is down.

A watch through the API server would break with the very faults that a test makes, and may leave things out after it. etcd
keeps the writes and sends them in order. Needs an API server that stores JSON (`--storage-media-type=application/json`).
"""

from __future__ import annotations

import base64
import json
import threading
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Write:
    """One write to one key. `object` is what is stored after it, None for a removal; `before` the state until then."""

    key: str
    revision: int
    object: dict[str, Any] | None
    before: dict[str, Any] | None


class EtcdWatch:
    """Calls `note` with every write below `prefix`, from a thread of its own; use it with `with`."""

    def __init__(self, port: int, prefix: str, note: Callable[[Write], None]) -> None:
        self._url = f"http://127.0.0.1:{port}/v3"
        self._prefix = prefix.encode()
        self._note = note
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="etcd-watch", daemon=True)
        self.seen = 0
        self.failure: BaseException | None = None

    def __enter__(self) -> EtcdWatch:
        self._thread.start()
        if not self._begun.wait(10):
            raise TimeoutError(f"etcd did not begin the watch: {self.failure}")
        return self

    def __exit__(self, *_: object) -> None:
        """The thread ends with the process: a blocking read has no other end."""

    def revision(self) -> int:
        """The revision of the newest write below the prefix."""
        newest = {**self._range(), "limit": "1", "sort_order": "DESCEND", "sort_target": "MOD"}
        found = self._ask("/kv/range", newest).get("kvs", [])
        return int(found[0]["mod_revision"]) if found else 0

    def _range(self) -> dict[str, str]:
        end = self._prefix[:-1] + bytes([self._prefix[-1] + 1])
        return {"key": base64.b64encode(self._prefix).decode(), "range_end": base64.b64encode(end).decode()}

    def _ask(self, path: str, body: object) -> Any:
        with self._open(path, body, seconds=10) as answer:
            return json.loads(answer.read())

    def _open(self, path: str, body: object, *, seconds: float | None) -> Any:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        return opener.open(urllib.request.Request(self._url + path, json.dumps(body).encode()), timeout=seconds)

    def _follow(self) -> None:
        try:
            with self._open("/watch", {"create_request": {**self._range(), "prev_kv": True}}, seconds=None) as lines:
                for line in lines:
                    self._take(json.loads(line)["result"])
        except BaseException as failure:  # reported by whoever asks next; a thread has nobody to raise to
            self.failure = failure

    def _take(self, result: dict[str, Any]) -> None:
        for write in _writes(result):
            self._note(write)
            self.seen = write.revision
        self._begun.set()


def _writes(result: dict[str, Any]) -> Iterator[Write]:
    for event in result.get("events", ()):
        kept = event["kv"]
        gone = event.get("type") == "DELETE"
        yield Write(
            key=base64.b64decode(kept["key"]).decode(),
            revision=int(kept["mod_revision"]),
            object=None if gone else _decoded(kept),
            before=_decoded(event["prev_kv"]) if "prev_kv" in event else None,
        )


def _decoded(kept: dict[str, Any]) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(base64.b64decode(kept["value"]))
    return decoded
