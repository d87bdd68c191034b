"""Every file of `examples/` is applied as it is, and makes a run that succeeds."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.support import runs
from tests.support.kubectl import Kubectl

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))


@pytest.fixture(scope="module")
def applied(here: Kubectl) -> dict[Path, str]:
    """The name of each file's job, all of them applied and started."""
    names = {}
    for path in EXAMPLES:
        here.run("apply", "-f", str(path))
        (job,) = (thing for thing in yaml.safe_load_all(path.read_text()) if thing["kind"] == "ScheduledJob")
        names[path] = job["metadata"]["name"]
    for name in names.values():
        runs.start(here, name, f"{name}-now")
    return names


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_makes_a_run(here: Kubectl, applied: dict[Path, str], path: Path) -> None:
    runs.wait_state(here, f"{applied[path]}-now", "Succeeded", seconds=180)
