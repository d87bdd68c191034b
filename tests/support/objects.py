"""The objects that end-to-end tests apply, built here so that each test shows only what it is about."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

OUTCOME = "test.clockhand.dev/outcome"
NEVER = "0 0 1 1 *"
EVERY_MINUTE = "* * * * *"
TOLD_VOLUME, TOLD = "told", "/told/done"

Object = dict[str, Any]


def image() -> str:
    """Any image with a shell that the cluster has or may pull."""
    return os.environ.get("CLOCKHAND_E2E_IMAGE") or "localhost:1/clockhand-test:dev"


def template(script: str, *, outcome: str = "succeed", duration: str | None = None) -> Object:
    """A pod that runs `script`; on fake nodes it does what `outcome` says, after `duration`."""
    annotations = {OUTCOME: outcome}
    if duration:
        annotations["test.clockhand.dev/duration"] = duration
    container = {
        "name": "main",
        "image": image(),
        "imagePullPolicy": "IfNotPresent",
        # trap: a shell that is process 1 ignores SIGTERM unless it says otherwise
        "command": ["sh", "-c", f"trap 'exit 143' TERM; {script}"],
    }
    spec = {"terminationGracePeriodSeconds": 5, "containers": [container]}
    return {"metadata": {"annotations": annotations}, "spec": spec}


def succeeding() -> Object:
    return template("echo done as $CLOCKHAND_RUN_NAME")


def until_told() -> Object:
    """A pod that runs until `Installation.let_finish`, and then succeeds."""
    body = template(f"until [ -e {TOLD} ]; do sleep 1; done", outcome="hang")
    body["spec"]["volumes"] = [{"name": TOLD_VOLUME, "emptyDir": {}}]
    body["spec"]["containers"][0]["volumeMounts"] = [{"name": TOLD_VOLUME, "mountPath": os.path.dirname(TOLD)}]
    return body


def failing(code: int) -> Object:
    return template(f"echo cannot go on; exit {code}", outcome=f"exit:{code}")


def job(
    name: str,
    body: Object | None = None,
    *,
    schedule: str | None = NEVER,
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A ScheduledJob; without more it never falls due and its pods succeed."""
    when = {} if schedule is None else {"schedule": schedule}
    return {
        "apiVersion": "clockhand.dev/v1alpha1",
        "kind": "ScheduledJob",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {**when, "template": body or succeeding(), **spec},
    }


def pooled_job(name: str, handler: str, pool: str, *, schedule: str | None = NEVER, **spec: Any) -> Object:
    """A ScheduledJob whose runs the workers of `pool` take."""
    body = job(name, schedule=schedule, handler=handler, pool=pool, **spec)
    del body["spec"]["template"]
    return body


def worker_pool(name: str, **spec: Any) -> Object:
    """A WorkerPool; without more it has one worker, of the project's own image."""
    kind = {"apiVersion": "clockhand.dev/v1alpha1", "kind": "WorkerPool"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


def role(name: str, *rules: tuple[str, str, list[str]]) -> Object:
    """A Role from (API group, resource, verbs)."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": name},
        "rules": [{"apiGroups": [group], "resources": [resource], "verbs": verbs} for group, resource, verbs in rules],
    }


def grant(user: str, kind: str, role_name: str) -> Object:
    """A RoleBinding of a Role or ClusterRole to a user."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": f"{user}-{role_name}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role_name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }


def condition(thing: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """One condition of an object's status, empty where it is absent."""
    conditions = thing.get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == kind), {})


def text(thing: object) -> str:
    """An object or a patch as kubectl reads it."""
    return json.dumps(thing)
