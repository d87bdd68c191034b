"""Files in the data directory that are meant to be edited; each is made once, with an example in it."""

from __future__ import annotations

from collections.abc import Mapping

from clockhand.standalone import home as homes

LIMITS, COMMANDS, HOSTS = "limits.yaml", "commands.yaml", "hosts.yaml"
_EXAMPLES: Mapping[str, str] = {
    LIMITS: """\
# Limits of owners, groups and pools: docs/limits.md. Read again whenever it changes.
pools:
  rest/default/default: {leaseSeconds: 15, heartbeatSeconds: 5}
""",
    COMMANDS: """\
# Commands that jobs with `handler: exec` may run, by name: {"handler": "exec", "payload": {"command": "hello"}}.
# Read at the start of `clockhand dev`.
hello: [sh, -c, 'echo "hello from $CLOCKHAND_RUN_NAME"']
""",
    HOSTS: """\
# What jobs with `handler: http` may call. Read at the start of `clockhand dev`.
hosts: ["https://*", "http://*", "http://localhost:8000", "http://127.0.0.1:8000"]
networks: [127.0.0.0/8, "::1/128"]
""",
}


def make(home: homes.Home) -> None:
    """Makes those that are missing."""
    for name, example in _EXAMPLES.items():
        if not home.path(name).exists():
            homes.write(home.path(name), example)
