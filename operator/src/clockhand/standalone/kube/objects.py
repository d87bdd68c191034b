"""The verbs: what a create, update, patch or delete does to the objects of the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from clockhand import errors
from clockhand.api.runs import status
from clockhand.standalone.kube import admission, kinds, metadata, pods, refusals
from clockhand.standalone.kube import store as stores

Json = dict[str, Any]
_ACCOUNT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """How a deletion is meant."""

    uid: str = ""
    version: str = ""
    grace: int | None = None
    dry_run: bool = False


class Objects:
    """The verbs over one store."""

    def __init__(self, store: stores.Store) -> None:
        self.store = store

    def get(self, kind: kinds.Kind, namespace: str, name: str) -> Json:
        """The object; 404 where it is not there."""
        found = self.store.get(stores.Key(kind.resource, namespace, name))
        if found is None:
            raise refusals.not_found(kind, name)
        return found

    async def create(self, kind: kinds.Kind, namespace: str, body: Any, wish: admission.Wish) -> admission.Admitted:
        """Stores a new object, after all checks."""
        admitted = admission.read(kind, body, wish)
        given = admitted.body["metadata"]
        _check_namespace(kind, given, namespace)
        made = {**admitted.body, "metadata": metadata.new(kind, given, namespace)}
        made.pop("status", None)
        name = made["metadata"].get("name", "")
        admission.check(kind, made)
        self._check_home(kind, namespace, name)
        made = self._begun(kind, made)
        key = stores.Key(kind.resource, namespace, name)
        if wish.dry_run:
            if self.store.get(key) is not None:
                raise refusals.already_exists(kind, name)
            return admission.Admitted(made, admitted.warnings)
        try:
            made = await self.store.create(key, made)
        except stores.AlreadyThere:
            raise refusals.already_exists(kind, name) from None
        if kind is kinds.NAMESPACES:
            await self.create_account(name)
        return admission.Admitted(made, admitted.warnings)

    async def change(
        self, kind: kinds.Kind, key: stores.Key, edit: Callable[[Json], Any], wish: admission.Wish, *, part: str = ""
    ) -> admission.Admitted:
        """Stores what `edit` makes of an object, or of its part `status`."""
        warnings: tuple[str, ...] = ()

        def checked(old: Json) -> Json | None:
            nonlocal warnings
            admitted = admission.read(kind, edit(old), wish)
            warnings = admitted.warnings
            return _after(kind, old, admitted.body, part)

        if wish.dry_run:
            made = checked(self.get(kind, key.namespace, key.name))
            return admission.Admitted(made or self.get(kind, key.namespace, key.name), warnings)
        try:
            made = await self.store.change(key, checked)
        except errors.NotFound:
            raise refusals.not_found(kind, key.name) from None
        return admission.Admitted(made, warnings)

    async def apply(
        self, kind: kinds.Kind, namespace: str, name: str, body: Any, wish: admission.Wish
    ) -> admission.Admitted:
        """Makes what the operator keeps for a pool what it says: the object is its own, so that nothing has to be merged."""
        key = stores.Key(kind.resource, namespace, name)
        if self.store.get(key) is None:
            return await self.create(kind, namespace, body, wish)

        def put(old: Json) -> Json:
            return {**body, "metadata": {**old["metadata"], **body["metadata"]}}

        return await self.change(kind, key, put, wish)

    async def delete(self, kind: kinds.Kind, key: stores.Key, removal: Removal) -> Json:
        """Deletes an object at once, or marks it as leaving where something has to happen before; returns its last state."""
        if kind is kinds.NAMESPACES and key.name in kinds.LASTING_NAMESPACES:
            raise refusals.protected(kind, key.name)
        last: Json = {}

        def leaving(old: Json) -> Json | None:
            nonlocal last
            _check_preconditions(kind, old, removal)
            last = _leaving(kind, old, removal)
            return None if _is_gone(kind, last) else last

        if removal.dry_run:
            old = self.get(kind, key.namespace, key.name)
            _check_preconditions(kind, old, removal)
            return old
        try:
            stored = await self.store.change(key, leaving)
        except errors.NotFound:
            raise refusals.not_found(kind, key.name) from None
        return stored

    async def create_account(self, namespace: str) -> None:
        """Makes the account that pods of a namespace have unless they name another one."""
        body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": _ACCOUNT}}
        await self.create(kinds.ACCOUNTS, namespace, body, admission.Wish())

    def lacks_account(self, namespace: Mapping[str, Any]) -> bool:
        """Whether a namespace that stays has no such account: whoever made it ended before it was whole."""
        key = stores.Key(kinds.ACCOUNTS.resource, namespace["metadata"]["name"], _ACCOUNT)
        return not namespace["metadata"].get("deletionTimestamp") and self.store.get(key) is None

    def _check_home(self, kind: kinds.Kind, namespace: str, name: str) -> None:
        if not kind.namespaced:
            return
        home = self.store.get(stores.Key(kinds.NAMESPACES.resource, "", namespace))
        if home is None:
            raise refusals.not_found(kinds.NAMESPACES, namespace)
        if home["metadata"].get("deletionTimestamp"):
            raise refusals.terminating(kind, name, namespace)

    def _begun(self, kind: kinds.Kind, body: Json) -> Json:
        if kind is kinds.NAMESPACES:
            labels = {**(body["metadata"].get("labels") or {}), "kubernetes.io/metadata.name": body["metadata"]["name"]}
            meta = {**body["metadata"], "labels": labels}
            return {**body, "metadata": meta, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
        if kind is kinds.PODS:
            account = body["spec"]["serviceAccountName"]
            namespace = body["metadata"]["namespace"]
            if self.store.get(stores.Key(kinds.ACCOUNTS.resource, namespace, account)) is None:
                raise refusals.no_account(kind, body["metadata"]["name"], namespace, account)
            return {**body, "status": pods.first_status(body["spec"])}
        return {**body, "status": {}} if "status" in kind.subresources and kind.custom is None else body


def _check_namespace(kind: kinds.Kind, given: Mapping[str, Any], namespace: str) -> None:
    said = given.get("namespace")
    if kind.namespaced and said and said != namespace:
        raise status.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def _after(kind: kinds.Kind, old: Json, wanted: Json, part: str) -> Json | None:
    """The object after an update; None where the last thing that kept a leaving one is gone."""
    name = old["metadata"]["name"]
    _check_versions(kind, old, wanted["metadata"])
    if wanted["metadata"].get("name", name) != name:
        raise status.bad_request(
            f"the name of the object ({wanted['metadata']['name']}) does not match the name on the URL ({name})"
        )
    has_status = "status" in kind.subresources
    if part == "status":
        made = {**old, "status": wanted.get("status", {})}
    else:
        made = {**wanted, "metadata": metadata.kept(old["metadata"], wanted["metadata"])}
        if has_status:
            made.pop("status", None)
            made.update({"status": old["status"]} if "status" in old else {})
    if kind is kinds.PODS and made["spec"] != old["spec"]:
        raise refusals.pod_is_fixed(kind, name)
    if kind.counts_generations and _content(made) != _content(old):
        made["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    admission.check(kind, made)
    return None if _is_gone(kind, made) else made


def _content(body: Json) -> Json:
    return {key: value for key, value in body.items() if key not in ("metadata", "status")}


def _check_versions(kind: kinds.Kind, old: Json, wanted: Mapping[str, Any]) -> None:
    meta = old["metadata"]
    if wanted.get("uid") and wanted["uid"] != meta["uid"]:
        raise refusals.other_uid(kind, meta["name"], wanted["uid"], meta["uid"])
    if wanted.get("resourceVersion") and wanted["resourceVersion"] != meta["resourceVersion"]:
        raise refusals.modified(kind, meta["name"])


def _check_preconditions(kind: kinds.Kind, old: Json, removal: Removal) -> None:
    meta = old["metadata"]
    if removal.uid and removal.uid != meta["uid"]:
        raise refusals.not_as_demanded(kind, meta["name"], "UID", removal.uid, meta["uid"])
    found = meta["resourceVersion"]
    if removal.version and removal.version != found:
        raise refusals.not_as_demanded(kind, meta["name"], "ResourceVersion", removal.version, found)


def _leaving(kind: kinds.Kind, old: Json, removal: Removal) -> Json:
    meta = dict(old["metadata"])
    grace = _grace(kind, old, removal)
    before = meta.get("deletionGracePeriodSeconds")
    if "deletionTimestamp" not in meta:
        meta["deletionTimestamp"] = metadata.now(later=grace or 0)
    elif grace is not None and before is not None and grace < before:
        meta["deletionTimestamp"] = metadata.earlier(meta["deletionTimestamp"], before - grace)
    else:
        return old
    if grace is not None:
        meta["deletionGracePeriodSeconds"] = grace
    if kind is kinds.NAMESPACES:
        return {**old, "metadata": meta, "status": {**old.get("status", {}), "phase": "Terminating"}}
    return {**old, "metadata": meta}


def _grace(kind: kinds.Kind, old: Json, removal: Removal) -> int | None:
    """How long a pod may take; nobody waits for one that has ended or is nowhere."""
    if kind is not kinds.PODS:
        return None
    spec = old["spec"]
    if not spec.get("nodeName") or old.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    usual: int = spec["terminationGracePeriodSeconds"]
    return usual if removal.grace is None else max(removal.grace, 0)


def _is_gone(kind: kinds.Kind, body: Json) -> bool:
    meta = body["metadata"]
    if "deletionTimestamp" not in meta or meta.get("finalizers"):
        return False
    if kind is kinds.NAMESPACES:
        return not body.get("spec", {}).get("finalizers")
    return not meta.get("deletionGracePeriodSeconds")
