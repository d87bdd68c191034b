"""`python -m clockhand` and the `clockhand` command."""

from __future__ import annotations

from clockhand import cli


def main() -> None:
    """Runs the command line."""
    cli.clockhand()


if __name__ == "__main__":
    main()
