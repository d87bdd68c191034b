"""Credentials for pods: tokens of service accounts, by whoever makes them for the small API server."""

from __future__ import annotations

from clockhand import errors
from clockhand.standalone.kube import accounts
from clockhand.standalone.kube import store as stores
from clockhand.standalone.nodes import ground


def issuer(store: stores.Store, known: accounts.Accounts) -> ground.Issue:
    """Makes tokens for the accounts that there are; NotFound for another one."""

    def issue(namespace: str, account: str, *, audience: str, seconds: int) -> str:
        body = store.get(stores.Key("serviceaccounts", namespace, account))
        if body is None:
            raise errors.NotFound(f'serviceaccount "{account}" not found')
        token, _ = known.token(body, [audience] if audience else [], seconds)
        return token

    return issue
