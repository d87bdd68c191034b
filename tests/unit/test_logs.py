"""What no line of a log may hold, and how lines name a run."""

from __future__ import annotations

import uuid

from clockhand import logs


def test_secrets_are_hidden_by_the_names_of_their_fields() -> None:
    line = {
        "event": "told",
        "token": "t",
        "Authorization": "Bearer t",
        "password_file": "p",
        "payload": {"to": "x"},
        "database_url": "postgresql://localhost/x",
        "tokens": 3,
        "job": "nightly",
    }
    hidden = logs.hide_secrets(None, "info", line)
    assert hidden == {
        "event": "told",
        **dict.fromkeys(("token", "Authorization", "password_file", "payload", "database_url"), "(hidden)"),
        "tokens": 3,
        "job": "nightly",
    }


def test_passwords_in_addresses_are_hidden() -> None:
    line = {"event": "failed", "error": "cannot reach postgresql://clockhand:hunter2@db:5432/x nor http://db/y"}
    hidden = logs.hide_secrets(None, "info", line)
    assert hidden["error"] == "cannot reach postgresql://clockhand:(hidden)@db:5432/x nor http://db/y"


def test_a_line_says_what_is_known_of_its_run() -> None:
    run = uuid.UUID(int=1)
    assert logs.of_run(run) == {"run_id": str(run)}
    assert logs.of_run(run, name="a-1", job="a", owner="k8s/b", attempt=2) == {
        "run_id": str(run),
        "run": "a-1",
        "job": "a",
        "owner": "k8s/b",
        "attempt": 2,
    }
