"""`clockhand doctor` in a pod of the operator: the rights that we ship suffice, and a sound installation is found so."""

from __future__ import annotations

import json

import pytest
from tests.support.kubectl import Kubectl, NotYet, wait_for

pytestmark = [pytest.mark.kind, pytest.mark.cluster]

OWN = "clockhand-system"
SOUND = frozenset(
    {
        *("database", "durability", "standby", "timeouts", "autovacuum", "schema", "connections", "clock", "epoch"),
        *("table-settings", "partitions", "kept", "limits", "replicas", "shards", "changes", "conflicts"),
        *("kubernetes", "rights", "definitions", "runs-api", "certificates", "served-certificate", "admission"),
        *("objects-without-job", "jobs-without-object", "runs-without-pod", "pods-without-run"),
    }
)
"""What no test of another module disturbs."""


def test_a_sound_installation_is_found_so(admin: Kubectl) -> None:
    def found() -> bool:
        call = ("exec", "deploy/clockhand-operator", "--", "clockhand", "doctor", "-o", "json")
        told = json.loads(admin.within(OWN).call(*call).out)
        amiss = {one["check"]: one["sentence"] for one in told["checks"] if one["verdict"] != "ok"}
        amiss = {name: sentence for name, sentence in amiss.items() if name in SOUND}
        if amiss:
            raise NotYet(amiss)
        return True

    wait_for("the doctor to be content", found)
