"""Where the API is, and who asks: named by the caller, else by the environment, else by what `clockhand dev` left."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from clockhand import errors
from clockhand.environment import Reader, read, url, variable


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a client is told from outside."""

    api_url: str
    """The API, such as http://127.0.0.1:8080."""
    token_file: str | None = None
    """The file of the token, read again every few seconds."""
    token: str | None = None
    """The token itself, where there is no file. Never logged."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What `clockhand dev` writes for clients on its machine, in its data directory."""

    url: str
    token_file: str


def told_in(environment: Mapping[str, str]) -> Path:
    """The file of `Told` in the data directory that `clockhand dev` has by default."""
    home = environment.get("XDG_DATA_HOME") or str(Path(environment.get("HOME") or Path.home()) / ".local/share")
    return Path(home) / "clockhand" / "client.json"


def find(
    environment: Mapping[str, str],
    *,
    api_url: str | None = None,
    token: str | None = None,
    token_file: str | None = None,
) -> Settings:
    """The settings; raises InvalidInput with every mistake. A token that goes with another API is sent to no other."""
    names = {"api_url": api_url, "token": token, "token_file": token_file}
    told = {variable(name): text for name, text in names.items() if text is not None}
    if token is not None or token_file is not None:
        environment = {name: text for name, text in environment.items() if name not in _TOKENS}
    values, mistakes = read({**environment, **told}, _READERS)
    if mistakes:
        raise errors.InvalidInput("", "; ".join(mistakes))
    dev = None if "api_url" in values and _has_token(values) else _told(told_in(environment))
    if dev is not None and values.setdefault("api_url", dev.url) == dev.url and not _has_token(values):
        values["token_file"] = dev.token_file
    if missing := _missing(values):
        raise errors.InvalidInput("", missing)
    return Settings(**values)


def _has_token(values: Mapping[str, object]) -> bool:
    return "token" in values or "token_file" in values


def _missing(values: Mapping[str, object]) -> str | None:
    if "api_url" not in values:
        return f"{variable('api_url')}: missing; name the API, such as http://127.0.0.1:8080, or start `clockhand dev`"
    if ("token" in values) == ("token_file" in values):
        return f"{variable('token_file')}: name the file of your token, or set {variable('token')}, and not both"
    return None


def _told(path: Path) -> Told | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Told)
    except OSError:
        return None
    except msgspec.DecodeError as error:
        raise errors.InvalidInput("", f"{path}: cannot be read: {error}") from None


_READERS: Mapping[str, Reader] = {"api_url": url, "token_file": str, "token": str}
_TOKENS = frozenset({variable("token"), variable("token_file")})
