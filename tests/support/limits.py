"""Limits in a file, as a process has them."""

from __future__ import annotations

from pathlib import Path

from clockhand.engine import limits


def file(folder: Path, text: str) -> limits.LimitsFile:
    """A file with this text, and whoever reads it again and again."""
    path = folder / "limits.yaml"
    path.write_text(text)
    return limits.LimitsFile(str(path))


async def rewrite(read: limits.LimitsFile, folder: Path, text: str) -> None:
    """Another text in the file of `file`, which has been noticed then."""
    (folder / "limits.yaml").write_text(text)
    await read.step()
