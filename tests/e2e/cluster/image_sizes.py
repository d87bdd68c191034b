"""How large an image is: unpacked on a node, and compressed, as a registry keeps and sends it."""

from __future__ import annotations

import json
import tarfile
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.e2e.cluster import binaries, steps

GZIP, LEVEL = 31, 6
"""As engines compress what they push."""
_MAGIC = b"\x1f\x8b"
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Sizes:
    """Bytes."""

    unpacked: int
    layers: Sequence[int]

    def __str__(self) -> str:
        layers = " + ".join(f"{layer / 1e6:.1f}" for layer in self.layers)
        return f"{self.unpacked / 1e6:.0f} MB unpacked, {sum(self.layers) / 1e6:.1f} MB compressed ({layers})"


def of(tag: str) -> Sizes:
    """Of an image that the engine has. The size of a layer is remembered: most builds change a small one."""
    told = json.loads(steps.run(["docker", "image", "inspect", tag]))[0]
    layers: Sequence[str] = told["RootFS"]["Layers"]
    known = _known()
    if not known.keys() >= set(layers):
        known = {**known, **_measured(tag, layers, known)}
        _file().write_text(json.dumps(known, indent=1))
    return Sizes(told["Size"], [known[layer] for layer in layers])


def _file() -> Path:
    return binaries.cache_root() / "layer-sizes.json"


def _known() -> Mapping[str, int]:
    return json.loads(_file().read_text()) if _file().exists() else {}


def _measured(tag: str, layers: Sequence[str], known: Mapping[str, int]) -> Mapping[str, int]:
    with tempfile.TemporaryDirectory(dir=binaries.cache_root()) as folder:
        saved = Path(folder, "image.tar")
        steps.run(["docker", "save", "--output", saved, tag])
        with tarfile.open(saved) as archive:
            names = json.load(_member(archive, "manifest.json"))[0]["Layers"]
            wanted = [(layer, name) for layer, name in zip(layers, names, strict=True) if layer not in known]
            return {layer: compressed(_member(archive, name)) for layer, name in wanted}


def _member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    found = archive.extractfile(name)
    assert found is not None
    return found


def compressed(layer: IO[bytes]) -> int:
    """The size of a layer as a registry has it; some engines save it so already."""
    if layer.read(len(_MAGIC)) == _MAGIC:
        return layer.seek(0, 2)
    layer.seek(0)
    packer, size = zlib.compressobj(LEVEL, wbits=GZIP), 0
    while chunk := layer.read(_CHUNK):
        size += len(packer.compress(chunk))
    return size + len(packer.flush())
