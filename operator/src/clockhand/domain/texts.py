"""Texts from outside as a database takes them: no NUL, no broken characters, not longer than they may be."""

from __future__ import annotations


def head(text: str, limit: int) -> str:
    """At most `limit` bytes from the beginning."""
    return _whole(text)[:limit].decode("utf-8", "ignore")


def tail(text: str, limit: int) -> str:
    """At most `limit` bytes from the end, cut at the end of a line where there is one."""
    whole = _whole(text)
    if len(whole) <= limit:
        return whole.decode()
    cut = whole[-limit:]
    line_end = cut.find(b"\n")
    if 0 <= line_end < limit - 1:
        cut = cut[line_end + 1 :]
    return cut.decode("utf-8", "ignore")


def _whole(text: str) -> bytes:
    return text.replace("\x00", "").encode("utf-8", "replace")
