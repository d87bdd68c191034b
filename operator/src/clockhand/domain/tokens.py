"""Static credentials: what one looks like, what is kept of it, and for what it is good."""

from __future__ import annotations

import base64
import enum
import hashlib
import re
import uuid
from dataclasses import dataclass
from datetime import datetime

from clockhand import errors

PREFIX = "clockhand_"
"""By it scanners for leaked secrets know one, and so do we: a token of Kubernetes never begins like that."""
SECRET_BYTES = 32
MAX_NAME = 100
_OWNER = re.compile(r"(?:k8s|rest)/[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_POOL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)


class Role(enum.StrEnum):
    """What its holder may do."""

    VIEWER = "viewer"
    EDITOR = "editor"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class Token:
    """All that is known of a credential but the secret itself."""

    token_id: uuid.UUID
    owner: str
    role: Role
    pool: str | None
    """The one pool for which a worker's token is good: `<owner>/<name>`."""
    name: str
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def standing(self, now: datetime) -> str:
        """`active`, `revoked` or `expired`."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "active"


def secret_of(noise: bytes) -> str:
    """The credential made of `SECRET_BYTES` random bytes."""
    return PREFIX + base64.urlsafe_b64encode(noise).rstrip(b"=").decode()


def hash_of(secret: str) -> bytes:
    """What is kept. A plain hash will do: nobody can try out 256 random bits."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def check(owner: str, role: Role, pool: str | None, name: str) -> None:
    """Raises InvalidInput where no token can be made of these."""
    if not _OWNER.fullmatch(owner):
        raise errors.InvalidInput("owner", "is none: write k8s/NAMESPACE or rest/TENANT, such as k8s/team-a")
    if role is not Role.WORKER and pool is not None:
        raise errors.InvalidInput("pool", f"is for workers: leave it out for a token of the role {role}")
    if role is Role.WORKER and pool is None:
        raise errors.InvalidInput("pool", "is missing: a worker's token is good for one pool")
    if pool is not None and not _POOL.fullmatch(pool):
        raise errors.InvalidInput("pool", "is no name: write lower-case letters, digits and '-', such as mailers")
    if not (0 < len(name) <= MAX_NAME and name.isprintable()):
        raise errors.InvalidInput("name", f"is none: write 1 to {MAX_NAME} printable characters that say who holds it")
