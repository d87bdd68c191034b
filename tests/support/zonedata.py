"""Zone data in which a country has moved its clock: a copy of the tzdata package that stands before the real one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import tzdata

LATER = "2099a"


def doctored(folder: Path, *, version: str, zone: str, becomes: str) -> Path:
    """Makes a release `version` in which `zone` keeps the time of `becomes`; returns what goes into PYTHONPATH."""
    copy = folder / version / "tzdata"
    shutil.copytree(Path(tzdata.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    init = copy / "__init__.py"
    init.write_text(init.read_text().replace(tzdata.IANA_VERSION, version))
    shutil.copyfile(copy / "zoneinfo" / becomes, copy / "zoneinfo" / zone)
    return copy.parent


def environment(path: Path | None) -> Mapping[str, str]:
    """Of a process that has the doctored data at `path`, or the true ones."""
    return {**os.environ, "PYTHONPATH": str(path)} if path else dict(os.environ)
