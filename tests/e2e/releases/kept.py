"""What the last release shipped. It is kept in the tree, as a checkout may have neither tags nor history."""

from __future__ import annotations

from pathlib import Path

VERSION = "0.1.0"
FOLDER = Path(__file__).parent / VERSION
CHART = FOLDER / f"clockhand-{VERSION}.tgz"
WHEEL = FOLDER / f"clockhand-{VERSION}-py3-none-any.whl"
LOCKS = ("requirements.lock", "operator/requirements-build.lock")
