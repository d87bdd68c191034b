"""Bringing a cluster up takes from seconds to half an hour: whoever waits must see what is going on and
what took how long.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

TAIL_LINES = 30


class StepError(Exception):
    """What went wrong, as a sentence (or the end of a log) for the person at the terminal."""


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextlib.contextmanager
def step(what: str) -> Iterator[None]:
    """Names a piece of work before it starts and its duration when it is over."""
    started = time.monotonic()
    say(f"==> {what}")
    try:
        yield
    except BaseException:
        say(f"    failed after {time.monotonic() - started:.1f} s")
        raise
    say(f"    {time.monotonic() - started:.1f} s")


def run(
    command: Sequence[str | Path],
    *,
    log: Path | None = None,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    stdin: IO[bytes] | None = None,
) -> str:
    """Runs a command and returns its standard output; a failure shows the end of what it said."""
    words = [str(part) for part in command]
    done = subprocess.run(
        words,
        cwd=cwd,
        env=env,
        stdin=stdin or subprocess.DEVNULL,
        capture_output=True,
        check=False,
        errors="replace",
    )
    output, errors = done.stdout, done.stderr
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(output + errors)
    if done.returncode != 0:
        tail = "\n".join((output + errors).splitlines()[-TAIL_LINES:])
        raise StepError(f"{' '.join(words[:4])} ... exited with {done.returncode}:\n{tail}")
    return output


def succeeds(command: Sequence[str | Path], *, seconds: float | None = None) -> bool:
    """Whether a command ends well within the given time."""
    try:
        done = subprocess.run(
            [str(part) for part in command],
            capture_output=True,
            check=False,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def wait_for(what: str, condition: Callable[[], bool], *, seconds: float, pause: float = 0.1) -> None:
    """Asks `condition` until it is true; a missed deadline is an error that says what was waited for."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise StepError(f"waited {seconds:.0f} s in vain for {what}")
        time.sleep(pause)
