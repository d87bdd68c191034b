"""What the chart asks of other projects fits what it has itself."""

from __future__ import annotations

import pytest
from tests.support import chart_cases, helm, installation

RUNS = f"{installation.OWN}/clockhand-runs"


def test_a_monitor_selects_the_service_of_all_processes() -> None:
    made = helm.Helm("helm4").template(chart_cases.MATRIX["everything"])
    [monitor] = [thing["spec"] for thing in made if thing["kind"] == "ServiceMonitor"]
    wanted = monitor["selector"]["matchLabels"].items()
    services = [thing for thing in made if thing["kind"] == "Service"]
    [found] = [thing["spec"] for thing in services if thing["metadata"]["labels"].items() >= wanted]
    assert [end["port"] for end in monitor["endpoints"]] == [port["name"] for port in found["ports"]]


@pytest.mark.parametrize("name", ["cert-manager", "issuer"])
def test_the_certificate_that_is_asked_for_is_the_one_that_is_served_and_believed(name: str) -> None:
    made = {helm.identity(thing): thing for thing in helm.Helm("helm4").template(chart_cases.MATRIX[name])}
    believed = made[f"APIService /{installation.API_SERVICE}"]["metadata"]["annotations"]
    assert believed == {"cert-manager.io/inject-ca-from": RUNS}
    certificate = made[f"Certificate {RUNS}"]["spec"]
    assert f"clockhand-runs.{installation.OWN}.svc" in certificate["dnsNames"]
    pod = helm.pod_spec(made[f"Deployment {RUNS}"])
    assert pod
    assert [volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume] == [
        certificate["secretName"]
    ]
