"""The plain manifests, for whoever does without Helm: what the chart renders, as a file, and its objects for tests."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from tests.support import helm
from tests.support.kubectl import Kubectl, wait_for

FOLDER = Path(__file__).parents[2] / "deploy"
FILE = FOLDER / "clockhand.yaml"
WITH_IMAGES = Path(__file__).parents[1] / "e2e/kind"
"""An overlay with the images of the cluster of tests."""
VALUES: Mapping[str, Any] = {**helm.DATABASE, "migrate": {"hook": False}, "crds": {"install": False}}
"""Definitions are files of their own already, and nobody else knows hooks."""
RIGHTS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
HEADING = """\
# Generated from charts/scheduler by `make generate`: edit that. How it is used: README.md.
"""
_OF_HELM = re.compile(r"^ +(?:helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n", re.MULTILINE)


def text() -> str:
    """What `deploy/clockhand.yaml` is to hold."""
    said = helm.Helm("helm4").run(
        "template", helm.RELEASE, str(helm.CHART), "--skip-tests", helm.KUBE_VERSION, values=VALUES
    )
    return HEADING + _OF_HELM.sub("", said)


def objects(*kinds: str) -> Sequence[helm.Object]:
    """Those of these kinds, as the file has them."""
    return [thing for thing in _everything() if thing["kind"] in kinds]


def namespace() -> helm.Object:
    """That of all of them."""
    found: helm.Object = yaml.safe_load((FOLDER / "namespace.yaml").read_text(encoding="utf-8"))
    return found


def declare(kubectl: Kubectl, *, known: str) -> None:
    """Definitions, rights and policies, for a test that is Clockhand itself; `known` is a field of what it is about."""
    kubectl.run("apply", "-f", str(FOLDER.parent / "crds"))
    kubectl.run("wait", "--for=condition=Established", "crd", "--all", "--timeout=100s")
    kubectl.apply(namespace(), *objects(*RIGHTS, *POLICIES))
    published = "/openapi/v3/apis/clockhand.dev/v1alpha1"
    wait_for("the published schema", lambda: known in kubectl.call("get", "--raw", published).out)


@functools.cache
def _everything() -> Sequence[helm.Object]:
    return list(yaml.safe_load_all(FILE.read_text(encoding="utf-8")))
