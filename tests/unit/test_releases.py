"""What a release fixes for good, and the one version that the whole tree has to say."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from tests.support import generated

from clockhand.store import migrations

ROOT = generated.ROOT
FOLDER = Path(migrations.__file__).parent
CHART = yaml.safe_load((ROOT / "charts/scheduler/Chart.yaml").read_text(encoding="utf-8"))
SEMVER = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?")
IMAGES = re.compile(r"(?:REGISTRY|registry\.example)/clockhand(?:-worker)?:(?P<tag>[\w.-]*\w)")


def test_a_released_migration_stays_as_it_is() -> None:
    released = [tuple(line.split()) for line in (FOLDER / "released.sha256").read_text(encoding="utf-8").splitlines()]
    now = [(migration.checksum, migration.name) for migration in migrations.known()]
    assert now[: len(released)] == released, (
        "databases have recorded what a release applied, and refuse anything else: "
        "take the change back, and make it a migration with the next number"
    )


def test_chart_and_package_have_one_version() -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert CHART["version"] == CHART["appVersion"]
    assert SEMVER.fullmatch(CHART["version"])
    # 0.2.0-dev0 as Helm spells it, 0.2.0.dev0 as Python does
    assert CHART["version"].replace("-", ".") == package


@pytest.mark.parametrize("page", ["README.md", "docs/operations.md", "deploy/kustomization.yaml"])
def test_pages_build_the_images_that_the_chart_asks_for(page: str) -> None:
    assert set(IMAGES.findall((ROOT / page).read_text(encoding="utf-8"))) == {CHART["appVersion"]}
