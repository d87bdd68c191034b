"""The commands that pages and helps show exist, with the options that they are shown with."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

import click
import pytest
from click import testing
from tests.support import generated

from clockhand import cli
from clockhand.commands import oneline

PAGES = sorted([*generated.ROOT.glob("*.md"), *generated.ROOT.glob("docs/*.md")])
_COMMAND = re.compile(r"(?:^|\| |-- |^\s+)(?:[.]venv/bin/)?clockhand (?P<words>[a-z][^\n|>`]*)", re.MULTILINE)
_BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)


def shown() -> Iterator[str]:
    """Every command line in the blocks of pages, and in the examples of commands."""
    for page in PAGES:
        for block in _BLOCK.findall(page.read_text(encoding="utf-8").replace("\\\n", " ")):
            yield from lines(block)
    for command in commands(cli.clockhand):
        yield from lines(command.epilog or "")


def commands(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        for one in command.commands.values():
            yield from commands(one)


def lines(text: str) -> Iterator[str]:
    for found in _COMMAND.finditer(text):
        yield found["words"].strip()


@pytest.mark.parametrize("line", sorted(set(shown())))
def test_it_can_be_called_so(line: str) -> None:
    words = shlex.split(line, comments=True)
    check(cli.clockhand, words)


def check(command: click.Command, words: Sequence[str], parent: click.Context | None = None) -> None:
    with command.make_context(command.name, list(words), parent=parent) as context:
        if isinstance(command, click.Group):
            name, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
            assert name is not None
            assert found is not None
            check(found, rest, context)


def test_every_command_for_people_has_examples_of_its_own() -> None:
    for name in ("jobs", "runs", "apply", "audit", "completion"):
        assert f"clockhand {name}" in (cli.clockhand.commands[name].epilog or "")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("jbos", "No such command 'jbos'. Did you mean 'jobs'? See `clockhand --help`."),
        ("--verbose", "No such option '--verbose'. Did you mean '--version'? See `clockhand --help`."),
        ("runs lst", "No such command 'lst'. Did you mean 'list'? See `clockhand runs --help`."),
        ("runs --all", "No such option '--all'. See `clockhand runs --help`."),
        ("runs get", "Missing argument 'RUN'. See `clockhand runs get --help`."),
        ("tokens create", "Missing option '--owner'. See `clockhand tokens create --help`."),
        ("migrate now", "Got unexpected extra argument (now). See `clockhand migrate --help`."),
        ("doctor --only", "Option '--only' requires an argument. See `clockhand doctor --help`."),
        ("preview", "Missing argument 'EXPR'. See `clockhand preview --help`."),
        (
            "dev --ephemeral --data-dir here",
            "--ephemeral keeps nothing, and --data-dir names where to keep it: give one of them",
        ),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(line: str, said: str) -> None:
    result = testing.CliRunner().invoke(cli.clockhand, line.split(), prog_name="clockhand")
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"clockhand: {said}\n")


def test_every_command_fails_so() -> None:
    assert all(isinstance(one, (oneline.Command, oneline.Group)) for one in commands(cli.clockhand))


@pytest.mark.parametrize("line", ["", "jobs", "tokens"])
def test_a_group_alone_shows_its_help(line: str) -> None:
    result = testing.CliRunner().invoke(cli.clockhand, line.split(), prog_name="clockhand")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Usage: {' '.join(['clockhand', *line.split()])} [OPTIONS] COMMAND")
