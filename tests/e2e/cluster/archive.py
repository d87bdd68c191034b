"""Writes container images without an engine: the archive that `docker load` and containerd read, byte for
byte the same for the same input.

The control plane's images hold one static program each; building them this way needs no Dockerfile and no
base.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
EPOCH = "1970-01-01T00:00:00Z"
FOLDERS = ("tmp", "etc", "run", "var/run")
TEXTS = {
    "etc/passwd": "root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n",
    "etc/group": "root:x:0:\nnobody:x:65534:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}


@dataclass(frozen=True)
class Image:
    """One layer: a folder's content, if any, and single files by their path in the image."""

    tags: Sequence[str]
    files: Mapping[str, Path]
    entrypoint: Sequence[str] = ()
    tree: Path | None = None


def write(target: Path, images: Sequence[Image]) -> None:
    """All images in one archive."""
    manifest = []
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as archive:
        for number, image in enumerate(images):
            layer = target.with_name(f"{target.name}.layer")
            _write_layer(layer, image)
            digest = _digest(layer)
            config = _config(image, digest)
            name = f"{hashlib.sha256(config).hexdigest()}.json"
            _add_file(archive, f"{number}/layer.tar", layer, mode=0o644)
            _add_text(archive, name, config)
            manifest.append({"Config": name, "Layers": [f"{number}/layer.tar"], "RepoTags": list(image.tags)})
            layer.unlink()
        _add_text(archive, "manifest.json", json.dumps(manifest).encode())


def _config(image: Image, layer_digest: str) -> bytes:
    run = {"Env": [PATH], "Entrypoint": list(image.entrypoint) or None, "WorkingDir": "/"}
    layers = {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]}
    common = {"architecture": "amd64", "os": "linux", "created": EPOCH, "history": [{"created": EPOCH}]}
    return json.dumps({**common, "config": run, "rootfs": layers}).encode()


def _write_layer(target: Path, image: Image) -> None:
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as layer:
        seen: set[str] = set()
        for name in FOLDERS:
            _add_folders(layer, name, seen)
        for name, text in TEXTS.items():
            _add_text(layer, name, text.encode())
        if image.tree is not None:
            _add_tree(layer, image.tree, seen)
        for name, source in sorted(image.files.items()):
            _add_folders(layer, os.path.dirname(name), seen)
            _add_file(layer, name, source, mode=0o755)


def _add_tree(layer: tarfile.TarFile, tree: Path, seen: set[str]) -> None:
    for path in sorted(tree.rglob("*")):
        name = str(path.relative_to(tree))
        if path.is_symlink():
            entry = _entry(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(path)
            layer.addfile(entry)
        elif path.is_dir():
            _add_folders(layer, name, seen)
        elif name not in TEXTS:
            _add_file(layer, name, path, mode=path.stat().st_mode & 0o7777)


def _add_folders(archive: tarfile.TarFile, name: str, seen: set[str]) -> None:
    if name and name not in seen:
        _add_folders(archive, os.path.dirname(name), seen)
        seen.add(name)
        entry = _entry(name)
        entry.type = tarfile.DIRTYPE
        archive.addfile(entry)


def _add_file(archive: tarfile.TarFile, name: str, source: Path, *, mode: int) -> None:
    entry = _entry(name, mode)
    entry.size = source.stat().st_size
    with source.open("rb") as data:
        archive.addfile(entry, data)


def _add_text(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = _entry(name, 0o644)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))


def _entry(name: str, mode: int = 0o755) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.mode = mode
    return entry


def _digest(path: Path) -> str:
    with path.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()
