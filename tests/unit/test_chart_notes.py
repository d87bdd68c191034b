"""What Helm says after an install: warnings, and lines that can be pasted as they are."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
import yaml
from tests.support import chart_cases, helm


def notes(values: dict[str, Any]) -> str:
    return helm.Helm("helm4").run("install", "clockhand", str(helm.CHART), "--dry-run=client", values=values)


def test_notes_warn() -> None:
    said = notes({**chart_cases.MATRIX["demo"], "operator": {"replicas": 1}})
    assert "NOT FOR PRODUCTION" in said
    assert "with 1 replica(s) of the operator" in said
    assert "helm test -n clockhand-system clockhand" in said


@pytest.mark.parametrize(("name", "place"), [("secret", "default"), ("namespaced", "team-a")])
def test_the_first_job_can_be_pasted_into_a_shell(name: str, place: str) -> None:
    said = notes(dict(chart_cases.MATRIX[name]))
    script = f"kubectl() {{ cat; }}\n{said[said.index('kubectl apply -f -') : said.index('  kubectl get sjob')]}"
    done = subprocess.run(["sh", "-eu", "-c", script], capture_output=True, text=True, check=True, timeout=30)
    job = yaml.safe_load(done.stdout)
    assert (job["kind"], job["metadata"]) == ("ScheduledJob", {"name": "hello", "namespace": place})


def test_the_call_of_rest_is_of_somebody_who_may_read() -> None:
    said = notes(dict(chart_cases.MATRIX["namespaced"]))
    role = "create rolebinding clockhand-viewer --clusterrole=clockhand-viewer --serviceaccount=team-a:default"
    assert f"  kubectl -n team-a {role}\n  TOKEN=$(kubectl -n team-a create token default" in said
    without = notes({**helm.DATABASE, "rbac": {"create": False}})
    assert "create rolebinding" not in without
    assert "bind a role of yours" in without
