"""Cursors: where the next page of a list begins, for whoever was given the page before.

One is good for the list that it came from alone: of that owner, with those filters. All processes sign with the same key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

import msgspec

from clockhand.api import problems
from clockhand.store import database, installation

PARAMETER = "cursor"
_SIGNATURE_BYTES = 12
SENTENCE = "is none of this list: take `next` of the page before, with the same parameters"


class Cursors:
    """Writes cursors, and reads them again. A list is its owner, its name and its filters, as JSON has them."""

    def __init__(self, db: database.Database) -> None:
        self._db = db
        self._key = b""

    async def ready(self) -> None:
        """Has the key at hand, for whoever writes a cursor within a transaction: it takes no second connection then."""
        if not self._key:
            async with self._db.transaction() as connection:
                self._key = await installation.cursor_key(connection)

    async def write(self, of: tuple[object, ...], place: bytes) -> str:
        """The cursor of a place in a list."""
        signature = await self._signature(of, place)
        return base64.urlsafe_b64encode(signature + place).decode().rstrip("=")

    async def read(self, of: tuple[object, ...], text: str) -> bytes:
        """The place that `write` was given for this list; 422 for any other text."""
        try:
            whole = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (ValueError, binascii.Error):
            raise wrong() from None
        signature, place = whole[:_SIGNATURE_BYTES], whole[_SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, await self._signature(of, place)):
            raise wrong()
        return place

    async def _signature(self, of: tuple[object, ...], place: bytes) -> bytes:
        await self.ready()
        text = msgspec.json.encode((of, place))
        return hashlib.blake2b(text, key=self._key, digest_size=_SIGNATURE_BYTES).digest()


def wrong() -> problems.Problem:
    """The answer to a cursor that is none of the list."""
    return problems.wrong_parameter(PARAMETER, SENTENCE)
