"""Where Kafka is and how one is let in: the same for who publishes runs and for who takes them.

The variables mean the same in every process, and so do their mistakes.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from clockhand import errors
from clockhand.environment import Reader, one_of, variable

_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")


class Brokers(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is told of Kafka, among its settings."""

    kafka: str | None = None
    """Kafka brokers as host:port, separated by commas, for pools with dispatch: Kafka."""
    kafka_security_protocol: str = "PLAINTEXT"
    """How the brokers are spoken to, by Kafka's own names."""
    kafka_ca: str | None = None
    """The file of the authorities (PEM) that the brokers' certificates are checked against; None: those of the system."""
    kafka_sasl_mechanism: str = "PLAIN"
    """How the user name and the password are shown to the brokers."""
    kafka_username: str | None = None
    """The user, with a security protocol that begins with SASL."""
    kafka_password_file: str | None = None
    """The file of the user's password, read again for each new connection. Never logged."""


def mistakes(values: Mapping[str, object]) -> list[str]:
    """What does not go together, a sentence each; `values` are those that were set."""
    found = []
    if ("kafka_username" in values) != ("kafka_password_file" in values):
        found.append(f"{variable('kafka_username')}: needs {variable('kafka_password_file')} beside it, and vice versa")
    protocol = str(values.get("kafka_security_protocol", "PLAINTEXT"))
    if protocol.startswith("SASL") != ("kafka_username" in values):
        found.append(f"{variable('kafka_security_protocol')}: a user name goes with SASL_SSL or SASL_PLAINTEXT alone")
    if "kafka_ca" in values and not protocol.endswith("SSL"):
        found.append(f"{variable('kafka_ca')}: goes with SSL or SASL_SSL alone")
    return found


def options(brokers: Brokers) -> dict[str, Any]:
    """What a client of aiokafka is made with. The files are read each time: a password that was replaced is found."""
    chosen: dict[str, Any] = {
        "bootstrap_servers": brokers.kafka,
        "security_protocol": brokers.kafka_security_protocol,
    }
    try:
        if brokers.kafka_security_protocol.endswith("SSL"):
            chosen["ssl_context"] = ssl.create_default_context(cafile=brokers.kafka_ca)
        if brokers.kafka_password_file is not None:
            chosen["sasl_mechanism"] = brokers.kafka_sasl_mechanism
            chosen["sasl_plain_username"] = brokers.kafka_username
            chosen["sasl_plain_password"] = Path(brokers.kafka_password_file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise errors.Unavailable(f"a file of the settings for Kafka cannot be read: {error}") from error
    return chosen


def _servers(text: str) -> str:
    for server in text.split(","):
        if not _SERVER.fullmatch(server.strip()):
            raise ValueError(f"{server.strip()!r} is not a broker such as kafka:9092")
    return ",".join(server.strip() for server in text.split(","))


READERS: Mapping[str, Reader] = {
    "kafka": _servers,
    "kafka_security_protocol": one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "kafka_ca": str,
    "kafka_sasl_mechanism": one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    "kafka_username": str,
    "kafka_password_file": str,
}
"""Of the variables about Kafka."""
