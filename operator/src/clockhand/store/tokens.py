"""Static credentials in the table. A secret comes in as its hash alone."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from clockhand.domain import tokens
from clockhand.store import database


async def find(connection: database.Connection, *, digest: bytes) -> tokens.Token | None:
    """The credential of that hash; None where there is none, or where it is revoked or has expired."""
    row = await database.fetch_one(connection, "tokens.find", {"hash": digest})
    return _token(row) if row else None


async def add(connection: database.Connection, token: tokens.Token, *, digest: bytes) -> None:
    """A new credential."""
    parameters = {
        "token_id": token.token_id,
        "hash": digest,
        "owner": token.owner,
        "role": token.role.value,
        "pool": token.pool,
        "name": token.name,
        "created_at": token.created_at,
        "expires_at": token.expires_at,
    }
    await database.execute(connection, "tokens.add", parameters)


async def listed(connection: database.Connection, *, owner: str | None) -> Sequence[tokens.Token]:
    """Every credential of `owner`, of all owners where it is None; also those that are good no more."""
    return [_token(row) for row in await database.fetch(connection, "tokens.all", {"owner": owner})]


async def revoke(connection: database.Connection, token_id: uuid.UUID, *, now: datetime) -> tokens.Token | None:
    """Ends a credential; None where it has ended before or never was."""
    row = await database.fetch_one(connection, "tokens.revoke", {"token_id": token_id, "now": now})
    return _token(row) if row else None


async def one(connection: database.Connection, token_id: uuid.UUID) -> tokens.Token | None:
    """A credential by its id, whatever its standing."""
    row = await database.fetch_one(connection, "tokens.one", {"token_id": token_id})
    return _token(row) if row else None


def _token(row: Any) -> tokens.Token:
    return tokens.Token(**{**row._asdict(), "role": tokens.Role(row.role)})
