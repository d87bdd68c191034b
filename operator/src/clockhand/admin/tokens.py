"""`clockhand tokens`: static credentials for clients of the REST API, and for workers outside the cluster.

A secret is printed once, by the command that makes it; the database has its hash.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import click

from clockhand import config, errors
from clockhand.domain import instants, intervals, tokens
from clockhand.store import database, migrations, requests
from clockhand.store import tokens as rows

Write = Callable[[str], None]
"""Takes what is meant for stdout."""
_ACTOR = "clockhand tokens"
_NO_SPAN = f"is none: write whole days, hours and minutes, such as 90d or 12h, {intervals.MAX_DAYS}d at most"
_HEAD = ("ID", "OWNER", "POOL", "ROLE", "NAME", "CREATED", "EXPIRES", "STANDING")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A credential to be made. `pool` is of workers alone: that of `owner` whose runs they take."""

    owner: str
    role: tokens.Role
    pool: str | None
    name: str
    lasts: timedelta | None

    @staticmethod
    def read(*, owner: str, role: str, pool: str | None, name: str, expires_in: str | None) -> Wanted:
        """Raises InvalidInput that names the option which is wrong."""
        tokens.check(owner, tokens.Role(role), pool, name)
        try:
            lasts = intervals.read(expires_in) if expires_in is not None else None
        except errors.InvalidInput:
            raise errors.InvalidInput("expires-in", _NO_SPAN) from None
        return Wanted(owner, tokens.Role(role), pool, name, lasts)


@dataclass(frozen=True, slots=True)
class Made:
    """A new credential and its secret, which nobody is told again."""

    token: tokens.Token
    secret: str


async def tell_new(settings: config.Settings, *, wanted: Wanted, output: str, write: Write) -> None:
    """Makes a credential; `write` gets its secret and nothing else."""
    made = await create(settings, wanted)
    if output == "json":
        write(json.dumps({**_document(made.token), "token": made.secret}) + "\n")
        return
    write(f"{made.secret}\n")
    good_for = made.token.pool or f"{made.token.owner}, as {made.token.role}"
    click.echo(f"{made.token.token_id} for {good_for}: the secret is not shown again", err=True)


async def tell_all(settings: config.Settings, *, owner: str | None, output: str, write: Write) -> None:
    """Prints every credential of `owner`, or of all."""
    write(_told(*await listed(settings, owner), output=output))


async def tell_ended(settings: config.Settings, *, token_id: uuid.UUID, output: str, write: Write) -> None:
    """Revokes a credential, and prints it as it is then."""
    ended, now = await revoke(settings, token_id)
    write(_told([ended], now, output=output))


async def create(settings: config.Settings, wanted: Wanted) -> Made:
    """Makes a credential and stores its hash."""
    secret = tokens.secret_of(secrets.token_bytes(tokens.SECRET_BYTES))
    async with _transaction(settings) as connection:
        now = await database.now(connection)
        token = tokens.Token(
            token_id=uuid.uuid4(),
            owner=wanted.owner,
            role=wanted.role,
            pool=None if wanted.pool is None else f"{wanted.owner}/{wanted.pool}",
            name=wanted.name,
            created_at=now,
            expires_at=None if wanted.lasts is None else now + wanted.lasts,
        )
        await rows.add(connection, token, digest=tokens.hash_of(secret))
        await _audit(connection, token, "token-create", now=now)
    return Made(token, secret)


async def listed(settings: config.Settings, owner: str | None) -> tuple[Sequence[tokens.Token], datetime]:
    """Every credential, of `owner` or of all, and the database's time."""
    async with _transaction(settings) as connection:
        return await rows.listed(connection, owner=owner), await database.now(connection)


async def revoke(settings: config.Settings, token_id: uuid.UUID) -> tuple[tokens.Token, datetime]:
    """Ends a credential, and the database's time; one that has ended before stays as it is. Raises NotFound."""
    async with _transaction(settings) as connection:
        now = await database.now(connection)
        ended = await rows.revoke(connection, token_id, now=now)
        if ended is not None:
            await _audit(connection, ended, "token-revoke", now=now)
        found = ended or await rows.one(connection, token_id)
    if found is None:
        raise errors.NotFound(f"there is no token {token_id}: `clockhand tokens list` shows their ids")
    return found, now


def _told(found: Sequence[tokens.Token], now: datetime, *, output: str) -> str:
    """Credentials without their secrets."""
    if output == "json":
        return json.dumps([{**_document(one), "standing": one.standing(now)} for one in found]) + "\n"
    cells = [_HEAD, *(_cells(one, now) for one in found)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(_HEAD))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells)
    return "".join(f"{line}\n" for line in lines)


def _cells(one: tokens.Token, now: datetime) -> tuple[str, ...]:
    pool = (one.pool or "-").removeprefix(f"{one.owner}/")
    expires = "never" if one.expires_at is None else instants.rfc3339(one.expires_at)
    created = instants.rfc3339(one.created_at)
    return (str(one.token_id), one.owner, pool, one.role, one.name, created, expires, one.standing(now))


def _document(one: tokens.Token) -> dict[str, str | None]:
    return {
        "id": str(one.token_id),
        "owner": one.owner,
        "pool": one.pool,
        "role": one.role,
        "name": one.name,
        "createdAt": instants.rfc3339(one.created_at),
        "expiresAt": None if one.expires_at is None else instants.rfc3339(one.expires_at),
    }


async def _audit(connection: database.Connection, token: tokens.Token, action: str, *, now: datetime) -> None:
    detail = {"token": str(token.token_id), "role": token.role.value, "pool": token.pool, "name": token.name}
    await requests.audit(connection, requests.Asked(token.owner, _ACTOR, action, detail=detail), now=now)


@contextlib.asynccontextmanager
async def _transaction(settings: config.Settings) -> AsyncIterator[database.Connection]:
    """One transaction on a database whose schema fits."""
    db = database.Database(settings.database_url, size=1, name="tokens", options=settings.database_session_options)
    await db.open()
    try:
        await migrations.check(db)
        async with db.transaction() as connection:
            yield connection
    finally:
        await db.close()
