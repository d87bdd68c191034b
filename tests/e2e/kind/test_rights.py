"""Who may do what: the stock roles, and authors of pod templates."""

from __future__ import annotations

import pytest
from tests.support import objects, runs
from tests.support.kubectl import Kubectl, bundle, wait_for

pytestmark = pytest.mark.cluster

JOBS = ("clockhand.dev", "scheduledjobs", ["get", "list", "create", "update", "patch"])
PODS = ("", "pods", ["create"])


@pytest.fixture(scope="module")
def users(here: Kubectl) -> Kubectl:
    """`reader` and `writer` hold stock roles, `author` may only write jobs, `builder` also create pods."""
    here.apply(
        objects.grant("reader", "ClusterRole", "view"),
        objects.grant("writer", "ClusterRole", "edit"),
        objects.role("jobs", JOBS),
        objects.role("jobs-and-pods", JOBS, PODS),
        objects.grant("author", "Role", "jobs"),
        objects.grant("builder", "Role", "jobs-and-pods"),
    )
    here.apply(objects.job("shared"))
    for user, verb in (("reader", "list"), ("writer", "create")):
        wait_for(f"{user} to have rights", lambda user=user, verb=verb: may(here, user, verb, "runs"))  # type: ignore[misc]
    return here


@pytest.mark.parametrize("what", ["runs", "scheduledjobs"])
def test_a_user_without_rights_sees_nothing(users: Kubectl, what: str) -> None:
    said = users.acting_as("nobody").refusal("get", what)
    assert "Forbidden" in said
    assert '"nobody"' in said


@pytest.mark.parametrize(
    ("user", "allowed"),
    [
        ("nobody", set[str]()),
        ("reader", {"get", "list", "watch"}),
        ("writer", {"get", "list", "watch", "create", "delete", "cancel", "retry", "log"}),
    ],
)
def test_the_stock_roles_give_what_they_promise(users: Kubectl, user: str, allowed: set[str]) -> None:
    verbs = {verb for verb in ("get", "list", "watch", "create", "delete") if may(users, user, verb, "runs")}
    actions = {"cancel": "create", "retry": "create", "log": "get"}
    verbs |= {name for name, verb in actions.items() if may(users, user, verb, "runs", f"--subresource={name}")}
    assert verbs == allowed


def test_a_reader_reads_and_cannot_start_a_run(users: Kubectl) -> None:
    reader = users.acting_as("reader")
    reader.run("get", "runs")
    said = reader.refusal("create", "-f", "-", stdin=bundle([runs.manual("not-mine", "shared")]))
    assert "Forbidden" in said


def test_a_writer_starts_a_run(users: Kubectl) -> None:
    runs.start(users.acting_as("writer"), "shared", "by-writer")
    runs.wait_state(users.acting_as("reader"), "by-writer", "Succeeded")


def test_rights_in_one_namespace_show_no_other(users: Kubectl) -> None:
    reader = users.acting_as("reader")
    assert "Forbidden" in reader.within("default").refusal("get", "runs")
    assert "Forbidden" in reader.refusal("get", "runs", "--all-namespaces")


def test_an_author_who_may_not_create_pods_is_refused(users: Kubectl) -> None:
    said = users.acting_as("author").apply_refusal(objects.job("smuggled"))
    assert "author may not create pods in namespace" in said
    assert users.find("sjob", "smuggled") is None


def test_an_author_who_may_create_pods_is_accepted(users: Kubectl) -> None:
    users.acting_as("builder").apply(objects.job("built"))


def test_an_edit_of_the_template_or_of_what_steers_it_is_refused_too(users: Kubectl) -> None:
    author = users.acting_as("author")
    users.apply(objects.job("steered"))
    for patch in ('{"spec":{"payload":{"rm":"-rf"}}}', '{"spec":{"schedule":"* * * * *"}}'):
        said = author.refusal("patch", "sjob", "steered", "--type=merge", "-p", patch)
        assert "may not create pods" in said
    # what does not reach the pod is theirs to change
    author.run("label", "sjob", "steered", "seen=true")


def may(kubectl: Kubectl, user: str, verb: str, what: str, *options: str) -> bool:
    resource = f"{what}.runs.clockhand.dev" if what == "runs" else what
    answer = kubectl.acting_as(user).call("auth", "can-i", verb, resource, *options)
    return answer.out.strip() == "yes"
