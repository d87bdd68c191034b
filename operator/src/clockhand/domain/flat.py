"""JSON that somebody nested a thousand levels deep, made safe for decoders that recurse.

The API server takes ten thousand levels, Python's decoders about nine hundred; one such object in a listing would keep
everybody's objects from being read. What lies deeper than the limit becomes null, and the rest is still deep enough for
the check of the spec to refuse it with a sentence.
"""

from __future__ import annotations

import re

LIMIT = 100
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]')
_OTHERS = bytes(byte for byte in range(256) if byte not in b"{}[]")
_ALIKE = bytes.maketrans(b"{}", b"[]")


def flatten(text: bytes, limit: int = LIMIT) -> bytes:
    """`text` as it is, or without what is nested deeper than `limit` levels."""
    return _cut(text, limit) if is_deep(text, limit) else text


def is_deep(text: bytes, limit: int = LIMIT) -> bool:
    """Whether JSON is nested deeper than `limit` levels: a few passes over the text, and no recursion."""
    if text.count(b"{") + text.count(b"[") <= limit:
        return False
    brackets = _STRING.sub(b"", text).translate(_ALIKE, _OTHERS)
    for _ in range(limit):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def _cut(text: bytes, limit: int) -> bytes:
    pieces = []
    depth = kept = 0
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark in (b"{", b"["):
            depth += 1
            if depth == limit + 1:
                pieces.append(text[kept : token.start()])
        elif mark in (b"}", b"]"):
            if depth == limit + 1:
                pieces.append(b"null")
                kept = token.end()
            depth -= 1
    return b"".join((*pieces, text[kept:]))
