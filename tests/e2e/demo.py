"""`make demo-cluster`: from a clone to a run that people see succeed, on the cluster of KUBECONFIG or on one made for it.

Everything is done with the commands that the README gives, which are shown as they run.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.cluster import __main__ as clusters
from tests.e2e.cluster import binaries, kind_cluster, steps
from tests.support import helm, installation, kubectl, release

INSTALL = "helm install clockhand charts/scheduler --namespace clockhand-system --create-namespace --wait"
JOB = "kubectl apply -f examples/hello.yaml"
JOBS = "kubectl get sjob"
RUNS = "kubectl get runs -w"
BY_HAND = """\
kubectl create -f - <<END
apiVersion: runs.clockhand.dev/v1alpha1
kind: Run
metadata: {generateName: hello-by-hand-}
spec: {job: hello}
END"""
IMAGES = (
    "image.repository=localhost:1/clockhand",
    "image.tag=dev",
    "workerImage.repository=localhost:1/clockhand-worker",
    "workerImage.tag=dev",
    "demoDatabase.enabled=true",
    "demoDatabase.image.repository=localhost:1/clockhand-postgres",
    "demoDatabase.image.tag=dev",
)
"""What `INSTALL` is told besides: where the images are, and to bring a database along."""
NEEDED = ("localhost:1/clockhand:dev", "localhost:1/clockhand-worker:dev", "localhost:1/clockhand-postgres:dev")
INSTALL_SECONDS = 360.0
WATCH_SECONDS = 120.0
PAUSE_SECONDS = 2.0
NEXT = """
Clockhand runs, and hello once a minute. Three things to try next:

  export KUBECONFIG={kubeconfig} PATH={tools}:$PATH
  kubectl get runs -w                                    # a run each minute
  kubectl apply -f examples/no-overlap.yaml              # one of the other examples: never two at a time
  kubectl describe run {run}

To take it away: {removal}.
"""


class DemoError(Exception):
    """Why there is no demo, as a sentence for the person at the terminal."""


class Times:
    """How long each part took, for the end."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._taken: list[tuple[str, float]] = []

    @contextlib.contextmanager
    def part(self, what: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self._taken.append((what, time.monotonic() - started))

    def show(self) -> None:
        everything = ("all of it", time.monotonic() - self._started)
        print()
        for what, seconds in [*self._taken, everything]:
            print(f"  {what:36}{seconds:7.1f} s", flush=True)


def main() -> int:
    """Returns 0 once a run was seen to succeed in `kubectl get runs -w`."""
    try:
        demonstrate(Times())
    except (DemoError, steps.StepError, kubectl.KubectlError) as error:
        print(f"\nerror: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def demonstrate(times: Times) -> None:
    with times.part("a cluster with the images"):
        kubeconfig = bring_up()
    product = release.Release("helm4", kubeconfig)
    with times.part("a cluster without Clockhand"):
        make_room(product, theirs=kubeconfig != kind_cluster.kubeconfig())
    with times.part("the installation, until it is ready"):
        install(product)
    with times.part("a job, and a run until it succeeded"):
        run = show_a_run(product.kubectl)
    times.show()
    kubectl_folder = Path(kubectl.program()).parent
    removal = "make cluster-down"
    if kubeconfig != kind_cluster.kubeconfig():
        removal = "kubectl delete -f examples/hello.yaml, and helm uninstall clockhand --namespace clockhand-system"
    print(NEXT.format(kubeconfig=kubeconfig, tools=kubectl_folder, run=run, removal=removal))


def bring_up() -> Path:
    """The kubeconfig of a cluster: that of KUBECONFIG, or one made for this."""
    if os.environ.get("KUBECONFIG"):
        steps.say(
            f"The cluster of KUBECONFIG has to have these images, which `make images` builds: {', '.join(NEEDED)}"
        )
        return release.find_kubeconfig()
    if clusters.main(["up"]) != 0:
        raise DemoError("there is no cluster to show it on; with KUBECONFIG set, one of yours is used")
    return kind_cluster.kubeconfig()


def make_room(product: release.Release, *, theirs: bool) -> None:
    """Replaces an installation on the cluster for tests, and none on anybody else's."""
    served = product.kubectl.find("apiservice", installation.API_SERVICE)
    if not served and not product.exists:
        return
    if theirs:
        where = served["spec"]["service"]["namespace"] if served else helm.NAMESPACE
        raise DemoError(
            f"the cluster of KUBECONFIG={product.kubectl.kubeconfig} has Clockhand already, or what is left of it, in the "
            f"namespace {where}, and this would replace it. Remove it first (docs/operations.md#remove), or unset "
            "KUBECONFIG for a cluster of its own"
        )
    with steps.step("take away the Clockhand that is there, which may be of another build"):
        product.clear()


def install(product: release.Release) -> None:
    """By Helm, whose output is shown, and meanwhile how many pods are ready."""
    binaries.ensure(["helm4"])
    parts = [INSTALL, *(f"--set {value}" for value in IMAGES)]
    print("\n$ " + " \\\n    ".join(parts), flush=True)
    environment = {**os.environ, "KUBECONFIG": str(product.kubectl.kubeconfig)}
    command = shlex.split(" ".join(parts))
    with subprocess.Popen(command, executable=binaries.path("helm4"), env=environment) as running:
        try:
            follow(running, product.own)
        except BaseException:
            running.terminate()
            raise
    if running.returncode != 0:
        raise DemoError(f"helm exited with {running.returncode}\n{product.trouble()}")
    installation.wait_until_served(product.kubectl)


def follow(running: subprocess.Popen[bytes], own: kubectl.Kubectl) -> None:
    """Says what has become of the pods whenever that changes, until the process ends."""
    started, said = time.monotonic(), ""
    while running.poll() is None:
        if time.monotonic() - started > INSTALL_SECONDS:
            raise DemoError(f"helm did not end within {INSTALL_SECONDS:.0f} s")
        now = readiness(own.items("pods"))
        if now != said:
            steps.say(f"    {time.monotonic() - started:3.0f} s: {now}")
            said = now
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(PAUSE_SECONDS)


def readiness(pods: Sequence[Mapping[str, Any]]) -> str:
    """Which of the parts are there, in a line."""
    if not pods:
        return "no pods yet"
    waiting = sorted({part(pod) for pod in pods if not is_ready(pod)})
    ready = f"{sum(map(is_ready, pods))} of {len(pods)} pods ready"
    return f"{ready}, not yet: {', '.join(waiting)}" if waiting else ready


def part(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"].get("labels", {}).get("app.kubernetes.io/component", pod["metadata"]["name"]))


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Also of a Job's pod that is done."""
    status = pod.get("status", {})
    if status.get("phase") == "Succeeded":
        return True
    return any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", ()))


def show_a_run(person: kubectl.Kubectl) -> str:
    """A job, and a run of it by hand, so that nobody waits for the minute; returns the name of the first that succeeded."""
    show(person, JOB)
    show(person, JOBS)
    show(person, BY_HAND)
    print(f"\n$ {RUNS}", flush=True)
    with person.follow(*words(RUNS)) as follower:
        lines = follower.until(is_success, seconds=WATCH_SECONDS)
    print()
    return lines[-1].split()[0]


def is_success(line: str) -> bool:
    print(line, flush=True)
    return " Succeeded " in line


def show(person: kubectl.Kubectl, command: str) -> None:
    """Runs one command as a person would, and shows both."""
    print(f"\n$ {command}", flush=True)
    line, _, text = command.partition("\n")
    stdin = text.removesuffix("END") or None
    print(person.run(*words(line), stdin=stdin).out, end="", flush=True)


def words(line: str) -> Sequence[str]:
    """The arguments of a kubectl command."""
    return shlex.split(line.removesuffix(" <<END"))[1:]


if __name__ == "__main__":
    sys.exit(main())
