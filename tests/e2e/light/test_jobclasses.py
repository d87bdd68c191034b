"""JobClasses on a real API server: what it takes, who may use one, and what the operator makes of it by its own rights."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from tests.support import light, manifests, objects
from tests.support.crd_cases import REFUSED_CLASSES, TEMPLATE, job_class
from tests.support.kubectl import Kubectl, wait_for

from clockhand.domain import crd, documents, jobclass_fields, sightings
from clockhand.engine import jobclasses, mirror, templates
from clockhand.kube import client as clients
from clockhand.kube import connection as connections
from clockhand.kube import objects as calls
from clockhand.kube import pods
from clockhand.store import database, duties

OPERATOR = "system:serviceaccount:clockhand-system:clockhand-operator"
GROUPS = ("system:serviceaccounts", "system:serviceaccounts:clockhand-system", "system:authenticated")
TEAM, OTHER = "team-a", "team-b"
Json = dict[str, Any]


def of_class(name: str = "nightly", *, named: str = "batch", schedule: str = objects.NEVER, **run: Any) -> Json:
    body: Json = dict(objects.job(name, schedule=schedule, run={"class": named, **run}))
    del body["spec"]["template"]
    return body


def editor(user: str) -> list[objects.Object]:
    """Rights on ScheduledJobs, and none on pods."""
    return [objects.grant(user, "ClusterRole", f"clockhand-{role}") for role in ("viewer", "editor")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[light.LightCluster]:
    with light.LightCluster() as running:
        kubectl = Kubectl(running.kubeconfig)
        manifests.declare(kubectl, known="maxResources")
        for team in (TEAM, OTHER):
            kubectl.create_namespace(team)
            kubectl.within(team).apply(*editor("jane"))
        use = objects.role("use-batch", (crd.GROUP, "jobclasses", ["use"]))
        use["rules"][0]["resourceNames"] = ["batch"]
        kubectl.within(TEAM).apply(use, objects.grant("jane", "Role", "use-batch"))
        yield running


@pytest.fixture
def team(cluster: light.LightCluster) -> Iterator[Kubectl]:
    """The namespace in which jane may use the class, seen by an administrator."""
    admin = Kubectl(cluster.kubeconfig, TEAM)
    admin.apply(job_class())
    yield admin
    admin.run("delete", "sjob", "--all")
    admin.run("delete", "jclass", "--all")


@pytest.mark.parametrize(("body", "sentence"), REFUSED_CLASSES, ids=[sentence[:50] for _, sentence in REFUSED_CLASSES])
def test_a_bad_class_is_refused_with_a_sentence(cluster: light.LightCluster, body: Json, sentence: str) -> None:
    assert sentence in Kubectl(cluster.kubeconfig).refusal("apply", "-f", "-", stdin=json.dumps(body))


def test_the_definition_has_no_complaints_and_the_defaults_of_the_parser(team: Kubectl) -> None:
    conditions = team.get("crd", "jobclasses.clockhand.dev")["status"]["conditions"]
    assert "NonStructuralSchema" not in {one["type"] for one in conditions}
    filled: Json = documents.check(job_class()["spec"], jobclass_fields.TABLE)
    filled["template"]["spec"]["restartPolicy"] = "Never"  # of the pod, which the parser leaves as it is
    assert team.get("jclass", "batch")["spec"] == filled
    head, line = team.run("get", "jclass").out.splitlines()
    assert head.split() == ["NAME", "NAMESPACES", "ALLOW", "ACCOUNT", "AGE"]
    assert line.split()[:3] == ["batch", f'["{TEAM}"]', '["Args"]']


def test_who_may_not_create_pods_uses_the_classes_that_are_his_to_use(team: Kubectl) -> None:
    jane = team.acting_as("jane")
    wait_for(
        "the policies",
        lambda: "may not create pods" in jane.call("apply", "-f", "-", stdin=_text(objects.job("own"))).err,
    )
    team.apply(job_class("other"))
    refused = wait_for(
        "the policy", lambda: _policy(jane.refusal("apply", "-f", "-", stdin=_text(of_class(named="other"))))
    )
    assert f"spec.run.class: jane may not use JobClass other in namespace {TEAM}." in refused
    # the right is of one namespace, and the class may be one that nobody has made yet
    elsewhere = jane.within(OTHER).refusal("apply", "-f", "-", stdin=_text(of_class()))
    assert f"jane may not use JobClass batch in namespace {OTHER}" in elsewhere
    assert jane.call("auth", "can-i", "create", "jobclasses").out.strip() == "no"

    jane.apply(of_class())
    jane.run("patch", "sjob", "nightly", "--type=merge", "-p", '{"spec":{"run":{"args":["more"]}}}')
    another = jane.refusal("patch", "sjob", "nightly", "--type=merge", "-p", '{"spec":{"run":{"class":"other"}}}')
    assert "may not use JobClass other" in another
    swapped = {"spec": {"run": None, "template": TEMPLATE}}
    assert "may not create pods" in jane.refusal("patch", "sjob", "nightly", "--type=merge", "-p", json.dumps(swapped))


def test_who_may_not_use_the_class_any_more_changes_nothing_of_the_job(team: Kubectl) -> None:
    team.apply(of_class("kept"))
    joe = team.acting_as("joe")
    team.apply(*editor("joe"))
    wait_for("the right", lambda: joe.call("label", "sjob", "kept", "seen=true", "--overwrite").code == 0)
    said = joe.refusal("patch", "sjob", "kept", "--type=merge", "-p", '{"spec":{"schedule":"@hourly"}}')
    assert "joe may not use JobClass batch" in said
    joe.run("delete", "sjob", "kept")


@dataclass
class Mirrored:
    """What the operator stores of jobs and classes, by its own rights; each step is made by hand."""

    db: database.Database
    objects: calls.Objects
    mirror: mirror.Mirror
    classes: jobclasses.JobClasses
    templates: templates.Templates
    held: duties.Held

    async def sees(self) -> None:
        seen = sightings.from_object(await self.objects.get(TEAM, "nightly"))
        await self.mirror.store(self.held, [seen])

    async def row(self) -> Any:
        async with self.db.transaction() as connection:
            cursor = await connection.execute(
                "SELECT j.parked, j.next_slot_at, p.template, s.conditions FROM jobs j JOIN job_specs p USING (spec_id) "
                "JOIN job_status s ON s.job_id = j.job_id WHERE j.name = 'nightly'"
            )
            return await cursor.fetchone()

    async def condition(self, kind: str = "Ready") -> Json:
        return next((one for one in (await self.row()).conditions if one["type"] == kind), {})


@pytest.fixture
async def mirrored(db: database.Database, cluster: light.LightCluster, team: Kubectl) -> AsyncIterator[Mirrored]:
    connection = await connections.from_kubeconfig(str(cluster.kubeconfig_for(OPERATOR, GROUPS)))
    async with db.transaction() as transaction:
        held = await duties.take(transaction, duties.MIRROR, replica="one", lease=timedelta(minutes=5))
    assert held
    async with clients.connect(connection) as client:
        checked = templates.Templates(db, pods.Pods(client))
        catalogue = jobclasses.Catalogue(db, calls.Objects(client, calls.JOB_CLASSES))
        one = mirror.Mirror(db, checked, catalogue)
        followed = jobclasses.JobClasses(db, catalogue, checked, turn=one.turn)
        yield Mirrored(db, calls.Objects(client), one, followed, checked, held)


async def in_thread(call: Callable[..., object], *given: Any) -> None:
    await asyncio.to_thread(call, *given)


async def test_jobs_follow_their_class(mirrored: Mirrored, team: Kubectl) -> None:
    await in_thread(team.acting_as("jane").apply, of_class(args=["--day", "monday"]))
    await mirrored.sees()
    row = await mirrored.row()
    assert (row.parked, row.template["spec"]["containers"][0]["args"]) == (None, ["--day", "monday"])
    assert await mirrored.templates.check_once(mirrored.held)
    assert (await mirrored.condition("TemplateValid"))["status"] == "True"

    # a pod that the API server does not take
    wrong = {"spec": {"containers": [{"name": "main", "image": "a", "ports": [{"containerPort": 0}]}]}}
    await in_thread(team.apply, job_class(template=wrong))
    await mirrored.classes.run_once(mirrored.held)
    assert await mirrored.templates.check_once(mirrored.held)
    assert (await mirrored.condition())["reason"] == "TemplateInvalid"

    await in_thread(team.apply, job_class(allow=[]))
    await mirrored.classes.run_once(mirrored.held)
    ready = await mirrored.condition()
    assert (ready["reason"], (await mirrored.row()).next_slot_at) == ("ClassForbids", None)
    assert ready["message"] == "spec.run.args: JobClass batch does not leave it to its users: leave it out"

    await in_thread(team.run, "delete", "jclass", "batch")
    await mirrored.classes.run_once(mirrored.held)
    assert (await mirrored.condition())["reason"] == "ClassNotFound"
    assert await mirrored.condition("TemplateValid") == {}

    await in_thread(team.apply, job_class())
    await mirrored.classes.run_once(mirrored.held)
    assert (await mirrored.condition())["status"] == "True"
    assert (await mirrored.row()).next_slot_at is not None


async def test_pods_of_a_class_keep_the_standards_of_their_namespace(mirrored: Mirrored, team: Kubectl) -> None:
    enforced = "pod-security.kubernetes.io/enforce"
    await in_thread(team.run, "label", "namespace", TEAM, f"{enforced}=restricted")
    try:
        await in_thread(team.apply, of_class())
        await mirrored.sees()
        assert await mirrored.templates.check_once(mirrored.held)
    finally:
        await in_thread(team.run, "label", "namespace", TEAM, f"{enforced}-")
    told = await mirrored.condition("TemplateValid")
    assert told["status"] == "Unknown"
    assert "PodSecurity" in told["message"]


def _text(body: object) -> str:
    return json.dumps(body)


def _policy(said: str) -> str:
    return said if "may not use JobClass" in said else ""
