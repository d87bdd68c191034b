"""The bill of materials of an image, in CycloneDX: everything that is installed in it, with versions, licences and hashes.

It runs while the image is built, with what is only there for the build, and looks at what the image will hold.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import shlex
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from cyclonedx.contrib.license.exceptions import InvalidSpdxLicenseException
from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.contrib.this.builders import this_component
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.schema.deprecation import BaseSchemaDeprecationWarning
from debian import copyright as copyrights
from debian.deb822 import Packages
from packageurl import PackageURL

PRODUCT = "clockhand"
INSTALLED = "install ok installed"
_CLASSIFIER = "License :: OSI Approved :: "
_NO_LICENSE = {"", "UNKNOWN"}
_COMMON = re.compile(r"/usr/share/common-licenses/([A-Za-z0-9.+-]*[A-Za-z0-9+])")
_licenses = LicenseFactory()

Hashes = Mapping[str, str]
"""The SHA-256 of each archive that pip installed, by the canonical name of its package."""


def bill(root: Path, sites: Sequence[Path], hashes: Hashes, python: str) -> Bom:
    """Of the Debian packages below `root`, an interpreter, and every Python package of these folders."""
    parts = [*debian_packages(root), interpreter(python), *python_packages(sites, hashes)]
    [product] = (part for part in parts if part.type is ComponentType.LIBRARY and part.name == PRODUCT)
    image = Component(
        type=ComponentType.CONTAINER,
        name=PRODUCT,
        version=product.version,
        bom_ref=f"image:{PRODUCT}",
        licenses=product.licenses,
    )
    made = Bom(components=parts, metadata=BomMetaData(component=image))
    made.metadata.tools.components.add(this_component())
    made.register_dependency(image, parts)
    return made


def python_packages(sites: Sequence[Path], hashes: Hashes) -> Iterator[Component]:
    for found in metadata.distributions(path=[str(site) for site in sites]):
        name, told = canonical(found.name), found.metadata
        purl = PackageURL("pypi", name=name, version=found.version)
        known = hashes.get(name)
        yield Component(
            name=name,
            version=found.version,
            description="".join(told.get_all("Summary") or ()) or None,
            licenses=python_licenses(told),
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=known)] if known else [],
            components=brought_along(found),
            purl=purl,
            bom_ref=str(purl),
        )


def brought_along(found: metadata.Distribution) -> Iterator[Component]:
    """What is linked into a wheel, such as OpenSSL, as far as the wheel says so itself."""
    name = canonical(found.name)
    for file in found.files or ():
        if file.parent.name == "sboms" and file.suffix == ".json":
            told = json.loads(file.read_text(encoding="utf-8"))
            for part in Bom.from_json({"components": told.get("components", ())}).components:  # type: ignore[attr-defined]
                if canonical(part.name) != name:
                    part.bom_ref.value = f"{name}/{file.name}#{part.bom_ref.value or part.name}"
                    yield part


def python_licenses(told: metadata.PackageMetadata) -> Sequence[License]:
    """Its expression, or else what older metadata have, as far as that is a name."""
    for field in ("License-Expression", "License"):
        text = "".join(told.get_all(field) or ()).strip()
        if text not in _NO_LICENSE and "\n" not in text:
            return [_licenses.make_from_string(text)]
    classifiers = told.get_all("Classifier") or []
    return [license_named(text.removeprefix(_CLASSIFIER)) for text in classifiers if text.startswith(_CLASSIFIER)]


def interpreter(version: str) -> Component:
    """Python itself, which not every base has as a package."""
    purl = PackageURL("generic", name="python", version=version)
    cpe = f"cpe:2.3:a:python:python:{version}:*:*:*:*:*:*:*"
    return Component(
        type=ComponentType.PLATFORM,
        name="python",
        version=version,
        licenses=[license_named("PSF-2.0")],
        purl=purl,
        cpe=cpe,
        bom_ref=str(purl),
    )


def debian_packages(root: Path) -> Iterator[Component]:
    system = os_release(root / "etc/os-release")
    # testing has no number yet
    release = system.get("VERSION_ID") or system.get("VERSION_CODENAME", "unknown")
    with (root / "var/lib/dpkg/status").open(encoding="utf-8") as status:
        for package in Packages.iter_paragraphs(status, use_apt_pkg=False):
            if package["Status"] != INSTALLED:
                continue
            name, version = package["Package"], package["Version"]
            qualifiers = {"arch": package["Architecture"], "distro": f"{system['ID']}-{release}"}
            purl = PackageURL("deb", namespace=system["ID"], name=name, version=version, qualifiers=qualifiers)
            yield Component(
                name=name,
                version=version,
                description=package.get("Description", "").partition("\n")[0] or None,
                licenses=[license_named(each) for each in debian_licenses(root / f"usr/share/doc/{name}/copyright")],
                purl=purl,
                bom_ref=str(purl),
            )


def debian_licenses(path: Path) -> Iterable[str]:
    """Those that a machine-readable file names, or else those of the system's own copies that it points to."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ()
    try:
        told = copyrights.Copyright(text.splitlines(), strict=False)
        named: Iterable[Any] = (each.license for each in told.all_files_paragraphs())
        found = [each.synopsis for each in named if each]
    except (copyrights.NotMachineReadableError, ValueError):
        found = _COMMON.findall(text)
    return sorted({each for each in found if each})


def license_named(text: str) -> License:
    try:
        return _licenses.make_with_id(text)
    except InvalidSpdxLicenseException:
        return _licenses.make_with_name(text)


def os_release(path: Path) -> Mapping[str, str]:
    words = (shlex.split(line, comments=True) for line in path.read_text(encoding="utf-8").splitlines())
    return dict(word[0].split("=", 1) for word in words if word)


def installed(reports: Sequence[Path]) -> Hashes:
    """What `pip install --report` says of archives."""
    found = {}
    for report in reports:
        for entry in json.loads(report.read_text(encoding="utf-8"))["install"]:
            archive = entry["download_info"]["archive_info"]
            # the second is how pip before 23.1 says it
            hashes = archive.get("hashes") or dict([archive["hash"].split("=", 1)])
            found[canonical(entry["metadata"]["name"])] = hashes["sha256"]
    return found


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path("/"), help="of the Debian system")
    parser.add_argument("--python", required=True, help="the interpreter's version")
    parser.add_argument("--report", type=Path, action="append", default=[], help="of pip install, for hashes")
    parser.add_argument("output", type=Path)
    parser.add_argument(
        "sites", type=Path, nargs="+", help="folders with Python packages; one that is missing has none"
    )
    given = parser.parse_args()
    logging.getLogger("debian").setLevel(logging.ERROR)  # what they think of the form of others' files
    warnings.simplefilter("ignore", BaseSchemaDeprecationWarning)
    made = bill(given.root, given.sites, installed(given.report), given.python)
    outputter = make_outputter(made, OutputFormat.JSON, SchemaVersion.V1_6)
    outputter.output_to_file(str(given.output), allow_overwrite=True, indent=1)


if __name__ == "__main__":
    main()
