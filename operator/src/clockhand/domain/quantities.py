"""Quantities of resources, such as 500m, 2 or 1Gi, as far as they are compared."""

from __future__ import annotations

import re
from decimal import Decimal

_DECIMAL = {"m": Decimal("0.001"), "": Decimal(1), **{name: Decimal(1_000) ** n for n, name in enumerate("kMGTPE", 1)}}
_BINARY = {f"{name}i": Decimal(1_024) ** n for n, name in enumerate("KMGTPE", 1)}
_FACTORS = _DECIMAL | _BINARY
PATTERN = "[0-9]{1,15}([.][0-9]{1,9})?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?"
_PARTS = re.compile("([0-9.]+)([a-zA-Z]*)")


def value(text: str) -> Decimal:
    """Of a text that has the form."""
    found = _PARTS.fullmatch(text)
    assert found is not None, text
    number, unit = found.groups()
    return Decimal(number) * _FACTORS[unit]
