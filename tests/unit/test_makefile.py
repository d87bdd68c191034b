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


# stands in for Python: notes its arguments, and ends as it is told, one time after the other
SUITE = """\
#!/bin/sh
echo "$*" >> {log}
exit $(echo {ends} | cut -d ' ' -f $(wc -l < {log}))
"""


@pytest.mark.parametrize(
    ("ends", "times", "failed"), [("0", 1, False), ("1 0", 2, False), ("1 1", 2, True), ("2 0", 1, True)]
)
def test_what_fails_is_tried_once_more(ends: str, times: int, failed: bool, tmp_path: Path) -> None:
    python, log = tmp_path / "python", tmp_path / "log"
    python.write_text(SUITE.format(log=log, ends=ends))
    python.chmod(0o755)
    command = ["make", "--old-file=install", "integration", f"PY={python}"]
    done = subprocess.run(command, cwd=generated.ROOT, capture_output=True, text=True, check=False)
    calls = log.read_text().splitlines()
    assert ["--last-failed" in call.split() for call in calls] == [False, True][:times], done
    assert all(call.endswith("tests/integration") for call in calls)
    assert (done.returncode != 0) is failed


@pytest.mark.parametrize(("failing", "failed"), [("", False), ("e2e-kind", True), ("e2e-chart", True)])
def test_a_suite_that_fails_keeps_none_from_running(failing: str, failed: bool, tmp_path: Path) -> None:
    inner, log = tmp_path / "make", tmp_path / "log"
    inner.write_text(INNER.format(log=log, failing=failing))
    inner.chmod(0o755)
    command = ["make", "--old-file=install", "e2e-real", f"MAKE={inner}"]
    done = subprocess.run(command, cwd=generated.ROOT, capture_output=True, text=True, check=False)
    assert log.read_text().split() == ["e2e-kind", "e2e-chart"], done
    assert (done.returncode != 0) is failed
