"""A container engine: the one that answers, or else Debian's, started by hand and taken away again without
a trace.

An engine that we started is known by its pid file. It is treated as one without the internet: nothing is
pulled, and what its containers send beyond the machine is rejected.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.cluster import binaries, steps

FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
SOCKET = Path("/var/run/docker.sock")
EMPTY_FOLDERS = [Path("/run") / name for name in ("docker/plugins", "docker", "containerd/s", "containerd")]
CAP_SYS_RESOURCE = 24
BRIDGE = r"(?:docker0|br-[0-9a-f]{12})"
PROBE_SECONDS = 10


def answers() -> bool:
    """Whether any engine, ours or not, takes commands."""
    return steps.succeeds(["docker", "info"], seconds=PROBE_SECONDS)


def is_ours() -> bool:
    """Whether the engine is one that an earlier `up` started."""
    try:
        return _is_daemon(int(_pid_file().read_text()))
    except (OSError, ValueError):
        return False


def start() -> None:
    """Returns with an engine that answers."""
    if answers():
        return
    if not _may_install():
        raise steps.StepError("no container engine answers (`docker info`), and only root on Debian can start one here")
    ensure_programs({"dockerd": "docker.io", "docker": "docker.io", "iptables": "iptables", "ip": "iproute2"})
    if not answers():
        with steps.step("start a container engine"):
            _start_daemon()


def ensure_programs(packages: dict[str, str]) -> None:
    """Installs the Debian packages of those programs that are missing."""
    missing = sorted({package for program, package in packages.items() if shutil.which(program) is None})
    if not missing:
        return
    if not _may_install():
        raise steps.StepError(f"please install {' '.join(missing)}")
    with steps.step(f"install {' '.join(missing)}"):
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        log = binaries.cache_root() / "log" / "apt.log"
        steps.run(["apt-get", "update", "-q"], log=log, env=quiet)
        steps.run(["apt-get", "install", "-y", "-q", "--no-install-recommends", *missing], log=log, env=quiet)


def stop() -> None:
    """Stops our engine; one that was there before us is left alone."""
    if is_ours():
        with steps.step("stop the container engine"):
            pid = int(_pid_file().read_text())
            os.kill(pid, signal.SIGTERM)
            steps.wait_for("the container engine to end", lambda: not _is_daemon(pid), seconds=60)
            _remove_traces()


def _may_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def _is_daemon(pid: int) -> bool:
    """A number may belong to somebody else by now, or to a process that is dead but not yet buried."""
    try:
        return b"dockerd" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _pid_file() -> Path:
    return binaries.cache_root() / "dockerd.pid"


def _forwarding_before() -> Path:
    return binaries.cache_root() / "ip_forward.before"


def _start_daemon() -> None:
    root = binaries.cache_root()
    (root / "log").mkdir(parents=True, exist_ok=True)
    _forwarding_before().write_text(FORWARDING.read_text())
    # a daemon that turns forwarding on by itself also drops everything else that is forwarded
    FORWARDING.write_text("1\n")
    command: list[str | Path] = [
        *("dockerd", "--data-root", root / "docker", "--exec-root", root / "docker-exec"),
        *("--pidfile", _pid_file(), "--storage-driver", "overlay2", "--exec-opt", "native.cgroupdriver=cgroupfs"),
        *_runtime_flags(root),
    ]
    with (root / "log" / "dockerd.log").open("w") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    steps.wait_for(f"dockerd ({log.name})", lambda: answers() or process.poll() is not None, seconds=60)
    if process.poll() is not None:
        raise steps.StepError(f"dockerd ended with {process.returncode}:\n{Path(log.name).read_text()[-2000:]}")
    process.returncode = 0  # it outlives this process on purpose
    _reject_way_out()


def _runtime_flags(root: Path) -> list[str]:
    """Where the kernel grants no CAP_SYS_RESOURCE, `--privileged` asks for one capability too many."""
    bounding = re.search(r"^CapBnd:\s*([0-9a-f]+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    if bounding is None or int(bounding.group(1), 16) >> CAP_SYS_RESOURCE & 1:
        return []
    wrapper = root / "runc-wrapper"
    source = (Path(__file__).with_name("runc_wrapper.py")).read_text()
    wrapper.write_text(f"#!{os.path.realpath(sys.executable)} -IS\n{source}")
    wrapper.chmod(0o755)
    return ["--add-runtime", f"wrapped={wrapper}", "--default-runtime", "wrapped"]


def _reject_way_out() -> None:
    """A Service address that no kube-proxy has programmed yet would follow the default route."""
    route = re.search(r" dev (\S+)", steps.run(["ip", "-o", "route", "show", "default"]))
    if route is not None:
        steps.run(["iptables", "-I", "DOCKER-USER", "-o", route.group(1), "-j", "REJECT"])


def _remove_traces() -> None:
    for line in steps.run(["ip", "-br", "link"]).splitlines():
        if re.match(BRIDGE + r"\b", line):
            steps.run(["ip", "link", "del", line.split()[0]])
    for program in ("iptables", "ip6tables"):
        for table in ("filter", "nat", "raw"):
            _remove_rules([program, "-t", table])
    for controller in Path("/sys/fs/cgroup").glob("*/docker"):
        with contextlib.suppress(OSError):
            controller.rmdir()
    SOCKET.unlink(missing_ok=True)
    for folder in EMPTY_FOLDERS:
        with contextlib.suppress(OSError):
            folder.rmdir()
    shutil.rmtree(binaries.cache_root() / "docker-exec", ignore_errors=True)
    if _forwarding_before().exists():
        FORWARDING.write_text(_forwarding_before().read_text())
        _forwarding_before().unlink()


def _remove_rules(command: list[str]) -> None:
    """First the jumps, then the rules of the daemon's chains, then the chains."""
    if not steps.succeeds([*command, "-S"]):
        return  # a kernel without this table
    rules = steps.run([*command, "-S"]).splitlines()
    for rule in _own_rules(rules):
        steps.run([*command, "-D", *shlex.split(rule)[1:]])
    chains = [rule.split()[1] for rule in rules if re.match(r"-N DOCKER", rule)]
    for action in ("-F", "-X"):
        for chain in chains:
            steps.run([*command, action, chain])


def _own_rules(rules: list[str]) -> Iterator[str]:
    for rule in rules:
        if re.match(r"-A (?:FORWARD|PREROUTING|OUTPUT|POSTROUTING) ", rule) and re.search(rf"{BRIDGE}|DOCKER", rule):
            yield rule
