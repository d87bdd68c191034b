"""One installation a test session, on the cluster of KUBECONFIG or, without it, the one of `make cluster-up`.

With CLOCKHAND_E2E=light the same tests run on a control plane with fake nodes and the product as local
processes; those marked `kind` need containers that really run, and are skipped there. With CLOCKHAND_E2E=standalone they run
on `clockhand dev`, but for those that take parts of an installation away and those that are marked `cluster`.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster import kind_cluster
from tests.support import installation as installations
from tests.support.kubectl import Kubectl

LIGHT = os.environ.get("CLOCKHAND_E2E") == "light"
STANDALONE = os.environ.get("CLOCKHAND_E2E") == "standalone"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "outage: takes parts of the installation away; runs after all others")
    config.addinivalue_line(
        "markers", "cluster: needs what only a cluster has, such as users with less rights than all"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("outage") is not None)
    if LIGHT:
        _skip(items, "kind", "fake nodes run no containers")
    if STANDALONE:
        _skip(items, "cluster", "it is no cluster")


def _skip(items: list[pytest.Item], marker: str, reason: str) -> None:
    for item in items:
        if item.get_closest_marker(marker):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def installation() -> Iterator[installations.Installation]:
    if LIGHT:
        with installations.on_light_cluster() as processes:
            yield processes
        return
    if STANDALONE:
        with installations.standalone() as whole:
            yield whole
        return
    kubeconfig = Path(os.environ.get("KUBECONFIG") or kind_cluster.kubeconfig())
    if not kubeconfig.is_file():
        pytest.fail(f"there is no {kubeconfig}: set KUBECONFIG, or let `make cluster-up` bring up a cluster")
    manifests = installations.Manifests(kubeconfig)
    theirs = kubeconfig != kind_cluster.kubeconfig()
    if manifests.exists:
        if theirs:
            pytest.fail(f"Clockhand is installed there already, and the suite would replace it: {kubeconfig}")
        manifests.remove()
    try:
        manifests.install()
        yield manifests
    finally:
        if theirs:
            manifests.remove()


@pytest.fixture(scope="session")
def admin(installation: installations.Installation) -> Kubectl:
    """kubectl of the cluster's administrator."""
    return installation.kubectl


@pytest.fixture(scope="session")
def new_namespace(admin: Kubectl) -> Iterator[Callable[..., Kubectl]]:
    """Makes namespaces that nobody else uses; all are deleted at the end."""
    tail = secrets.token_hex(2)
    made: list[str] = []

    def make(stem: str, *, labels: dict[str, str] | None = None) -> Kubectl:
        name = f"{stem}-{tail}"
        made.append(name)
        return admin.create_namespace(name, labels=labels)

    yield make
    if made:
        admin.call("delete", "namespace", "--wait=false", "--ignore-not-found", *made)


@pytest.fixture(scope="module")
def here(request: pytest.FixtureRequest, new_namespace: Callable[..., Kubectl]) -> Kubectl:
    """A namespace of this module's own."""
    stem = Path(str(request.node.path)).stem.removeprefix("test_").replace("_", "-")
    return new_namespace(f"e2e-{stem}")
