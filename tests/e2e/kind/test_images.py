"""The project's images: their bill of materials names everything that is installed in them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.kubectl import Kubectl, wait_for

pytestmark = [pytest.mark.kind, pytest.mark.cluster]

IMAGES = {"all": "localhost:1/clockhand:dev", "workers": "localhost:1/clockhand-worker:dev"}
LOOK = """
import json, re, subprocess
from importlib import metadata
from pathlib import Path

python = [(re.sub("[-_.]+", "-", one.name).lower(), one.version) for one in metadata.distributions()]
shown = "--showformat=${Package} ${Version} ${db:Status-Status}\\n"
said = subprocess.run(["dpkg-query", "--show", shown], check=True, capture_output=True, text=True).stdout
debian = [line.split()[:2] for line in said.splitlines() if line.endswith(" installed")]
bill = json.loads(Path("/usr/share/sbom/clockhand.cdx.json").read_text())
parts = [[one["purl"].split("/")[0], one["name"], one["version"], bool(one.get("hashes"))] for one in bill["components"]]
print(json.dumps({"python": python, "debian": debian, "parts": parts}))
"""


@pytest.fixture(scope="module", params=IMAGES)
def seen(request: pytest.FixtureRequest, here: Kubectl) -> Any:
    """What a process in the image finds."""
    name = f"look-{request.param}"
    container = {"name": "look", "image": IMAGES[request.param], "command": ["python", "-c", LOOK]}
    spec = {"restartPolicy": "Never", "containers": [{**container, "imagePullPolicy": "IfNotPresent"}]}
    here.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    wait_for(f"{name} to end", lambda: here.get("pod", name)["status"].get("phase") in ("Succeeded", "Failed"))
    said = here.run("logs", name).out
    assert said.startswith("{"), said
    return json.loads(said)


def test_every_distribution_is_in_the_bill_with_the_hash_of_its_archive(seen: Any) -> None:
    listed = {(name, version) for kind, name, version, hashed in seen["parts"] if kind == "pkg:pypi" and hashed}
    assert {(name, version) for name, version in seen["python"]} <= listed
    assert {"clockhand", "aiohttp", "psycopg"} <= {name for name, _ in listed}


def test_every_package_of_the_base_is_in_the_bill(seen: Any) -> None:
    listed = {(name, version) for kind, name, version, _ in seen["parts"] if kind == "pkg:deb"}
    assert {(name, version) for name, version in seen["debian"]} == listed


def test_what_only_builds_need_is_not_in_the_image(seen: Any) -> None:
    installed = {name for name, _ in seen["python"]}
    assert not {"pip", "setuptools", "cyclonedx-python-lib", "hatchling", "kubernetes"} & installed
