"""Jobs that fall due each minute are applied before the first test, so that no test waits for its own minute."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support import objects
from tests.support.kubectl import Kubectl


@pytest.fixture(scope="session", autouse=True)
def fleet(new_namespace: Callable[..., Kubectl]) -> Kubectl:
    """The namespace of `minutely`, `suspended` and `edited`."""
    kubectl = new_namespace("e2e-fleet")
    kubectl.apply(
        objects.job("minutely", schedule=objects.EVERY_MINUTE, labels={"team": "fleet"}),
        objects.job("suspended", schedule=objects.EVERY_MINUTE, suspend=True),
        objects.job("edited", schedule=objects.NEVER),
    )
    return kubectl
