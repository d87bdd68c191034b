"""What the build says of the size of an image."""

from __future__ import annotations

import gzip
import io

from tests.e2e.cluster import image_sizes

LAYER = b"as a layer is, " * 100_000


def test_a_layer_counts_as_a_registry_keeps_it() -> None:
    packed = gzip.compress(LAYER, compresslevel=image_sizes.LEVEL)
    assert image_sizes.compressed(io.BytesIO(LAYER)) == len(packed)
    assert image_sizes.compressed(io.BytesIO(packed)) == len(packed)


def test_sizes_are_shown_in_whole_and_by_layer() -> None:
    said = str(image_sizes.Sizes(209_000_000, [48_100_000, 2_200_000]))
    assert said == "209 MB unpacked, 50.3 MB compressed (48.1 + 2.2)"
