"""What the operator does in the cluster, and so what its account must be allowed: the manifests grant just that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Right:
    """Verbs on a resource; `names` are the only objects that are meant, empty: all of them."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        names = f"[{','.join(self.names)}]" if self.names else ""
        return f"{self.group}/{self.resource}{names}: {' '.join(self.verbs)}"


DEFINITIONS = ("scheduledjobs.clockhand.dev", "workerpools.clockhand.dev", "jobclasses.clockhand.dev")
API_SERVICE = "v1alpha1.runs.clockhand.dev"
POLICIES = ("clockhand-pod-template-author", "clockhand-job-class-user", "clockhand-worker-pool-author")
NEEDED: Sequence[Right] = (
    Right("clockhand.dev", "scheduledjobs", ("delete", "get", "list", "watch")),
    Right("clockhand.dev", "workerpools", ("get", "list", "watch")),
    Right("clockhand.dev", "jobclasses", ("get", "list")),
    Right("clockhand.dev", "scheduledjobs/status", ("patch",)),
    Right("clockhand.dev", "workerpools/status", ("patch",)),
    Right("", "pods", ("create", "delete", "get", "list", "watch")),
    Right("", "pods/log", ("get",)),
    Right("apps", "deployments", ("create", "delete", "get", "list", "patch")),
    Right("", "serviceaccounts", ("create", "delete", "get", "patch")),
    Right("", "configmaps", ("create", "delete", "get", "patch")),
    Right("policy", "poddisruptionbudgets", ("create", "delete", "get", "patch")),
    Right("", "events", ("create", "patch")),
    Right("", "namespaces", ("get",)),
)
"""Without one of these the operator cannot do its work."""
FOR_THE_DOCTOR: Sequence[Right] = (
    Right("apiextensions.k8s.io", "customresourcedefinitions", ("get",), DEFINITIONS),
    Right("apiregistration.k8s.io", "apiservices", ("get",), (API_SERVICE,)),
    Right("admissionregistration.k8s.io", "validatingadmissionpolicies", ("get",), POLICIES),
    Right("admissionregistration.k8s.io", "validatingadmissionpolicybindings", ("get",), POLICIES),
)
"""What it reads besides, where somebody runs `clockhand doctor` in its pod; without one of these a check is skipped."""


def calls(rights: Sequence[Right]) -> Iterator[tuple[Right, str]]:
    """Each verb of each right."""
    for right in rights:
        for verb in right.verbs:
            yield right, verb
