"""How often Python looks for cycles of garbage, in processes through which thousands of small values go each second."""

from __future__ import annotations

import gc

_YOUNG, _MIDDLE, _OLD = 50_000, 20, 50


def rarely() -> None:
    """To be called once everything is loaded, which is not looked through any more.

    The values of a batch of runs hold no cycles. By default Python looks for some after every 700 of them, now and then
    among all that the process has, which takes a tenth of the time of an API process and a fifth of a worker's.
    """
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
