"""A cluster without Clockhand, before and after: each file installs its own release."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support import release
from tests.support.kubectl import Kubectl


@pytest.fixture(scope="session")
def kubeconfig() -> Iterator[Path]:
    found = release.require_a_cluster()
    there = release.Release("helm4", found)
    there.clear()
    yield found
    there.clear()


@pytest.fixture(scope="session")
def namespace(kubeconfig: Path) -> Iterator[Callable[[str], Kubectl]]:
    """Makes namespaces that nobody else uses; all are gone at the end."""
    kubectl, tail, made = Kubectl(kubeconfig), secrets.token_hex(2), list[str]()

    def make(stem: str) -> Kubectl:
        made.append(f"e2e-chart-{stem}-{tail}")
        return kubectl.create_namespace(made[-1])

    yield make
    kubectl.call("delete", "namespace", "--wait=false", "--ignore-not-found", *made)


@pytest.fixture(scope="session")
def team(namespace: Callable[[str], Kubectl]) -> Kubectl:
    return namespace("team")
