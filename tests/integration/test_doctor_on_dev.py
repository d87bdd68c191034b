"""`clockhand doctor` on `clockhand dev`, which is sound: as its page says."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support import dev, generated

MOST_SECONDS = 60


def on_the_page() -> str:
    """The lines that the page tells people to type."""
    page = (generated.ROOT / "docs/doctor.md").read_text(encoding="utf-8")
    found = re.search(r"```sh\n(?P<lines>data=.*?)```", page, re.DOTALL)
    assert found
    return found["lines"]


async def test_an_installation_on_one_machine_is_sound(tmp_path: Path) -> None:
    async with dev.started(tmp_path) as one:
        await one.until_ready()
        lines = f"{on_the_page().strip()} -o json"
        environment = {
            **os.environ,
            "HOME": str(tmp_path),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        for _ in range(MOST_SECONDS):
            said = await asyncio.to_thread(
                subprocess.run, ["sh", "-c", lines], env=environment, capture_output=True, text=True, timeout=120
            )
            told = json.loads(said.stdout)
            if not told["failed"]:  # a replica that has just begun may not hold all of its shards yet
                break
            await asyncio.sleep(1)
        found = {one["check"]: one["verdict"] for one in told["checks"]}
    assert (told["failed"], said.returncode) == (False, 0), told
    assert {name for name, verdict in found.items() if verdict == "warning"} == set(), told
    skipped = {name for name, verdict in found.items() if verdict == "skipped"}
    assert skipped == {"admission", "certificates", "served-certificate"}, told
