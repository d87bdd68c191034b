"""The way to the Kubernetes API on loopback: an authority of our own, a certificate by it, and files for kubectl."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from clockhand import errors
from clockhand.api.runs import certificates
from clockhand.standalone import home as homes

NAME = "clockhand-dev"
_HOSTS = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files in PEM: what is served, and the authority that vouches for it."""

    certificate: Path
    key: Path
    authority: Path


def certificate(home: homes.Home, now: datetime) -> Certificate:
    """A certificate for loopback, kept until it is about to expire."""
    files = Certificate(home.path("tls.crt"), home.path("tls.key"), home.path("ca.crt"))
    authority_key = home.path("ca.key")
    known = certificates.Serving(_bytes(files.certificate), _bytes(files.key), _bytes(files.authority))
    if not certificates.is_good(known, _HOSTS, now):
        fresh, key = certificates.issue(_HOSTS, now, ca=known.ca, ca_key=_bytes(authority_key))
        # by this order half of them are no good together, and are made anew
        written = (authority_key, key), (files.authority, fresh.ca), (files.key, fresh.key)
        for path, text in (*written, (files.certificate, fresh.certificate)):
            homes.write(path, text.decode())
    return files


def write(path: Path, *, port: int, files: Certificate, token: str, whole: bool = True) -> None:
    """A file for kubectl; unless it is to be `whole` it names the file of the authority, which spares its readers a copy.

    One of somebody else's is left alone: it may be all that they have of a cluster.
    """
    if not _is_ours(path):
        raise errors.InvalidInput("--kubeconfig", f"{path} is there, and is not of `clockhand dev`: name another file")
    cluster = {"server": f"https://127.0.0.1:{port}"}
    if whole:
        cluster["certificate-authority-data"] = base64.b64encode(_bytes(files.authority)).decode()
    else:
        cluster["certificate-authority"] = str(files.authority)
    homes.write(path, yaml.safe_dump(_document(cluster, token), sort_keys=False))


def _document(cluster: Mapping[str, str], token: str) -> Mapping[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": cluster}],
        "users": [{"name": NAME, "user": {"token": token}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": "default"}}],
        "current-context": NAME,
    }


def _is_ours(path: Path) -> bool:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return True
    except (OSError, ValueError, yaml.YAMLError):
        return False
    if not isinstance(found, dict):
        return found is None
    return all(_names(found.get(part)) == [NAME] for part in ("clusters", "users", "contexts"))


def _names(entries: object) -> list[object]:
    listed = entries if isinstance(entries, list) else []
    return [entry.get("name") if isinstance(entry, dict) else None for entry in listed]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
