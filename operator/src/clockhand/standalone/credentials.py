"""The tokens of an installation without a cluster: made once, and kept in files for their owner alone."""

from __future__ import annotations

import re
import secrets
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from clockhand import errors
from clockhand.domain import tokens
from clockhand.standalone import home as homes
from clockhand.store import database
from clockhand.store import tokens as rows

OWNER = "rest/default"
"""Whose jobs those of REST are."""
POOL = "default"
_NAME = "clockhand dev"
_PERSON, _OPERATOR = "developer", "system:serviceaccount:clockhand-system:clockhand-operator"
_SECRET = re.compile(r"[\x21-\x7e]{8,200}")
_IDS = uuid.UUID("5f1c8f0e-0c55-5d25-9a0b-2c6e9b6d3a41")


@dataclass(frozen=True, slots=True)
class Secret:
    """A token of REST, the file that holds it, and what it is good for."""

    text: str
    file: Path
    role: tokens.Role

    async def admit(self, connection: database.Connection) -> None:
        """Makes it known to the database. Raises InvalidInput where it is known there, and not good for this."""
        digest = tokens.hash_of(self.text)
        token = tokens.Token(
            token_id=uuid.uuid5(_IDS, digest.hex()),
            owner=OWNER,
            role=self.role,
            pool=f"{OWNER}/{POOL}" if self.role is tokens.Role.WORKER else None,
            name=_NAME,
            created_at=await database.now(connection),
        )
        known = await rows.find(connection, digest=digest) or await rows.one(connection, token.token_id)
        if known is None:
            await rows.add(connection, token, digest=digest)
        elif known.standing(token.created_at) != "active":
            raise errors.InvalidInput("", f"the token in {self.file} was ended: remove the file, and a new one is made")
        elif (known.owner, known.role, known.pool) != (token.owner, token.role, token.pool):
            raise errors.InvalidInput(
                "", f"the token in {self.file} is {known.owner}'s, as {known.role}: name another file"
            )


def editor(path: Path) -> Secret:
    """Of a person or a program that may do everything over REST, in a file of theirs; made where there is none."""
    text = homes.text_of(path, _new_secret)
    if not _SECRET.fullmatch(text):
        raise errors.InvalidInput(
            "--token-file", f"{path} holds no token of 8 to 200 characters: remove it, and one is made there"
        )
    return Secret(text, path, tokens.Role.EDITOR)


def worker(home: homes.Home) -> Secret:
    """Of workers."""
    return Secret(home.text("worker-token", _new_secret), home.path("worker-token"), tokens.Role.WORKER)


def person(home: homes.Home) -> str:
    """By which the Kubernetes API knows who sits in front of the machine."""
    return home.text("kube-person-token", _new_word)


def operator(home: homes.Home) -> str:
    """By which the Kubernetes API knows Clockhand's own processes."""
    return home.text("kube-operator-token", _new_word)


def users(home: homes.Home) -> Mapping[str, str]:
    """The bearer tokens of the Kubernetes API, and who has them."""
    return {person(home): _PERSON, operator(home): _OPERATOR}


def _new_secret() -> str:
    return tokens.secret_of(secrets.token_bytes(tokens.SECRET_BYTES))


def _new_word() -> str:
    return secrets.token_urlsafe(32)
