"""Runs as `kubectl get runs -o json` shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from tests.support import kubectl as kubectls
from tests.support.kubectl import Kubectl, NotYet, wait_for

Run = Mapping[str, Any]
ENDED = frozenset({"Succeeded", "Dead", "Cancelled", "Unknown"})


def of_job(kubectl: Kubectl, job: str) -> list[Run]:
    """The job's runs, oldest slot first, without the entries for slots that were skipped."""
    found = [run for run in kubectl.items("runs", f"--field-selector=spec.job={job}") if state(run) != "Skipped"]
    return sorted(found, key=scheduled_at)


def skipped_of_job(kubectl: Kubectl, job: str) -> list[Run]:
    found = kubectl.items("runs", f"--field-selector=spec.job={job}")
    return [run for run in found if state(run) == "Skipped"]


def state(run: Run) -> str:
    return str(run["status"]["state"])


def reason(run: Run) -> str:
    return str(run["status"].get("reason", ""))


def scheduled_at(run: Run) -> datetime:
    return instant(run["spec"]["scheduledTime"])


def created_at(run: Run) -> datetime:
    return instant(run["metadata"]["creationTimestamp"])


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


def wait_state(kubectl: Kubectl, name: str, *states: str, seconds: float = kubectls.WAIT_SECONDS) -> Run:
    """The run once it is in one of these states; a run that ends in another fails at once."""

    def look() -> Run | None:
        run: Run = kubectl.get("run", name)
        if state(run) in states:
            return run
        if state(run) in ENDED:
            raise AssertionError(f"{name} ended otherwise than {' or '.join(states)}: {run}")
        raise NotYet(f"{name} is {state(run)} {reason(run)}")

    return wait_for(f"{name} to be {' or '.join(states)}", look, seconds=seconds)


def start(kubectl: Kubectl, job: str, name: str, **spec: Any) -> None:
    """Asks for a manual run; a job that was applied a moment ago may not have been seen yet."""
    body = kubectls.bundle([manual(name, job, **spec)])
    wait_for(f"a run of {job} to be accepted", lambda: kubectl.run("create", "-f", "-", stdin=body))


def manual(name: str, job: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "runs.clockhand.dev/v1alpha1",
        "kind": "Run",
        "metadata": {"name": name},
        "spec": {"job": job, **spec},
    }


def pods_of(kubectl: Kubectl, job: str) -> list[Mapping[str, Any]]:
    return kubectl.items("pods", f"--selector=clockhand.dev/job={job}")


def running_pod(kubectl: Kubectl, job: str) -> Mapping[str, Any]:
    """The one live pod of the job."""
    (pod,) = [pod for pod in pods_of(kubectl, job) if pod["status"]["phase"] == "Running"]
    return pod


def names(things: Iterable[Mapping[str, Any]]) -> list[str]:
    return [thing["metadata"]["name"] for thing in things]
