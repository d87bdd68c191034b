"""The folder `operator/` must never hide the standard library's module of that name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("flags", [[], ["-P"], ["-I"]])
def test_the_standard_library_keeps_its_operator(flags: list[str]) -> None:
    program = "import collections, operator; assert operator.add(1, 2) == 3; print(operator.__file__)"
    done = subprocess.run([sys.executable, *flags, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True)
    assert not Path(done.stdout.strip()).is_relative_to(ROOT / "operator")


def test_nothing_in_the_folder_can_be_imported() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert list((ROOT / "operator").glob("*.py")) == []
    assert [entry.name for entry in (ROOT / "operator" / "src").iterdir() if (entry / "__init__.py").exists()] == [
        "clockhand"
    ]
