"""`make demo`: from a clone to a run that people can watch, on the cluster of KUBECONFIG or on one made for it.

Everything is done with the commands that the README gives, which are shown as they run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.cluster import kind_cluster, steps
from tests.support import installation as installations
from tests.support.kubectl import Kubectl

NAMESPACE = "clockhand-demo"
WATCH_SECONDS = 90.0
MADE = "jsonpath={.metadata.name} is {.status.state}"
MANUAL_RUN = """
apiVersion: runs.clockhand.dev/v1alpha1
kind: Run
metadata: {generateName: hello-by-hand-}
spec: {job: hello}
"""


def main() -> int:
    """Returns 0 once a run was seen to succeed in `kubectl get runs -w`."""
    kubeconfig = Path(os.environ.get("KUBECONFIG") or kind_cluster.kubeconfig())
    with steps.step("install Clockhand"):
        product = installations.Manifests(kubeconfig)
        if product.exists and kubeconfig == kind_cluster.kubeconfig():
            product.remove()  # it may be of another build
            product.kubectl.run("delete", "namespace", NAMESPACE, "--ignore-not-found")
        product.install()
    kubectl = product.kubectl.create_namespace(NAMESPACE)
    show(kubectl, "apply", "-f", "examples/hello.yaml")
    watcher = watch(kubectl)
    try:
        time.sleep(2)  # so that the first state of the run below is seen to change
        made = kubectl.call("create", "-f", "-", "-o", MADE, stdin=MANUAL_RUN)
        print(f"(made by hand: {made.out})", flush=True)
        succeeded = until_succeeded(watcher)
    finally:
        watcher.terminate()
        watcher.wait()
    show(kubectl, "get", "sjob")
    show(kubectl, "get", "runs")
    if not succeeded:
        print("no run succeeded in time: see `kubectl get runs -o wide` and `kubectl describe sjob hello`")
        return 1
    print_next(kubeconfig)
    return 0


def watch(kubectl: Kubectl) -> subprocess.Popen[str]:
    """`kubectl get runs -w`, its lines for us to show and to read."""
    command = kubectl.command("get", "runs", "--watch")
    print(f"\n$ kubectl -n {NAMESPACE} get runs --watch", flush=True)
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, bufsize=1)


def until_succeeded(watcher: subprocess.Popen[str]) -> bool:
    """Shows what the watch prints, until a run has succeeded or the time is over."""
    end = time.monotonic() + WATCH_SECONDS
    assert watcher.stdout is not None
    for line in watcher.stdout:
        print(line, end="", flush=True)
        if "Succeeded" in line:
            return True
        if time.monotonic() > end:
            break
    return False


def show(kubectl: Kubectl, *arguments: str) -> None:
    """Runs one command as a person would, and shows both."""
    print(f"\n$ kubectl -n {NAMESPACE} {' '.join(arguments)}", flush=True)
    print(kubectl.call(*arguments).out, end="", flush=True)


def print_next(kubeconfig: Path) -> None:
    """Three things to try next."""
    lines: Sequence[str] = (
        "",
        "Clockhand runs. Three things to try next:",
        f"  export KUBECONFIG={kubeconfig}",
        f"  kubectl -n {NAMESPACE} get runs -w                    # a run each minute",
        f"  kubectl -n {NAMESPACE} apply -f examples/             # retries, time-outs, one at a time, ...",
        f"  kubectl -n {NAMESPACE} describe run $(kubectl -n {NAMESPACE} get runs -o name | head -1 | cut -d/ -f2)",
        "`make cluster-down` takes the cluster away again.",
    )
    print("\n".join(lines))


if __name__ == "__main__":
    sys.exit(main())
