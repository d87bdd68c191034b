"""A process that can do without a cluster looks for one only where somebody names it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from clockhand import errors
from clockhand.kube import connection as connections


@pytest.mark.parametrize(
    "environment",
    [{}, {"KUBECONFIG": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}],
    ids=["nothing", "an empty name", "a pod without an account"],
)
async def test_without_a_name_or_an_account_there_is_none(environment: Mapping[str, str]) -> None:
    assert not (connections.SERVICE_ACCOUNT / "token").exists()
    assert await connections.find_if_any(None, environment) is None


async def test_a_name_that_leads_nowhere_is_a_mistake(tmp_path: Path) -> None:
    missing = str(tmp_path / "kubeconfig")
    for kubeconfig, environment in ((missing, {}), (None, {"KUBECONFIG": missing})):
        with pytest.raises(errors.InvalidInput, match="cannot be used"):
            await connections.find_if_any(kubeconfig, environment)


async def test_a_kubeconfig_needs_the_client_that_images_are_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes.aio", None)
    with pytest.raises(errors.InvalidInput, match=r"install clockhand\[kubeconfig\]"):
        await connections.from_kubeconfig(str(tmp_path / "kubeconfig"))
