"""Who is asking, by a bearer token: a static one, or one of a user of the cluster, such as a service account.

A static token carries its secret alone and is looked up by its hash. Any other is the API server's to judge, and must be
meant for us (audience `clockhand`). Both answers are kept for ten seconds, so a token that was revoked works that much
longer. Who cannot be asked at the moment lets nobody in.
"""

from __future__ import annotations

from dataclasses import dataclass

from clockhand import errors
from clockhand.api import kept, lanes, problems, reviews
from clockhand.domain import tokens
from clockhand.kube import access
from clockhand.store import database
from clockhand.store import tokens as token_rows

_LONGEST = 16_384
_LOOKUPS = 2
"""At a time, and as many of strangers: who tries tokens must not take the connections that the engine needs."""
_SERVICE_ACCOUNT = "system:serviceaccount:"
_NO_CLUSTER = "this installation knows static tokens alone: it has no cluster to ask about others"
_NOT_GOOD = "the token is not good: unknown, revoked, expired, or not meant for this API"


@dataclass(frozen=True, slots=True)
class Account:
    """A service account."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class ClusterUser:
    """A user of the cluster, vouched for by its API server."""

    user: access.User
    account: Account | None
    """Where the user is a service account."""

    @property
    def name(self) -> str:
        return self.user.username


Caller = tokens.Token | ClusterUser


class Gate:
    """Names the caller of a request. Without `asked` static tokens alone count."""

    def __init__(self, db: database.Database, asked: reviews.Reviews | None) -> None:
        self._db = db
        self._reviews = asked
        self._tokens: kept.Kept[tokens.Token | None] = kept.Kept()
        self._lookups = lanes.Lanes(_LOOKUPS)

    async def caller(self, authorization: str | None) -> Caller:
        """The caller by the header `Authorization`; 401 where nobody vouches for one, 503 where nobody can be asked."""
        scheme, _, secret = (authorization or "").partition(" ")
        secret = secret.strip()
        if scheme.lower() != "bearer" or not secret:
            raise problems.unauthorized("send a token: Authorization: Bearer TOKEN", presented=False)
        if len(secret) > _LONGEST or not (secret.isascii() and secret.isprintable()):
            raise problems.unauthorized(_NOT_GOOD, presented=True)
        if secret.startswith(tokens.PREFIX):
            found: Caller | None = await self._static(secret)
        else:  # that of `clockhand dev` may be of any form
            found = await self._of_cluster(secret) or await self._static(secret)
        if found is None:
            raise problems.unauthorized(_NOT_GOOD, presented=True)
        return found

    async def _static(self, secret: str) -> tokens.Token | None:
        digest = tokens.hash_of(secret)
        known = self._tokens.knows(digest)
        return await self._tokens.get(digest, lambda: self._find(digest, known=known))

    async def _find(self, digest: bytes, *, known: bool) -> tokens.Token | None:
        async with self._lookups.turn(known=known), self._db.transaction() as connection:
            return await token_rows.find(connection, digest=digest)

    async def _of_cluster(self, token: str) -> ClusterUser | None:
        if self._reviews is None:
            raise problems.unauthorized(_NO_CLUSTER, presented=True)
        try:
            user = await self._reviews.user_of(token)
        except errors.ClockhandError as error:
            raise cannot_ask("about this token", error) from error
        return ClusterUser(user, _account(user.username)) if user is not None and user.username else None


def cannot_ask(what: str, error: errors.ClockhandError) -> problems.Problem:
    """The answer where the API server does not answer us, or refuses us the right to ask: it says nothing of the caller."""
    later = error.retry_after if isinstance(error, errors.Unavailable) else None
    return problems.unavailable(f"the API server cannot be asked {what}: {error}", retry_after=later)


def _account(username: str) -> Account | None:
    namespace, _, name = username.removeprefix(_SERVICE_ACCOUNT).partition(":")
    return Account(namespace, name) if username.startswith(_SERVICE_ACCOUNT) and namespace and name else None


def pool_of(caller: Caller, *, place: str, name: str) -> str:
    """The key of the pool that a path names: `place` is a namespace or, for a tenant's token, the tenant. 403 elsewhere."""
    if isinstance(caller, ClusterUser):
        if caller.account is None:
            raise problems.Problem(403, f"{caller.name} is no service account: workers come as that of their pool")
        if caller.account.namespace != place:
            raise problems.Problem(403, f"a service account of {caller.account.namespace} is not for pools of {place}")
        return f"k8s/{place}/{name}"
    if caller.role is not tokens.Role.WORKER:
        raise problems.Problem(403, f"the token {caller.name} has the role {caller.role}: a worker's is needed here")
    pool = f"{caller.owner}/{name}"
    if caller.owner.partition("/")[2] != place or caller.pool != pool:
        raise problems.Problem(403, f"the token {caller.name} is for the pool {caller.pool} alone")
    return pool


def check_account(caller: Caller, *, pool: str, service_account: str | None) -> None:
    """403 where a service account is not the one whose tokens may act for the pool."""
    if isinstance(caller, ClusterUser) and caller.account and caller.account.name != service_account:
        wanted = f"{service_account} is" if service_account else "none is"
        raise problems.Problem(403, f"the service account {caller.account.name} is not that of {pool}: {wanted}")
