"""What `make demo-cluster` runs is what the README tells, and what it says of pods is what they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.e2e import demo
from tests.support import generated, helm


@pytest.mark.parametrize("command", [demo.INSTALL, demo.JOB, demo.JOBS, demo.RUNS])
def test_the_readme_gives_the_commands_of_the_demo(command: str) -> None:
    text = (generated.ROOT / "README.md").read_text(encoding="utf-8")
    blocks = text.split("## Quick start on a cluster of yours", 1)[1].split("```sh\n")
    assert command in [line.removesuffix(" \\") for line in blocks[1].split("```")[0].splitlines()]


def test_the_install_names_the_release_that_the_demo_looks_at() -> None:
    words = demo.INSTALL.split()
    assert words[2] == helm.RELEASE
    assert (generated.ROOT / words[3]) == helm.CHART
    assert words[words.index("--namespace") + 1] == helm.NAMESPACE


def test_whoever_has_a_cluster_is_told_of_the_images_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    assert demo.bring_up() == tmp_path / "kubeconfig"
    said = capsys.readouterr().err
    given = dict(value.split("=") for value in demo.IMAGES)
    named = [f"{given[key]}:{given[key.replace('repository', 'tag')]}" for key in given if key.endswith("repository")]
    assert len(named) == 3
    assert all(image in said for image in named)
    assert "make images" in said


def test_a_pod_that_is_done_is_not_waited_for() -> None:
    done, ready, starting = pod("migrate", phase="Succeeded"), pod("runs", ready="True"), pod("operator", ready="False")
    assert demo.readiness([]) == "no pods yet"
    assert demo.readiness([done, starting, ready]) == "2 of 3 pods ready, not yet: operator"
    assert demo.readiness([done, ready]) == "2 of 2 pods ready"


def pod(component: str, *, phase: str = "Running", ready: str = "False") -> dict[str, Any]:
    labels = {"app.kubernetes.io/component": component}
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}
    return {"metadata": {"name": component, "labels": labels}, "status": status}
