"""The bill of materials of an image, made of some packages of this environment and of a small Debian."""

from __future__ import annotations

import json
import platform
import re
import runpy
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

PROGRAM = Path(__file__).parents[2] / "operator/image/sbom.py"
PACKAGES = ("aiohttp", "click", "clockhand", "cryptography", "pyyaml")
HASH = "ab" * 32
STATUS = """\
Package: dash
Status: install ok installed
Architecture: amd64
Version: 0.5.12-2
Description: POSIX-compliant shell
 a longer one

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1

Package: sed
Status: install ok installed
Architecture: amd64
Version: 4.9-1
Description: stream editor
"""
COPYRIGHTS = {
    "dash": """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
Copyright: somebody
License: BSD-3-Clause

Files: more
Copyright: somebody
License: GPL-2+
""",
    "sed": "It is free.\nSee /usr/share/common-licenses/GPL-3.\n",
}
REPORTS = {
    "new.json": {"metadata": {"name": "aiohttp"}, "download_info": {"archive_info": {"hashes": {"sha256": HASH}}}},
    "old.json": {"metadata": {"name": "Click"}, "download_info": {"archive_info": {"hash": f"sha256={HASH}"}}},
}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("sbom")
    files = {"etc/os-release": '# Debian\'s\nID=debian\n\nVERSION_ID="12"\n', "var/lib/dpkg/status": STATUS}
    files |= {f"usr/share/doc/{name}/copyright": said for name, said in COPYRIGHTS.items()}
    files |= {name: json.dumps({"install": [entry]}) for name, entry in REPORTS.items()}
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    reports = [f"--report={folder / name}" for name in REPORTS]
    site = folder / "site-packages"
    site.mkdir()
    for found in Path(sysconfig.get_path("purelib")).glob("*.dist-info"):
        if canonical(found.name.partition("-")[0]) in PACKAGES:
            (site / found.name).symlink_to(found)
    command: list[str | Path] = [
        sys.executable,
        PROGRAM,
        f"--root={folder}",
        *reports,
        "--python=3.13.1",
        folder / "bill",
        site,
        "/nowhere",
    ]
    subprocess.run(command, check=True)
    return (folder / "bill").read_text()


@pytest.fixture(scope="module")
def parts(text: str) -> dict[str, Any]:
    return {part["name"]: part for part in json.loads(text)["components"]}


def test_it_is_cyclonedx(text: str) -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


def test_it_names_the_image_and_its_version(text: str) -> None:
    image = json.loads(text)["metadata"]["component"]
    assert (image["type"], image["name"], image["version"]) == ("container", "clockhand", metadata.version("clockhand"))


def test_every_installed_distribution_is_in_it(parts: dict[str, Any]) -> None:
    found = {part["purl"] for part in parts.values() if part["purl"].startswith("pkg:pypi/")}
    assert found == {f"pkg:pypi/{name}@{metadata.version(name)}" for name in PACKAGES}


def test_archives_that_were_installed_have_their_hash(parts: dict[str, Any]) -> None:
    hashed = {name: part["hashes"] for name, part in parts.items() if "hashes" in part}
    assert hashed == {name: [{"alg": "SHA-256", "content": HASH}] for name in ("aiohttp", "click")}


def test_what_a_wheel_brings_along_is_in_it(parts: dict[str, Any]) -> None:
    inside = {part["name"] for part in parts["cryptography"]["components"]}
    assert "openssl" in inside
    assert "cryptography" not in inside


def test_licences_are_what_packages_say(parts: dict[str, Any]) -> None:
    assert parts["aiohttp"]["licenses"] == [{"expression": "Apache-2.0 AND MIT"}]
    assert parts["clockhand"]["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    assert parts["dash"]["licenses"] == [{"license": {"id": "BSD-3-Clause"}}, {"license": {"name": "GPL-2+"}}]
    assert parts["sed"]["licenses"] == [{"license": {"name": "GPL-3"}}]


def test_packages_of_the_base_are_in_it_while_they_are_installed(parts: dict[str, Any]) -> None:
    assert parts["dash"]["purl"] == "pkg:deb/debian/dash@0.5.12-2?arch=amd64&distro=debian-12"
    assert parts["dash"]["description"] == "POSIX-compliant shell"
    assert parts["python"]["version"] == "3.13.1" != platform.python_version()
    assert "gone" not in parts


def test_a_base_without_a_number_is_named_by_its_codename(tmp_path: Path) -> None:
    for name, content in {
        "etc/os-release": "ID=debian\nVERSION_CODENAME=forky\n",
        "var/lib/dpkg/status": STATUS,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(content)
    parts = runpy.run_path(str(PROGRAM))["debian_packages"](tmp_path)
    assert {part.purl.qualifiers["distro"] for part in parts} == {"debian-forky"}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
