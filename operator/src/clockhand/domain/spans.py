"""Spans of time as people read them."""

from __future__ import annotations

from datetime import timedelta

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def short(span: timedelta) -> str:
    """Tenths below ten seconds, then as kubectl writes ages."""
    whole = max(0.0, span.total_seconds())
    return f"{whole:.1f}s" if whole < 9.95 else human(span)


def human(span: timedelta) -> str:
    """A span as kubectl writes ages: two units at most, and the second one only while it tells something."""
    whole = max(0, int(span.total_seconds()))
    minutes, hours, days = whole // _MINUTE, whole // _HOUR, whole // _DAY
    steps = (
        (whole < 2 * _MINUTE, f"{whole}s"),
        (minutes < 10, _two(minutes, "m", whole % _MINUTE, "s")),
        (minutes < 180, f"{minutes}m"),
        (hours < 8, _two(hours, "h", minutes % 60, "m")),
        (hours < 48, f"{hours}h"),
        (days < 8, _two(days, "d", hours % 24, "h")),
        (days < 730, f"{days}d"),
        (days < 8 * 365, _two(days // 365, "y", days % 365, "d")),
    )
    return next((text for fits, text in steps if fits), f"{days // 365}y")


def _two(large: int, unit: str, small: int, small_unit: str) -> str:
    return f"{large}{unit}{small}{small_unit}" if small else f"{large}{unit}"
