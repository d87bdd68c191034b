"""Helm of both majors, as people use it: what the chart renders, and what Helm says."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.e2e.cluster import binaries

CHART = Path(__file__).parents[2] / "charts" / "scheduler"
KUBE_VERSION = "--kube-version=1.36"
RELEASE, NAMESPACE = "clockhand", "clockhand-system"
DATABASE: Mapping[str, Any] = {"database": {"existingSecret": "clockhand-database"}}
Object = dict[str, Any]
Values = Mapping[str, Any]
_SECONDS = 420.0


class HelmError(AssertionError):
    """Helm ended otherwise than the test expected."""


@dataclass(frozen=True)
class Helm:
    """One major, on the cluster of a kubeconfig, or on none."""

    program: str
    kubeconfig: Path | None = None
    namespace: str = NAMESPACE

    def __str__(self) -> str:
        return self.program

    def run(self, *arguments: str, values: Values | None = None) -> str:
        """What it printed, of a call that must succeed."""
        done = self._call(arguments, values)
        if done.returncode != 0:
            raise HelmError(f"$ {self.program} {' '.join(arguments)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
        return done.stdout

    def refusal(self, *arguments: str, values: Values | None = None) -> str:
        """What it said on a call that must fail."""
        done = self._call(arguments, values)
        if done.returncode == 0:
            raise HelmError(f"expected a refusal of {self.program} {' '.join(arguments)}")
        return done.stderr

    def template(self, values: Values, *, release: str = RELEASE) -> Sequence[Object]:
        """Every object of a release with these values, hooks and tests among them."""
        rendered = self.run("template", release, str(CHART), KUBE_VERSION, values=values)
        return [found for found in yaml.load_all(rendered, Loader=yaml.CSafeLoader) if found]

    def _call(self, arguments: Sequence[str], values: Values | None) -> subprocess.CompletedProcess[str]:
        binaries.ensure([self.program])
        # a person's repositories, plugins and settings are not asked
        with tempfile.TemporaryDirectory() as home:
            places = {name: home for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")}
            command = [str(binaries.path(self.program)), *arguments, f"--namespace={self.namespace}"]
            if self.kubeconfig is not None:
                command.append(f"--kubeconfig={self.kubeconfig}")
            if values is not None:
                Path(home, "values.yaml").write_text(json.dumps(values))
                command.append(f"--values={home}/values.yaml")
            return subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                timeout=_SECONDS,
                env={**os.environ, **places},
            )


MAJORS = tuple(map(Helm, binaries.HELMS))


def identity(thing: Object) -> str:
    """Kind, namespace and name, in one line."""
    meta = thing["metadata"]
    return f"{thing['kind']} {meta.get('namespace', '')}/{meta['name']}"


def pod_spec(thing: Object) -> Object | None:
    """The pod that an object makes, or is."""
    if thing["kind"] == "Pod":
        pod: Object = thing["spec"]
        return pod
    if thing["kind"] in ("Deployment", "StatefulSet", "Job"):
        pod = thing["spec"]["template"]["spec"]
        return pod
    return None
