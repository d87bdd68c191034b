"""Whose a token is: those that the process was started with, and those of service accounts, which it signs itself."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from clockhand import errors
from clockhand.domain import protocol
from clockhand.kube import access
from clockhand.standalone.kube import kinds
from clockhand.standalone.kube import store as stores

Json = dict[str, Any]
AUDIENCE = "https://kubernetes.default.svc.cluster.local"
USUAL_SECONDS, LEAST_SECONDS, MOST_SECONDS = 3600, 600, 1 << 32
MASTERS = "system:masters"
_OF_PEOPLE = frozenset({AUDIENCE, protocol.AUDIENCE})
"""The tokens of people are good for REST too."""
_PREFIX = "system:serviceaccount:"
_HEADER = {"alg": "HS256", "typ": "JWT"}


class Accounts:
    """Names users by their tokens, and makes tokens for service accounts."""

    def __init__(self, store: stores.Store, tokens: Mapping[str, str], key: bytes) -> None:
        self._store = store
        self._users = {hashlib.sha256(token.encode()).digest(): user for token, user in tokens.items()}
        self._key = key

    def user_of(self, token: str, audiences: Sequence[str] = ()) -> tuple[access.User, list[str]] | None:
        """The user and the audiences that the token is good for among those asked for; None where it is good for none."""
        if not token.isascii():
            return None
        name = self._users.get(hashlib.sha256(token.encode()).digest())
        if name is not None:
            groups = (MASTERS, "system:authenticated")
            good = [one for one in audiences if one in _OF_PEOPLE] if audiences else [AUDIENCE]
            return (access.User(name, "", groups), good) if good else None
        return self._of_account(token, audiences or (AUDIENCE,))

    def token(self, account: Json, audiences: Sequence[str], seconds: int) -> tuple[str, int]:
        """A token for a service account, and the second at which it expires."""
        meta = account["metadata"]
        now = int(time.time())
        expires = now + seconds
        claims = {
            "aud": list(audiences) or [AUDIENCE],
            "exp": expires,
            "iat": now,
            "nbf": now,
            "iss": AUDIENCE,
            "sub": f"{_PREFIX}{meta['namespace']}:{meta['name']}",
            "kubernetes.io": {
                "namespace": meta["namespace"],
                "serviceaccount": {"name": meta["name"], "uid": meta["uid"]},
            },
        }
        signed = f"{_encoded(msgspec.json.encode(_HEADER))}.{_encoded(msgspec.json.encode(claims))}"
        return f"{signed}.{_encoded(self._signature(signed))}", expires

    def _of_account(self, token: str, audiences: Sequence[str]) -> tuple[access.User, list[str]] | None:
        claims = self._claims(token)
        if claims is None or claims["exp"] <= time.time():
            return None
        named = claims["kubernetes.io"]
        namespace, name, uid = named["namespace"], named["serviceaccount"]["name"], named["serviceaccount"]["uid"]
        known = self._store.get(stores.Key(kinds.ACCOUNTS.resource, namespace, name))
        good = [one for one in audiences if one in claims["aud"]]
        if known is None or known["metadata"]["uid"] != uid or not good:
            return None
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        return access.User(f"{_PREFIX}{namespace}:{name}", uid, groups), good

    def _claims(self, token: str) -> Json | None:
        signed, _, signature = token.rpartition(".")
        if not signed or not hmac.compare_digest(signature.encode(), _encoded(self._signature(signed)).encode()):
            return None
        text = signed.partition(".")[2]
        claims: Json = msgspec.json.decode(base64.urlsafe_b64decode(f"{text}{'=' * (-len(text) % 4)}"))
        return claims

    def _signature(self, signed: str) -> bytes:
        return hmac.digest(self._key, signed.encode(), "sha256")


class Decider:
    """The answers for the runs API, which runs in the same process."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    async def user_of(self, token: str) -> access.User | None:
        found = self._accounts.user_of(token)
        return None if found is None else found[0]

    async def decide(self, user: access.User, action: access.Action) -> access.Decision:
        return decide(user.groups)


def decide(groups: Sequence[str]) -> access.Decision:
    """Whose tokens the process was started with may do everything; service accounts nothing, as where there are no roles."""
    if MASTERS in groups:
        return access.Decision(True, "")
    return access.Decision(False, "only the users of this installation have rights here")


def signing_key(path: Path) -> bytes:
    """The key in the file, made where there is none; whoever has it can make tokens."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        key = path.read_bytes()
        if len(key) < 32:
            raise errors.InvalidInput(str(path), "is no key: delete it, and a new one is made") from None
        return key
    key = secrets.token_bytes(32)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key)
        file.flush()
        os.fsync(file.fileno())
    return key


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
