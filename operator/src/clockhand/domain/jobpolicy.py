"""What a batch/v1 Job does around its pod, in the fields of a ScheduledJob.

A Job is a set of pods that must all succeed, a run is one pod at a time. What only a set has is left out, each with a
sentence, and limits that a Job does not have are written so wide that nothing new happens to a job that moves over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from clockhand import errors
from clockhand.domain import fields

_AT = "spec.jobTemplate.spec"
_BACKOFF_LIMIT = 6
_BACKOFF = {"initialSeconds": 10, "factor": 2, "maxSeconds": 360, "jitter": 0}
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
_LIMIT_OF_CODES = 64
_ALL_CODES = range(1, 256)
_ACTIONS = {"FailJob": "Fail", "Ignore": "Ignore", "Count": "Retry"}
_ONE_POD = "a run is one pod at a time"
_NO_EQUAL: Mapping[str, tuple[object, str]] = {
    "parallelism": (1, _ONE_POD),
    "completions": (1, _ONE_POD),
    "completionMode": ("NonIndexed", f"{_ONE_POD}, without an index"),
    "backoffLimitPerIndex": (None, f"{_ONE_POD}, without an index"),
    "maxFailedIndexes": (None, f"{_ONE_POD}, without an index"),
    "successPolicy": (None, "a run succeeds when its main container does"),
    "podReplacementPolicy": ("Failed", "the next attempt starts when the one before has ended"),
    "managedBy": ("kubernetes.io/job-controller", "Clockhand makes the pods itself"),
    "manualSelector": (False, "pods are found by their names and labels"),
    "selector": (None, "pods are found by their names and labels"),
    "suspend": (False, "a run starts at once; spec.suspend holds slots back, and Kueue works on pods"),
}
_KNOWN = {"backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished", "podFailurePolicy", "template"}


def policy(job: Mapping[str, object], *, history: tuple[int, int], notes: list[str]) -> dict[str, object]:
    """The fields that follow from a Job's spec; `history` is how many successful and failed Jobs are kept."""
    for name, value in job.items():
        _tell_what_has_no_equal(name, value, notes)
    result: dict[str, object] = {"retry": _retry(job, notes)}
    deadline = whole(job.get("activeDeadlineSeconds"), at=f"{_AT}.activeDeadlineSeconds")
    if deadline is not None:
        result["runTimeoutSeconds"] = bounded("runTimeoutSeconds", deadline, of="activeDeadlineSeconds", notes=notes)
    result["pendingTimeoutSeconds"] = int(fields.TABLE.by_path["pendingTimeoutSeconds"].high or 0)
    result["podRetention"] = _retention(job, history, notes)
    return result


def whole(value: object, *, at: str) -> int | None:
    """A count of a manifest, None where it is absent."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise errors.InvalidInput(at, "is not a whole number of 0 or more, so no API server takes it: write one")
    return value


def mapping(value: object, *, at: str) -> Mapping[str, object]:
    """An object of a manifest; an absent one is empty."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise errors.InvalidInput(at, "is not an object, so no API server takes it: write one")
    return value


def bounded(path: str, value: int, *, of: str, notes: list[str]) -> int:
    """`value` within the bounds of our field."""
    row = fields.TABLE.by_path[path]
    kept = int(min(max(value, row.low or 0), value if row.high is None else row.high))
    if kept != value:
        notes.append(f"{of} {value} is beyond the bounds of spec.{path}: {kept} is written")
    return kept


def _tell_what_has_no_equal(name: str, value: object, notes: list[str]) -> None:
    if name in _KNOWN or value is None:
        return
    if name not in _NO_EQUAL:
        notes.append(f"{_AT}.{name} is not a field that is known here: it is left out")
        return
    same, instead = _NO_EQUAL[name]
    if value != same:
        shown = (
            f" {json.dumps(value)}" if isinstance(value, bool | int) else f" {value}" if isinstance(value, str) else ""
        )
        notes.append(f"{_AT}.{name}{shown} has no equal: {instead}")


def _retry(job: Mapping[str, object], notes: list[str]) -> dict[str, object]:
    limit = whole(job.get("backoffLimit"), at=f"{_AT}.backoffLimit")
    limit = _BACKOFF_LIMIT if limit is None else limit
    attempts = bounded("retry.maxAttempts", limit + 1, of="backoffLimit + 1 =", notes=notes)
    rules, uncounted = _rules(job, notes)
    most = int(fields.TABLE.by_path["retry.maxDisruptions"].high or 0)
    # a Job counts lost pods as failures, unless a rule says otherwise
    retry: dict[str, object] = {"maxAttempts": attempts, "backoff": dict(_BACKOFF)}
    retry["maxDisruptions"] = most if uncounted else min(limit, most)
    if rules:
        retry["rules"] = rules
    return retry


def _rules(job: Mapping[str, object], notes: list[str]) -> tuple[list[dict[str, object]], bool]:
    """Our rules, and whether disruptions are not to count."""
    at = f"{_AT}.podFailurePolicy.rules"
    listed = mapping(job.get("podFailurePolicy"), at=f"{_AT}.podFailurePolicy").get("rules")
    rules: list[dict[str, object]] = []
    uncounted = False
    for index, rule in enumerate(objects(listed, at=at)):
        where = f"podFailurePolicy.rules[{index}]"
        if rule.get("onPodConditions") is not None:
            uncounted = _is_for_disruptions(rule, where, notes) or uncounted
            continue
        found = list(_exit_code_rules(rule, job, where, notes))
        rules.extend(found)
        uncounted = uncounted or any(one["action"] == "Ignore" for one in found)
    most = int(fields.TABLE.by_path["retry.rules"].high or 0)
    if len(rules) > most:
        raise errors.InvalidInput(at, f"needs more than the {most} rules that spec.retry.rules holds: write fewer")
    return rules, uncounted


def _is_for_disruptions(rule: Mapping[str, object], where: str, notes: list[str]) -> bool:
    patterns = objects(rule["onPodConditions"], at=where)
    known = [one.get("type") == "DisruptionTarget" and one.get("status", "True") == "True" for one in patterns]
    if rule.get("action") == "Ignore" and any(known):
        if not all(known):
            notes.append(
                f"{where} asks for other conditions than DisruptionTarget, which have no equal: they are left out"
            )
        return True
    notes.append(f"{where} has no equal: only exit codes have rules here, and what disrupts a pod is counted apart")
    return False


def _exit_code_rules(
    rule: Mapping[str, object], job: Mapping[str, object], where: str, notes: list[str]
) -> Iterator[dict[str, object]]:
    asked = mapping(rule.get("onExitCodes"), at=where)
    action = _ACTIONS.get(str(rule.get("action")))
    if action is None or not asked:
        notes.append(f"{where} has the action {rule.get('action')}, which has no equal: it is left out")
        return
    names = _containers(job)
    container = asked.get("containerName")
    if container is not None and container != main_container(job):
        notes.append(f"{where} looks at the container {container}, and only the main one counts here: it is left out")
        return
    if container is None and len(names) > 1:
        notes.append(f"{where} looks at every container, and only the main one counts here")
    codes = _codes(asked, where)
    for start in range(0, len(codes), _LIMIT_OF_CODES):
        yield {"onExitCodes": list(codes[start : start + _LIMIT_OF_CODES]), "action": action}


def _codes(asked: Mapping[str, object], where: str) -> Sequence[int]:
    values = asked.get("values")
    if not isinstance(values, list) or not all(isinstance(one, int) for one in values):
        raise errors.InvalidInput(f"{_AT}.{where}", "lists no exit codes, so no API server takes it: write values")
    wanted = set(values) if asked.get("operator") == "In" else set(_ALL_CODES) - set(values)
    return [code for code in _ALL_CODES if code in wanted]


def _retention(job: Mapping[str, object], history: tuple[int, int], notes: list[str]) -> dict[str, object]:
    succeeded, failed = history
    kept: dict[str, object] = {}
    ttl = whole(job.get("ttlSecondsAfterFinished"), at=f"{_AT}.ttlSecondsAfterFinished")
    if succeeded == 0 or ttl is not None:
        seconds = 0 if succeeded == 0 else ttl or 0
        path = "podRetention.succeededSeconds"
        kept["succeededSeconds"] = bounded(path, seconds, of="ttlSecondsAfterFinished", notes=notes)
        if ttl is not None:
            notes.append("ttlSecondsAfterFinished is for pods that succeeded here: failed ones are kept by number")
    else:
        notes.append(
            f"successfulJobsHistoryLimit {succeeded} has no equal: a pod that succeeded is kept for 60 s "
            "(podRetention.succeededSeconds), and the history of runs does not depend on pods"
        )
    path = "podRetention.failedCount"
    kept["failedCount"] = bounded(path, failed, of="failedJobsHistoryLimit", notes=notes)
    return kept


def main_container(job: Mapping[str, object]) -> object:
    """The name of the container whose exit code is the outcome of a run."""
    template = mapping(job.get("template"), at=f"{_AT}.template")
    metadata = mapping(template.get("metadata"), at=f"{_AT}.template.metadata")
    annotations = mapping(metadata.get("annotations"), at=f"{_AT}.template.metadata.annotations")
    return annotations.get(_DEFAULT_CONTAINER) or next(iter(_containers(job)), None)


def _containers(job: Mapping[str, object]) -> list[object]:
    pod = mapping(mapping(job.get("template"), at=f"{_AT}.template").get("spec"), at=f"{_AT}.template.spec")
    return [one.get("name") for one in objects(pod.get("containers"), at=f"{_AT}.template.spec.containers")]


def objects(value: object, *, at: str) -> list[Mapping[str, object]]:
    """A list of objects of a manifest; an absent one is empty."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
        raise errors.InvalidInput(at, "is not a list of objects, so no API server takes it: write one")
    return value
