"""A CronJob as a ScheduledJob that does the same.

CronJob's defaults are written out where ours differ: whoever moves a job over changes one thing at a time. What has no
equal is told in a sentence, and nothing is dropped in silence but what the API server had set itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from clockhand import errors
from clockhand.domain import crd, dialect, jobpolicy, spec

API_VERSIONS = ("batch/v1", "batch/v1beta1")
KIND = "CronJob"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_HISTORY = (3, 1)
_POLICIES = ("Allow", "Forbid", "Replace")
_KEPT_METADATA = ("name", "generateName", "namespace", "labels", "annotations")
_OF_THE_SERVER = {
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "selfLink",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
}
_KNOWN = {
    "schedule",
    "timeZone",
    "suspend",
    "startingDeadlineSeconds",
    "concurrencyPolicy",
    "jobTemplate",
    "successfulJobsHistoryLimit",
    "failedJobsHistoryLimit",
}
_JOB_LABEL = re.compile(r"metadata\.(?:labels|annotations)\['[^']*(?:job-name|controller-uid|job-completion-index)'\]")
_SUSPENDED = (
    "suspend: when it ends, CronJob starts the newest time that it missed; here what fell due meanwhile is "
    "Skipped(Suspended)"
)
_FORBID = (
    "concurrencyPolicy Forbid: CronJob may start a time that it held back once the live Job has ended; here it is "
    "Skipped(Forbid), and Queue makes it wait"
)


@dataclass(frozen=True, slots=True)
class Converted:
    """A ScheduledJob, and what whoever applies it should know, a sentence each."""

    name: str
    document: dict[str, object]
    notes: tuple[str, ...]


def is_cronjob(document: Mapping[str, object]) -> bool:
    """Whether it is a CronJob of Kubernetes, not something else of the same kind."""
    return document.get("kind") == KIND and document.get("apiVersion") in API_VERSIONS


def convert(document: Mapping[str, object]) -> Converted:
    """The ScheduledJob that does what the CronJob does, or `InvalidInput` where there is none."""
    notes: list[str] = []
    metadata = jobpolicy.mapping(document.get("metadata"), at="metadata")
    there = jobpolicy.mapping(document.get("spec"), at="spec")
    here: dict[str, object] = {**_when(there, metadata, notes), **_policies(there, notes)}
    job_template = jobpolicy.mapping(there.get("jobTemplate"), at="spec.jobTemplate")
    job = jobpolicy.mapping(job_template.get("spec"), at="spec.jobTemplate.spec")
    history = _history(there)
    here.update(jobpolicy.policy(job, history=history, notes=notes))
    here["template"] = _template(job, notes)
    if any(jobpolicy.mapping(job_template.get("metadata"), at="spec.jobTemplate.metadata").values()):
        notes.append(
            "spec.jobTemplate.metadata has no equal: there is no Job, and runs carry the labels of the ScheduledJob"
        )
    notes.extend(
        f"spec.{name} is not a field that is known here: it is left out" for name in there if name not in _KNOWN
    )
    spec.parse(here)
    kept = _metadata(metadata, notes)
    written: dict[str, object] = {
        "apiVersion": f"{crd.GROUP}/{crd.VERSION}",
        "kind": crd.KIND,
        "metadata": kept,
        "spec": here,
    }
    return Converted(str(kept.get("name", kept.get("generateName"))), written, tuple(notes))


def _when(there: Mapping[str, object], metadata: Mapping[str, object], notes: list[str]) -> dict[str, object]:
    expression, zone = there.get("schedule"), there.get("timeZone")
    if not isinstance(expression, str):
        raise errors.InvalidInput(
            "spec.schedule", "is not a string, so no API server takes it: write five fields in quotes"
        )
    if zone is not None and not isinstance(zone, str):
        raise errors.InvalidInput("spec.timeZone", "is not a string, so no API server takes it: write an IANA name")
    created = metadata.get("creationTimestamp")
    created_at = created if isinstance(created, str) else None
    return dialect.when(expression, zone=zone, created_at=created_at, notes=notes)


def _policies(there: Mapping[str, object], notes: list[str]) -> dict[str, object]:
    here: dict[str, object] = {}
    if there.get("suspend"):
        here["suspend"] = there["suspend"]
        notes.append(_SUSPENDED)
    deadline = jobpolicy.whole(there.get("startingDeadlineSeconds"), at="spec.startingDeadlineSeconds")
    if deadline is not None:
        path = "startingDeadlineSeconds"
        here[path] = jobpolicy.bounded(path, deadline, of=path, notes=notes)
    here["concurrencyPolicy"] = there.get("concurrencyPolicy") or "Allow"
    if here["concurrencyPolicy"] not in _POLICIES:
        raise errors.InvalidInput("spec.concurrencyPolicy", f"is none that CronJob has: write {', '.join(_POLICIES)}")
    if here["concurrencyPolicy"] == "Forbid":
        notes.append(_FORBID)
    here["onDelete"] = "Cancel"  # with a CronJob its Jobs and their pods go too
    return here


def _history(there: Mapping[str, object]) -> tuple[int, int]:
    found = [
        jobpolicy.whole(there.get(name), at=f"spec.{name}")
        for name in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit")
    ]
    succeeded, failed = (default if number is None else number for number, default in zip(found, _HISTORY, strict=True))
    return succeeded, failed


def _template(job: Mapping[str, object], notes: list[str]) -> dict[str, object]:
    at = "spec.jobTemplate.spec.template"
    template = jobpolicy.mapping(job.get("template"), at=at)
    pod = dict(jobpolicy.mapping(template.get("spec"), at=f"{at}.spec"))
    if pod.get("restartPolicy") != "Never":
        asked = pod.get("restartPolicy", "missing")
        notes.append(
            f"restartPolicy is {asked}, and Never is written: each attempt is a new pod, with nothing left in emptyDir"
        )
    pod["restartPolicy"] = "Never"
    names = [one.get("name") for one in jobpolicy.objects(pod.get("containers"), at=f"{at}.spec.containers")]
    if len(names) > 1:
        main = jobpolicy.main_container(job)
        notes.append(
            f"of {len(names)} containers only {main} decides whether a run succeeded, and its end ends the run"
        )
    if _JOB_LABEL.search(json.dumps(pod)):
        notes.append(
            "the pod reads a label that Jobs set: use CLOCKHAND_RUN_NAME and its like, which every container has"
        )
    metadata = _template_metadata(jobpolicy.mapping(template.get("metadata"), at=f"{at}.metadata"), notes)
    return {"metadata": metadata, "spec": pod} if metadata else {"spec": pod}


def _template_metadata(metadata: Mapping[str, object], notes: list[str]) -> dict[str, object]:
    for name, value in metadata.items():
        if value is not None and name not in _OF_THE_SERVER | {"labels", "annotations"}:
            notes.append(
                f"the pod's metadata.{name} has no equal: Clockhand names its pods, and adds no owner or finalizer"
            )
    return {name: metadata[name] for name in ("labels", "annotations") if metadata.get(name)}


def _metadata(metadata: Mapping[str, object], notes: list[str]) -> dict[str, object]:
    kept: dict[str, object] = {name: metadata[name] for name in _KEPT_METADATA if metadata.get(name)}
    annotations = dict(jobpolicy.mapping(kept.pop("annotations", None), at="metadata.annotations"))
    annotations.pop(_LAST_APPLIED, None)
    if annotations:
        kept["annotations"] = annotations
    for name in ("ownerReferences", "finalizers"):
        if metadata.get(name):
            notes.append(f"metadata.{name} is left out: whoever set it there does not know of the ScheduledJob")
    _check_name(kept, notes)
    return kept


def _check_name(kept: Mapping[str, object], notes: list[str]) -> None:
    name = kept.get("name")
    if name is None:
        if "generateName" not in kept:
            raise errors.InvalidInput("metadata.name", "is missing: write a name")
        notes.append("metadata.generateName is for `kubectl create`: `kubectl apply` needs a name")
    elif not isinstance(name, str) or len(name) > crd.MAX_NAME:
        raise errors.InvalidInput(
            "metadata.name", f"is no name of at most {crd.MAX_NAME} characters: write a shorter one"
        )
