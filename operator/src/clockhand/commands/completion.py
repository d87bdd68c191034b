"""`clockhand completion`: what a shell needs in order to complete commands, options and the names of jobs."""

from __future__ import annotations

import click
from click import shell_completion

from clockhand.commands import oneline

_EXAMPLES = """
\b
Examples:
  source <(clockhand completion bash)                                # in this shell
  clockhand completion bash > ~/.local/share/bash-completion/completions/clockhand
  clockhand completion zsh > "${fpath[1]}/_clockhand"
  clockhand completion fish > ~/.config/fish/completions/clockhand.fish
"""


@click.command(cls=oneline.Command, epilog=_EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion for a shell."""
    made = shell_completion.get_completion_class(shell)
    assert made is not None
    root = context.find_root()
    oneline.write(made(root.command, {}, "clockhand", "_CLOCKHAND_COMPLETE").source())
