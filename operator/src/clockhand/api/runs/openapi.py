"""What `kubectl explain runs` shows, and what clients check an object against before they send it."""

from __future__ import annotations

from typing import Any

from clockhand.api.runs import group
from clockhand.domain import backfill, states

Json = dict[str, Any]
V3_PATH = f"apis/{group.API_VERSION}"
_NAME = "dev.clockhand.runs.v1alpha1.Run"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_GVK: Json = {"group": group.GROUP, "version": group.VERSION, "kind": group.KIND}
_COLLECTION = f"/apis/{group.API_VERSION}/namespaces/{{namespace}}/{group.RESOURCE}"


def _text(description: str, **more: Any) -> Json:
    return {"type": "string", "description": description, **more}


def _time(description: str) -> Json:
    return _text(description, format="date-time")


def _integer(description: str) -> Json:
    return {"type": "integer", "format": "int32", "description": description}


def _object(description: str, properties: Json, **more: Any) -> Json:
    return {"type": "object", "description": description, "properties": properties, **more}


_BACKFILL = _object(
    "Makes a run of each slot from one instant to another that has none. What was created is the backfill; its runs are "
    "runs of their own, and the backfill itself is in no list.",
    {
        "from": _time("The first instant of the range, with its offset; not older than runs are kept."),
        "to": _time("The last instant of the range, which belongs to it; not in the future."),
        "order": _text("Which slots come first.", enum=list(map(str, backfill.Order)), default="OldestFirst"),
        "concurrency": {
            **_integer("How many of its runs may be live at a time."),
            "minimum": 1,
            "maximum": backfill.MOST_AT_ONCE,
            "default": 1,
        },
    },
    required=["from", "to"],
)

_SPEC = _object(
    "What is to be run. To run a job now, create a Run that names it in spec.job; to run past slots, add spec.backfill.",
    {
        "job": _text("The name of the ScheduledJob in the same namespace."),
        "payload": {
            "description": "Any JSON of at most 64 KiB in place of the job's payload; shown by a get of one run.",
            "x-kubernetes-preserve-unknown-fields": True,
        },
        "backfill": _BACKFILL,
        "kind": _text("Why the run exists.", enum=[str(kind) for kind in states.RunKind], readOnly=True),
        "scheduledTime": _time("The instant for which the run is due; of a manual run, that of its request."),
    },
    required=["job"],
)

_CONDITION = _object(
    "Complete is True for a run that succeeded, Failed for one that ended otherwise.",
    {
        "type": _text("Complete or Failed."),
        "status": _text("True or False."),
        "lastTransitionTime": _time("When the run ended."),
        "reason": _text("Why, in one word."),
        "message": _text("Why, in a sentence."),
    },
)

_ATTEMPT = _object(
    "An attempt that did not end well.",
    {
        "attempt": _integer("Its number, from 1."),
        "outcome": _text("Failed, Disrupted, TimedOut, Stopped, Refused or Unseen."),
        "reason": _text("Why, in one word."),
        "message": _text("Why, in a sentence."),
        "exitCode": _integer("The exit code of the main container or the command, where there was one."),
        "podName": _text("Its pod."),
        "node": _text("Where the pod was."),
        "worker": _text("Which worker of its pool had it."),
        "claimedTime": _time("When the attempt began to be made."),
        "startTime": _time("When it was seen to run."),
        "endTime": _time("When it ended."),
        "logged": {"type": "boolean", "description": "Whether the end of its log is kept; read it at runs/log."},
    },
)


def _count(description: str) -> Json:
    return {"type": "integer", "format": "int64", "description": description}


_PROGRESS = _object(
    "Of a backfill: how far it is.",
    {
        "slots": _count("The slots of the range, under the schedule that the job has now."),
        "made": _count("Those of them that became runs of this backfill."),
        "passed": _count("Those that had a run already, which was left alone."),
        "succeeded": _count("Its runs that succeeded."),
        "failed": _count("Its runs that ended otherwise."),
        "reachedTime": _time("The slot that was decided last."),
    },
)

_STATES = ", ".join([*(str(state) for state in states.RunState), "Skipped"])
_STATUS = _object(
    "Where the run is in its life. Written by Clockhand alone.",
    {
        "state": _text(f"One of {_STATES}. A Skipped row stands for slots that did not run."),
        "reason": _text("Why the run is in this state, in one word."),
        "message": _text("Why, in a sentence."),
        "attempt": _integer("How many attempts have been claimed."),
        "failures": _integer("How many attempts failed; retry.maxAttempts limits them."),
        "disruptions": _integer(
            "How many attempts were lost through no fault of theirs; they do not count as failures."
        ),
        "claimedTime": _time("When the newest attempt was claimed."),
        "launchedTime": _time("When the first attempt's pod was accepted, or a worker had it."),
        "startTime": _time("When the newest attempt was seen to run."),
        "completionTime": _time("When the run ended."),
        "latenessSeconds": {
            "type": "number",
            "description": "From the scheduled instant until the first attempt's pod was accepted, or a worker had it.",
        },
        "podName": _text("The newest attempt's pod."),
        "node": _text("Where that pod is."),
        "worker": _text("Which worker of its pool has the newest attempt, or had it."),
        "result": {
            "description": "What the handler returned; shown by a get of one run.",
            "x-kubernetes-preserve-unknown-fields": True,
        },
        "firstSkippedTime": _time("Skipped: the first of the slots; spec.scheduledTime is the last of them."),
        "count": _count("Skipped: how many slots."),
        "backfill": _PROGRESS,
        "conditions": {"type": "array", "description": "For `kubectl wait`.", "items": _CONDITION},
        "attempts": {
            "type": "array",
            "description": "The attempts that did not end well, newest first; shown by a get of one run.",
            "items": _ATTEMPT,
        },
    },
    readOnly=True,
)

_RUN = _object(
    "A run of a ScheduledJob: one due instant, or one request, with all of its attempts. Its uid is the run id, "
    "which stays the same over retries.",
    {
        "apiVersion": _text(f"Always {group.API_VERSION}."),
        "kind": _text(f"Always {group.KIND}."),
        "metadata": {
            "description": "Standard object metadata; name, namespace and generateName can be given.",
            "allOf": [{"$ref": f"#/components/schemas/{_META}"}],
            "default": {},
        },
        "spec": _SPEC,
        "status": _STATUS,
    },
    **{"x-kubernetes-group-version-kind": [_GVK]},
)

_OBJECT_META = _object(
    "Metadata that all persisted resources have.",
    {
        "name": _text("Unique within the namespace."),
        "generateName": _text("A prefix from which the server makes a unique name."),
        "namespace": _text("The namespace of the job."),
        "uid": _text("The run id."),
        "resourceVersion": _text("The position in the log of changes to which this state belongs."),
        "creationTimestamp": _time("When the run was made."),
        "labels": {
            "type": "object",
            "description": "The job's labels when the run was made.",
            "additionalProperties": {"type": "string", "default": ""},
        },
        "annotations": {
            "type": "object",
            "description": "Not kept.",
            "additionalProperties": {"type": "string", "default": ""},
        },
    },
)


def _parameter(name: str, description: str, place: str = "query") -> Json:
    schema = {"type": "string", "uniqueItems": True}
    return {"name": name, "in": place, "description": description, "required": place == "path", "schema": schema}


_ANSWER: Json = {
    "200": {
        "description": "OK",
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{_NAME}"}}},
    }
}


def _operation(action: str, identifier: str, description: str, *parameters: Json) -> Json:
    return {
        "description": description,
        "operationId": identifier,
        "parameters": list(parameters),
        "responses": _ANSWER,
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _GVK,
    }


_DRY_RUN = _parameter("dryRun", "All: check everything, change nothing.")
_VALIDATION = _parameter("fieldValidation", "Ignore, Warn or Strict: what to do about unknown fields.")
_FIELDS = _parameter("fieldSelector", "metadata.name, metadata.namespace, spec.job, status.state, spec.day.")
_BODY: Json = {"content": {"*/*": {"schema": {"$ref": f"#/components/schemas/{_NAME}"}}}, "required": True}
_IN_NAMESPACE = _parameter("namespace", "The namespace.", "path")
_OF_NAME = _parameter("name", "The name of the run.", "path")

V3: Json = {
    "openapi": "3.0.0",
    "info": {"title": "Clockhand runs", "version": group.VERSION},
    "paths": {
        _COLLECTION: {
            "parameters": [_IN_NAMESPACE],
            "get": _operation("list", "listNamespacedRun", "List or watch runs.", _FIELDS),
            "post": {
                **_operation("post", "createNamespacedRun", "Run a job now, or its past slots.", _DRY_RUN, _VALIDATION),
                "requestBody": _BODY,
            },
        },
        f"{_COLLECTION}/{{name}}": {
            "parameters": [_IN_NAMESPACE, _OF_NAME],
            "get": _operation("get", "readNamespacedRun", "Read a run with its payload and attempts."),
            "delete": _operation(
                "delete", "deleteNamespacedRun", "Cancel a run or a backfill that is not over.", _DRY_RUN
            ),
            # kubectl looks at the patch operation of a kind to learn whether a server checks fields itself
            "patch": _operation(
                "patch", "patchNamespacedRun", "Refused: runs cannot be edited.", _DRY_RUN, _VALIDATION
            ),
        },
    },
    "components": {"schemas": {_NAME: _RUN, _META: _OBJECT_META}},
}

V3_INDEX: Json = {"paths": {V3_PATH: {"serverRelativeURL": f"/openapi/v3/{V3_PATH}"}}}

# small and valid, so that the aggregator does not log a failed download again and again
V2: Json = {
    "swagger": "2.0",
    "info": {"title": "Clockhand runs", "version": group.VERSION},
    "paths": {},
    "definitions": {},
}
