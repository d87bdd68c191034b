"""Targets that do more than one thing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.support import generated

# stands in for make within make: notes the target, and fails at one
INNER = """\
#!/bin/sh
echo "$2" >> {log}
test "$2" != "{failing}"
"""


@pytest.mark.parametrize(("failing", "failed"), [("", False), ("e2e-kind", True), ("e2e-chart", True)])
def test_a_suite_that_fails_keeps_none_from_running(failing: str, failed: bool, tmp_path: Path) -> None:
    inner, log = tmp_path / "make", tmp_path / "log"
    inner.write_text(INNER.format(log=log, failing=failing))
    inner.chmod(0o755)
    command = ["make", "--old-file=install", "e2e-real", f"MAKE={inner}"]
    done = subprocess.run(command, cwd=generated.ROOT, capture_output=True, text=True, check=False)
    assert log.read_text().split() == ["e2e-kind", "e2e-chart"], done
    assert (done.returncode != 0) is failed
