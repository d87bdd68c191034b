"""What is wrong is said in a sentence, on apply or in a condition of that object, and disturbs no other job."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.support import objects, runs
from tests.support.kubectl import Kubectl, NotYet, wait_for

SIXTY_FIVE_KIB = 65 * 1024


def job(name: str, **spec: Any) -> objects.Object:
    return objects.job(name, **spec)


def with_pod(name: str, **pod_spec: Any) -> objects.Object:
    body = objects.succeeding()
    body["spec"].update(pod_spec)
    return objects.job(name, body)


def misspelt(name: str) -> objects.Object:
    body = objects.succeeding()
    body["spec"]["containers"][0]["comand"] = ["true"]
    return objects.job(name, body)


# name: (the object, what the sentence has to say)
WRONG: Mapping[str, tuple[objects.Object, str]] = {
    "unknown-zone": (job("unknown-zone", timeZone="Mars/Olympus"), r"timeZone.*Mars/Olympus"),
    "impossible-date": (job("impossible-date", schedule="0 0 31 2 *"), r"schedule"),
    "six-fields": (job("six-fields", schedule="0 0 2 * * *"), r"schedule.*(five|5|six|6)"),
    "wrapped-range": (job("wrapped-range", schedule="0 22-2 * * *"), r"schedule.*22-2"),
    "both-whens": (job("both-whens", at="2030-01-01T00:00:00Z"), r"spec\.schedule.*spec\.at"),
    "no-when": (job("no-when", schedule=None), r"exactly one of spec\.schedule"),
    "negative-attempt": (job("negative-attempt", attemptTimeoutSeconds=-1), r"attemptTimeoutSeconds"),
    "negative-run": (job("negative-run", runTimeoutSeconds=-1), r"runTimeoutSeconds"),
    "negative-pending": (job("negative-pending", pendingTimeoutSeconds=-1), r"pendingTimeoutSeconds"),
    "negative-deadline": (job("negative-deadline", startingDeadlineSeconds=-1), r"startingDeadlineSeconds"),
    "restart-always": (with_pod("restart-always", restartPolicy="Always"), r"restartPolicy.*Never"),
    "name-of-64": (job("n" * 64), r"metadata\.name.*63"),
    "nul-in-payload": (job("nul-in-payload", payload={"text": "a\0b"}), r"payload.*(NUL|U\+0000|u0000)"),
    "payload-of-65-kib": (job("payload-of-65-kib", payload="x" * SIXTY_FIVE_KIB), r"payload.*65536"),
    "misspelt-field": (misspelt("misspelt-field"), r"comand"),
}


@pytest.fixture(scope="module")
def refusals(here: Kubectl) -> dict[str, str]:
    """Every wrong object is applied before the first test looks; what was said on apply."""
    said = {}
    for name, (thing, _) in WRONG.items():
        answer = here.call("apply", "-f", "-", stdin=objects.text(thing))
        if answer.code != 0:
            said[name] = answer.err
    return said


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_object_is_told_so_in_a_sentence(here: Kubectl, refusals: dict[str, str], name: str) -> None:
    thing, pattern = WRONG[name]
    said = refusals.get(name) or not_ready(here, thing["metadata"]["name"])
    assert re.search(pattern, said, re.DOTALL), said


def test_a_fleet_beside_wrong_objects_keeps_firing(fleet: Kubectl, refusals: dict[str, str]) -> None:
    before = {run["metadata"]["uid"] for run in runs.of_job(fleet, "minutely")}

    def newer() -> list[runs.Run]:
        found = runs.of_job(fleet, "minutely")
        return [r for r in found if r["metadata"]["uid"] not in before and runs.state(r) == "Succeeded"]

    wait_for("another run of minutely", newer, seconds=150)


@pytest.mark.cluster
def test_a_pod_that_pod_security_refuses_is_told(new_namespace: Callable[..., Kubectl]) -> None:
    level = {"pod-security.kubernetes.io/enforce": "baseline"}
    kubectl = new_namespace("e2e-guarded", labels=level)
    kubectl.apply(with_pod("privileged", hostNetwork=True))
    said = template_doubt(kubectl, "privileged")
    assert "PodSecurity" in said
    assert "hostNetwork" in said or "host namespaces" in said


@pytest.mark.cluster
def test_a_pod_that_a_quota_refuses_is_told_and_its_neighbour_runs(
    here: Kubectl, new_namespace: Callable[..., Kubectl]
) -> None:
    kubectl = new_namespace("e2e-full")
    kubectl.run("create", "quota", "none", "--hard=pods=0")
    full = lambda: kubectl.get("quota", "none").get("status", {}).get("hard")  # noqa: E731
    wait_for("the quota to hold", full)
    kubectl.apply(objects.job("too-many"))
    assert "quota" in template_doubt(kubectl, "too-many")
    here.apply(objects.job("neighbour"))
    runs.start(here, "neighbour", "neighbour-now")
    runs.wait_state(here, "neighbour-now", "Succeeded")


def not_ready(kubectl: Kubectl, name: str) -> str:
    """The message of a Ready condition that is False."""

    def look() -> str:
        ready = objects.condition(kubectl.get("sjob", name), "Ready")
        if ready.get("status") != "False":
            raise NotYet(f"Ready is {ready}")
        return f"{ready['reason']}: {ready['message']}"

    return wait_for(f"{name} to be told what is wrong", look)


def template_doubt(kubectl: Kubectl, name: str) -> str:
    """The message of a TemplateValid condition that is not True; the job itself may go on."""

    def look() -> str:
        valid = objects.condition(kubectl.get("sjob", name), "TemplateValid")
        if valid.get("status") not in ("False", "Unknown"):
            raise NotYet(f"TemplateValid is {valid}")
        return str(valid["message"])

    return wait_for(f"{name} to be told about its template", look)
