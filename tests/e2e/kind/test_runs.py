"""`kubectl get runs` and what else stock kubectl does with runs."""

from __future__ import annotations

import re

import pytest
from tests.support import objects, runs
from tests.support.installation import Installation
from tests.support.kubectl import Kubectl, bundle, wait_for

COLUMNS = ["NAME", "JOB", "STATE", "ATTEMPT", "SCHEDULED", "LATENESS", "DURATION", "AGE"]
CANCEL_SECONDS = 2.0


@pytest.fixture(scope="module")
def plain(here: Kubectl) -> str:
    """A job whose run `plain-done` has succeeded."""
    here.apply(objects.job("plain", labels={"team": "blue"}))
    runs.start(here, "plain", "plain-done")
    runs.wait_state(here, "plain-done", "Succeeded")
    return "plain"


@pytest.fixture(scope="module")
def dead(here: Kubectl) -> runs.Run:
    """A run that failed twice and got no third attempt."""
    retry = {"maxAttempts": 2, "backoff": {"initialSeconds": 1}}
    here.apply(objects.job("fails", objects.failing(3), labels={"team": "red"}, retry=retry))
    runs.start(here, "fails", "fails-now")
    return runs.wait_state(here, "fails-now", "Dead")


def test_an_exit_code_leads_over_a_retry_to_dead_with_its_reason(here: Kubectl, dead: runs.Run) -> None:
    assert dead["status"]["attempt"] == 2
    assert runs.reason(dead) == "AttemptsUsed"
    assert "exit code 3" in dead["status"]["message"]
    names = sorted(runs.names(runs.pods_of(here, "fails")))
    assert [name.rpartition("-")[2] for name in names] == ["1", "2"]
    assert len({name.rpartition("-")[0] for name in names}) == 1
    described = here.run("describe", "run", "fails-now").out
    assert "Dead" in described
    assert "exit code 3" in described


def test_a_failed_run_meets_the_condition_failed(here: Kubectl, dead: runs.Run) -> None:
    here.run("wait", "--for=condition=Failed", f"run/{dead['metadata']['name']}", "--timeout=60s")


def test_wait_for_complete_returns_when_the_run_has_succeeded(here: Kubectl, plain: str) -> None:
    runs.start(here, plain, "plain-waited")
    here.run("wait", "--for=condition=Complete", "run/plain-waited", "--timeout=120s", seconds=130)
    assert runs.state(here.get("run", "plain-waited")) == "Succeeded"


def test_a_manual_run_takes_its_name_once(here: Kubectl, plain: str) -> None:
    again = bundle([runs.manual("plain-done", plain)])
    assert "AlreadyExists" in here.refusal("create", "-f", "-", stdin=again)
    assert len([run for run in runs.of_job(here, plain) if run["metadata"]["name"] == "plain-done"]) == 1


def test_a_manual_run_of_no_job_is_refused_with_a_sentence(here: Kubectl) -> None:
    said = here.refusal("create", "-f", "-", stdin=bundle([runs.manual("orphan", "nobody")]))
    assert "nobody" in said


def test_the_table_has_its_columns(here: Kubectl, plain: str) -> None:
    header, *rows = here.run("get", "runs").out.splitlines()
    assert header.split() == COLUMNS
    row = next(line for line in rows if line.startswith("plain-done "))
    assert re.match(r"plain-done +plain +Succeeded +1 +\S+ +\S+ +\S+ +\d+m?\d*s?", row)


def test_the_wide_table_adds_worker_and_reason(here: Kubectl, dead: runs.Run) -> None:
    header, *rows = here.run("get", "runs", "-o", "wide").out.splitlines()
    assert header.split() == [*COLUMNS, "WORKER", "REASON"]
    row = next(line for line in rows if line.startswith("fails-now "))
    assert "AttemptsUsed" in row


def test_runs_are_selected_by_label(here: Kubectl, plain: str, dead: runs.Run) -> None:
    blue = runs.names(here.items("runs", "-l", "team=blue"))
    assert "plain-done" in blue
    assert "fails-now" not in blue
    assert runs.names(here.items("runs", "-l", "team,team notin (blue, green)")) == ["fails-now"]


def test_runs_are_selected_by_state(here: Kubectl, plain: str, dead: runs.Run) -> None:
    assert runs.names(here.items("runs", "--field-selector=status.state=Dead")) == ["fails-now"]
    said = here.refusal("get", "runs", "--field-selector=status.colour=red")
    assert "status.colour" in said


def test_runs_of_all_namespaces_are_listed(here: Kubectl, plain: str) -> None:
    assert f"{here.namespace} " in here.run("get", "runs", "--all-namespaces").out


def test_watch_shows_a_run_from_its_start_to_its_end(here: Kubectl, installation: Installation) -> None:
    here.apply(objects.job("watched", objects.until_told()))
    with here.follow("get", "runs", "--watch", "--field-selector=spec.job=watched") as shown:
        runs.start(here, "watched", "watched-now")
        shown.until(lambda line: line.startswith("watched-now ") and " Running " in line)
        installation.let_finish(here, runs.running_pod(here, "watched"))
        lines = shown.until(lambda line: line.startswith("watched-now ") and " Succeeded " in line)
    states = [line.split()[2] for line in lines if line.startswith("watched-now ")]
    order = ["Queued", "Claimed", "Running", "Succeeded"]
    assert states == sorted(states, key=order.index)


def test_a_watch_by_state_tells_of_a_run_that_leaves(here: Kubectl, installation: Installation) -> None:
    here.apply(objects.job("leaver", objects.until_told()))
    arguments = ("get", "runs", "--watch", "--output-watch-events", "--field-selector=status.state=Running")
    with here.follow(*arguments) as shown:
        runs.start(here, "leaver", "leaver-now")
        shown.until(lambda line: re.match(r"(ADDED|MODIFIED) +leaver-now ", line) is not None)
        installation.let_finish(here, runs.running_pod(here, "leaver"))
        shown.until(lambda line: line.startswith("DELETED") and "leaver-now" in line)


def test_describe_shows_spec_and_status(here: Kubectl, plain: str) -> None:
    said = here.run("describe", "run", "plain-done").out
    assert re.search(r"^Name: +plain-done$", said, re.MULTILINE)
    assert re.search(r"^ +Job: +plain$", said, re.MULTILINE)
    assert re.search(r"^ +State: +Succeeded$", said, re.MULTILINE)


@pytest.mark.parametrize(
    ("what", "word"),
    [("runs", "Run"), ("runs.spec.job", "job"), ("runs.status.state", "state"), ("sjob.spec.schedule", "cron")],
)
def test_explain_knows_the_fields(here: Kubectl, what: str, word: str) -> None:
    # openapi documents of an aggregated server are fetched about once a minute
    said = wait_for(f"explain {what}", lambda: here.run("explain", what).out, seconds=120)
    assert word in said


def test_api_resources_offers_runs(here: Kubectl) -> None:
    said = here.run("api-resources", "--api-group=runs.clockhand.dev", "-o", "wide").out
    assert re.search(r"^runs .* Run +create,get,list,watch\b", said, re.MULTILINE)


def test_deleting_a_live_run_cancels_it_and_returns_at_once(here: Kubectl) -> None:
    here.apply(objects.job("stops", objects.until_told()))
    runs.start(here, "stops", "stops-now")
    runs.wait_state(here, "stops-now", "Running")
    answer = here.run("delete", "run", "stops-now")
    assert answer.seconds < CANCEL_SECONDS
    run = runs.wait_state(here, "stops-now", "Cancelled")
    assert runs.reason(run) == "Cancelled"
    wait_for("its pod to go", lambda: not runs.pods_of(here, "stops"))


def test_deleting_an_ended_run_is_refused(here: Kubectl, plain: str) -> None:
    assert "plain-done" in here.refusal("delete", "run", "plain-done")
    assert runs.state(here.get("run", "plain-done")) == "Succeeded"


def test_a_dead_run_may_be_tried_again_under_the_same_id(here: Kubectl) -> None:
    # fails until the third attempt
    body = objects.template('[ "$CLOCKHAND_ATTEMPT" -ge 2 ]', outcome="exit:1,succeed")
    here.apply(objects.job("redriven", body, retry={"maxAttempts": 1}))
    runs.start(here, "redriven", "redriven-now")
    before = runs.wait_state(here, "redriven-now", "Dead")
    path = f"/apis/runs.clockhand.dev/v1alpha1/namespaces/{here.namespace}/runs/redriven-now/retry"
    here.run("create", "--raw", path, "-f", "-", stdin="{}")
    after = wait_for("the second attempt", lambda: next(iter(succeeded(runs.of_job(here, "redriven"))), None))
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["attempt"] == 2


@pytest.mark.kind
def test_the_pod_learns_of_its_run_and_payload(here: Kubectl) -> None:
    body = objects.template('echo "$CLOCKHAND_RUN_ID $CLOCKHAND_JOB $CLOCKHAND_ATTEMPT $CLOCKHAND_PAYLOAD"')
    here.apply(objects.job("told", body, podRetention={"succeededSeconds": 600}))
    runs.start(here, "told", "told-now", payload={"colour": "blue"})
    run = runs.wait_state(here, "told-now", "Succeeded")
    (pod,) = runs.pods_of(here, "told")
    said = here.run("logs", pod["metadata"]["name"]).out.strip()
    assert said == f'{run["metadata"]["uid"]} told 1 {{"colour":"blue"}}'


@pytest.mark.kind
def test_the_log_of_a_failed_attempt_outlives_its_pod(here: Kubectl) -> None:
    retry = {"maxAttempts": 1}
    here.apply(objects.job("logged", objects.failing(7), retry=retry, podRetention={"failedCount": 0}))
    runs.start(here, "logged", "logged-now")
    runs.wait_state(here, "logged-now", "Dead")
    wait_for("the pod to be removed", lambda: not runs.pods_of(here, "logged"))
    path = f"/apis/runs.clockhand.dev/v1alpha1/namespaces/{here.namespace}/runs/logged-now/log"
    assert "cannot go on" in here.run("get", "--raw", path).out


def succeeded(found: list[runs.Run]) -> list[runs.Run]:
    return [run for run in found if runs.state(run) == "Succeeded"]
