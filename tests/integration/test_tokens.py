"""`clockhand tokens` on a real database: made once, kept as a hash, listed without the secret, ended for good."""

from __future__ import annotations

import hashlib
import json
import uuid
from datetime import datetime
from typing import Any

import click.testing
import psycopg
import pytest

from clockhand import cli, config
from clockhand.domain import tokens

NAMED = ("--owner", "k8s/team-a", "--role", "worker", "--pool", "mailers", "--name", "mail host")


class CommandLine:
    """`clockhand tokens` with the settings of one database."""

    def __init__(self, url: str) -> None:
        self._environment = {config.variable("database_url"): url}

    def __call__(self, *arguments: str, code: int = 0) -> click.testing.Result:
        result = click.testing.CliRunner().invoke(cli.clockhand, ["tokens", *arguments], env=self._environment)
        assert result.exit_code == code, result.output
        return result

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json").stdout)


@pytest.fixture
def command(database_url: str) -> CommandLine:
    return CommandLine(database_url)


def test_the_secret_is_all_that_stdout_gets_and_only_its_hash_is_kept(command: CommandLine, database_url: str) -> None:
    made = command("create", *NAMED)
    secret = made.stdout.removesuffix("\n")
    assert secret.startswith(tokens.PREFIX)
    assert len(secret) == len(tokens.PREFIX) + 43
    assert "k8s/team-a/mailers" in made.stderr
    with psycopg.connect(database_url) as connection:
        [row] = connection.execute("SELECT t::text, hash FROM tokens t").fetchall()
        [audited] = connection.execute("SELECT a::text FROM audit a").fetchall()
    assert row[1] == hashlib.sha256(secret.encode()).digest()
    assert secret not in row[0]
    assert secret not in audited[0]
    assert "token-create" in audited[0]
    assert secret not in command("list").output


def test_each_secret_is_another_one(command: CommandLine) -> None:
    assert len({command("create", *NAMED).stdout for _ in range(3)}) == 3


def test_json_says_all_of_a_new_one(command: CommandLine) -> None:
    made = command.json("create", *NAMED, "--expires-in", "1d12h")
    lasts = datetime.fromisoformat(made["expiresAt"]) - datetime.fromisoformat(made["createdAt"])
    assert (lasts.days, lasts.seconds) == (1, 12 * 3600)
    assert made["token"].startswith(tokens.PREFIX)
    assert (made["owner"], made["pool"], made["role"]) == ("k8s/team-a", "k8s/team-a/mailers", "worker")


def test_a_list_is_of_one_owner_or_of_all(command: CommandLine) -> None:
    command("create", *NAMED)
    command("create", "--owner", "rest/acme", "--role", "worker", "--pool", "jobs", "--name", "laptop")
    assert [one["owner"] for one in command.json("list")] == ["k8s/team-a", "rest/acme"]
    [one] = command.json("list", "--owner", "rest/acme")
    assert (one["name"], one["standing"], one["expiresAt"]) == ("laptop", "active", None)
    lines = command("list").stdout.splitlines()
    assert lines[0].split() == ["ID", "OWNER", "POOL", "ROLE", "NAME", "CREATED", "EXPIRES", "STANDING"]
    assert "mailers" in lines[1]
    assert lines[1].endswith("active")


@pytest.mark.parametrize("role", ["viewer", "editor"])
def test_tokens_for_rest_are_good_for_all_of_an_owner_and_for_no_pool(command: CommandLine, role: str) -> None:
    asked = ("--owner", "rest/acme", "--role", role, "--name", "laptop")
    made = command.json("create", *asked)
    assert (made["owner"], made["pool"], made["role"]) == ("rest/acme", None, role)
    assert f"for rest/acme, as {role}" in command("create", *asked).stderr
    assert f"pool: is for workers: leave it out for a token of the role {role}" in (
        command("create", *asked, "--pool", "jobs", code=2).stderr
    )


def test_a_token_for_a_worker_names_its_pool(command: CommandLine) -> None:
    said = command("create", "--owner", "rest/acme", "--role", "worker", "--name", "laptop", code=2).stderr
    assert "pool: is missing" in said


def test_revoking_twice_is_revoking_once(command: CommandLine, database_url: str) -> None:
    made = command.json("create", *NAMED)
    for _ in range(2):
        [ended] = command.json("revoke", made["id"])
        assert ended["standing"] == "revoked"
    with psycopg.connect(database_url) as connection:
        rows = connection.execute("SELECT action FROM audit ORDER BY audit_id").fetchall()
    assert [row[0] for row in rows] == ["token-create", "token-revoke"]


def test_what_is_not_there_cannot_be_revoked(command: CommandLine) -> None:
    assert "there is no token" in command("revoke", str(uuid.UUID(int=1)), code=1).stderr


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--owner", "team-a", "owner: is none: write k8s/NAMESPACE or rest/TENANT"),
        ("--owner", "k8s/Team", "owner: "),
        ("--owner", "k8s/a/b", "owner: "),
        ("--owner", "rest/acme\n", "owner: "),
        ("--pool", "a/b", "pool: is no name"),
        ("--pool", "", "pool: is no name"),
        ("--name", "", "name: is none"),
        ("--name", "a\x00b", "name: is none"),
        ("--name", "n" * 101, "name: is none"),
        ("--expires-in", "soon", "expires-in: is none: write whole days"),
        ("--expires-in", "0s", "expires-in: "),
        ("--expires-in", "9999d", "expires-in: "),
    ],
)
def test_what_is_wrong_is_named(command: CommandLine, option: str, value: str, said: str) -> None:
    assert said in command("create", *NAMED, option, value, code=2).stderr
    assert command.json("list") == []


@pytest.mark.parametrize("arguments", [(), ("create",), ("list",), ("revoke",)])
def test_help_has_examples(arguments: tuple[str, ...]) -> None:
    result = click.testing.CliRunner().invoke(cli.clockhand, ["tokens", *arguments, "--help"])
    assert "clockhand tokens create --owner" in result.output
