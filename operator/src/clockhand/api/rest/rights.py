"""For whom a request acts, and whether it may: roles of static tokens, rights of the cluster's users."""

from __future__ import annotations

import re
from dataclasses import dataclass

from clockhand import errors
from clockhand.api import auth, problems, reviews
from clockhand.api.rest import routes
from clockhand.domain import jobclass_crd, tokens
from clockhand.kube import access

_ENOUGH = {
    tokens.Role.VIEWER: (tokens.Role.VIEWER, tokens.Role.EDITOR),
    tokens.Role.EDITOR: (tokens.Role.EDITOR,),
}
_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
CREATE_PODS = routes.Right("create", "pods", "")
"""What a job with a template takes."""


def use_class(name: str) -> routes.Right:
    """What a job with a run of this JobClass takes."""
    return routes.Right("use", jobclass_crd.PLURAL, name=name)


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks, by the name that the audit has, and for whom."""

    owner: str
    actor: str
    role: tokens.Role


class Rights:
    """Decides on callers. Without `asked` there is no cluster, and nobody comes from one."""

    def __init__(self, asked: reviews.Reviews | None) -> None:
        self._reviews = asked

    async def admit(self, caller: auth.Caller, route: routes.Route, namespace: str | None) -> Asker:
        """The asker, where the caller may use this route there; 403 otherwise."""
        if isinstance(caller, tokens.Token):
            return _holder(caller, route, namespace)
        place = namespace or (caller.account.namespace if caller.account else None)
        if place is None:
            raise problems.wrong_parameter("namespace", "is missing: name the namespace to act in")
        if not _NAMESPACE.fullmatch(place):
            raise problems.wrong_parameter("namespace", "is no name of a namespace")
        decision = await self._decide(caller, place, route.right)
        if not decision.allowed:
            because = f": {decision.reason}" if decision.reason else ""
            raise problems.Problem(403, f"{caller.name} may not {_told(route.right)} in {place}{because}")
        return Asker(f"k8s/{place}", caller.name, route.role)

    async def may(self, caller: auth.Caller, owner: str, right: routes.Right) -> bool:
        """Whether a user of the cluster has `right` in the namespace of `owner`; a token's holder has none there."""
        if isinstance(caller, tokens.Token):
            return False
        return (await self._decide(caller, owner.removeprefix("k8s/"), right)).allowed

    async def _decide(self, caller: auth.ClusterUser, namespace: str, right: routes.Right) -> access.Decision:
        assert self._reviews is not None
        action = access.Action(
            right.verb,
            right.group,
            right.resource,
            namespace=namespace,
            name=right.name,
            subresource=right.subresource,
        )
        try:
            return await self._reviews.decide(caller.user, action)
        except errors.ClockhandError as error:
            raise auth.cannot_ask("what its user may do", error) from error


def _holder(token: tokens.Token, route: routes.Route, namespace: str | None) -> Asker:
    if token.role not in _ENOUGH[route.role]:
        wanted = " or ".join(f"{role}'s" for role in _ENOUGH[route.role])
        raise problems.Problem(403, f"the token {token.name} has the role {token.role}: this takes a {wanted}")
    if namespace is not None and token.owner != f"k8s/{namespace}":
        raise problems.Problem(403, f"the token {token.name} is for {token.owner} alone: leave out the namespace")
    return Asker(token.owner, f"{token.name} ({token.token_id})", token.role)


def _told(right: routes.Right) -> str:
    resource = f"{right.resource}/{right.subresource}" if right.subresource else right.resource
    return f"{right.verb} {resource}.{right.group}" if right.group else f"{right.verb} {resource}"
