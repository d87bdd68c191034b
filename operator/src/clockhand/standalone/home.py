"""The data directory: all that an installation without a cluster has, for its owner's eyes alone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from clockhand import errors
from clockhand.client import config
from clockhand.standalone.nodes import leftovers

_EPHEMERAL = "clockhand-dev-"
_LOCK = "lock"


@dataclass(frozen=True, slots=True)
class Home:
    """A data directory and what lies where in it."""

    root: Path
    durable: bool = True
    """False where it goes at the end: then nothing needs to survive a power cut."""

    def path(self, name: str) -> Path:
        """Something in it."""
        return self.root / name

    def text(self, name: str, make: Callable[[], str]) -> str:
        """What the file `name` says; made where it is missing."""
        return text_of(self.path(name), make)


def default(environment: Mapping[str, str]) -> Path:
    """Where the data lie unless somebody says otherwise: where clients look for their settings."""
    return config.told_in(environment).parent


@contextlib.contextmanager
def kept(root: Path) -> Iterator[Home]:
    """A data directory that stays, made where it is missing. Raises Conflict where another process has it."""
    root = root.absolute()
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise errors.InvalidInput("--data-dir", f"{root} cannot be made: {error.strerror}") from error
    with _locked(root):
        yield Home(root)


@contextlib.contextmanager
def ephemeral() -> Iterator[Home]:
    """A data directory that goes at the end; those of processes that were killed go now."""
    for left in Path(tempfile.gettempdir()).glob(f"{_EPHEMERAL}*"):
        _clear_away(left)
    with tempfile.TemporaryDirectory(prefix=_EPHEMERAL, ignore_cleanup_errors=True) as folder, _locked(Path(folder)):
        yield Home(Path(folder), durable=False)


def text_of(path: Path, make: Callable[[], str]) -> str:
    """What a file says; made, to be read by its owner alone, where it is missing or empty."""
    try:
        found = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        found = ""
    except (OSError, UnicodeDecodeError) as error:
        raise errors.InvalidInput("", f"{path} cannot be read: {error}") from error
    if found:
        return found
    made = make()
    write(path, f"{made}\n")
    return made


def write(path: Path, text: str) -> None:
    """Writes a file for its owner alone; whoever reads it finds the old text or the new one, whole."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise errors.InvalidInput("", f"{path} cannot be written: {error.strerror}") from error


def _clear_away(left: Path) -> None:
    """Removes a data directory that nobody has any more, and ends what its pods had started.

    Whoever begins one holds its lock, or has made none yet.
    """
    with contextlib.suppress(OSError, errors.Conflict):
        about = left.lstat()
        # in a folder of somebody else's the lock may be a link to whatever is not theirs to write
        if stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and (left / _LOCK).exists():
            with _locked(left):
                leftovers.kill(left)
                shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Nobody else has `root` for the length of the block."""
    try:
        file = (root / _LOCK).open("a+", encoding="utf-8")
    except OSError as error:
        raise errors.InvalidInput("--data-dir", f"{root} cannot be written to: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise errors.Conflict(
                f"{root} is in use by another `clockhand dev` (process {file.read().strip() or 'unknown'}): "
                "stop that one, or choose another --data-dir"
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
