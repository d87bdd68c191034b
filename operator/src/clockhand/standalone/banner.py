"""What a person reads once everything is ready: where things are, and what to try."""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

_JOB = '{"name": "hello", "every": "10s", "handler": "echo", "payload": {"hello": "world"}}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What there is to be told."""

    url: str
    health: str
    data: Path
    token_file: Path
    kubeconfig: Path
    stays: bool
    """Whether the data are there at the next start."""
    is_default: bool
    """Whether clients find their settings by themselves."""


def text(shown: Shown) -> str:
    """A dozen lines."""
    token_file, kubeconfig = shlex.quote(str(shown.token_file)), shlex.quote(str(shown.kubeconfig))
    settings = "" if shown.is_default else f"CLOCKHAND_API_URL={shown.url} CLOCKHAND_TOKEN_FILE={token_file} "
    return f"""
Clockhand is ready. Ctrl-C ends it; {f"all jobs and runs stay in {shown.data}" if shown.stays else "nothing of it stays"}.

  REST        {shown.url}/v1, described at {shown.url}/docs
  token       {shown.token_file}
  kubeconfig  {shown.kubeconfig}
  health      {shown.health}/readyz, {shown.health}/metrics

Three things to try, in another terminal:

  curl -H "Authorization: Bearer $(cat {token_file})" -H 'Content-Type: application/json' \\
    -d '{_JOB}' {shown.url}/v1/jobs
  {settings}{_program("clockhand")} runs watch
  {_program("kubectl")} --kubeconfig {kubeconfig} apply -f examples/hello.yaml

"""


def _program(name: str) -> str:
    """How to call it from a shell: where it is not in the path, it may be beside this interpreter."""
    beside = Path(sys.executable).with_name(name)
    return shlex.quote(str(beside)) if shutil.which(name) is None and beside.exists() else name
