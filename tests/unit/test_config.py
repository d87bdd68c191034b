"""Settings come from the environment once, and every mistake in it is told at the same time."""

from __future__ import annotations

import pathlib

import pytest

from clockhand import brokers, config, errors

URL = {"CLOCKHAND_DATABASE_URL": "postgresql://host/clockhand"}


def test_one_variable_is_enough() -> None:
    settings = config.from_environment(URL)
    assert settings.database_url == URL["CLOCKHAND_DATABASE_URL"]
    assert settings.shard_lease == 10
    assert settings.namespaces == ()
    assert settings.database_session_options is True


def test_every_variable_reaches_its_setting() -> None:
    settings = config.from_environment(
        {
            **URL,
            "CLOCKHAND_DATABASE_POOL": "20",
            "CLOCKHAND_DATABASE_SESSION_OPTIONS": "false",
            "CLOCKHAND_REPLICA": "one",
            "CLOCKHAND_NAMESPACES": " team-b, team-a,,team-b ",
            "CLOCKHAND_KUBECONFIG": "/etc/kubeconfig",
            "CLOCKHAND_SHARD_LEASE": "2.5",
            "CLOCKHAND_POD_LAUNCHES": "7",
            "CLOCKHAND_RETENTION_DAYS": "90",
            "CLOCKHAND_HEALTH_PORT": "0",
            "CLOCKHAND_RUNS_PORT": "8443",
            "CLOCKHAND_RUNS_SERVICE": "runs",
            "CLOCKHAND_OWN_NAMESPACE": "system",
            "CLOCKHAND_LOG_FORMAT": "text",
        }
    )
    assert settings == config.Settings(
        database_url=URL["CLOCKHAND_DATABASE_URL"],
        database_pool=20,
        database_session_options=False,
        replica="one",
        namespaces=("team-a", "team-b"),
        kubeconfig="/etc/kubeconfig",
        shard_lease=2.5,
        pod_launches=7,
        retention_days=90,
        health_port=0,
        runs_port=8443,
        runs_service="runs",
        own_namespace="system",
        log_format="text",
    )


def test_an_empty_variable_is_as_none() -> None:
    assert config.from_environment({**URL, "CLOCKHAND_SHARD_LEASE": ""}).shard_lease == 10


def test_a_restarted_process_is_another_replica() -> None:
    assert config.from_environment(URL).replica != config.from_environment(URL).replica


def test_all_mistakes_are_told_at_once() -> None:
    wrong = {
        "CLOCKHAND_DATABASE_POOL": "many",
        "CLOCKHAND_DATABASE_SESSION_OPTIONS": "yes",
        "CLOCKHAND_SHARD_LEASE": "nan",
        "CLOCKHAND_POD_LAUNCHES": "0",
        "CLOCKHAND_RETENTION_DAYS": "-1",
        "CLOCKHAND_HEALTH_PORT": "65536",
        "CLOCKHAND_RUNS_PORT": "\u0663",
        "CLOCKHAND_LOG_FORMAT": "xml",
    }
    with pytest.raises(errors.InvalidInput) as caught:
        config.from_environment(wrong)
    told = str(caught.value)
    for variable in (*wrong, "CLOCKHAND_DATABASE_URL"):
        assert told.count(f"{variable}: ") == 1, variable


@pytest.mark.parametrize("lease", ["1.9", "121", "inf", "-inf", "nan", "ten", "1e400"])
def test_a_lease_has_bounds(lease: str) -> None:
    with pytest.raises(errors.InvalidInput, match="CLOCKHAND_SHARD_LEASE"):
        config.from_environment({**URL, "CLOCKHAND_SHARD_LEASE": lease})


def test_a_mistake_never_repeats_the_password() -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        config.from_environment(
            {"CLOCKHAND_DATABASE_URL": "postgresql://me:hunter2@host/db", "CLOCKHAND_DATABASE_POOL": "x"}
        )
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"KAFKA": "kafka"}, "CLOCKHAND_KAFKA: 'kafka' is not a broker such as kafka:9092"),
        ({"KAFKA": "one:9092,two"}, "CLOCKHAND_KAFKA: 'two' is not a broker such as kafka:9092"),
        ({"KAFKA_SECURITY_PROTOCOL": "TLS"}, "CLOCKHAND_KAFKA_SECURITY_PROTOCOL: 'TLS' is none of PLAINTEXT, SSL"),
        ({"KAFKA_SECURITY_PROTOCOL": "SASL_SSL"}, "a user name goes with SASL_SSL or SASL_PLAINTEXT alone"),
        (
            {"KAFKA_USERNAME": "me", "KAFKA_SECURITY_PROTOCOL": "SASL_SSL"},
            "needs CLOCKHAND_KAFKA_PASSWORD_FILE beside it",
        ),
        ({"KAFKA_CA": "/ca.crt"}, "CLOCKHAND_KAFKA_CA: goes with SSL or SASL_SSL alone"),
    ],
)
def test_settings_for_kafka_go_together(variables: dict[str, str], sentence: str) -> None:
    with pytest.raises(errors.InvalidInput) as refused:
        config.from_environment({**URL, **{f"CLOCKHAND_{name}": value for name, value in variables.items()}})
    assert sentence in str(refused.value)


def test_brokers_are_named_with_their_ports() -> None:
    settings = config.from_environment({**URL, "CLOCKHAND_KAFKA": "one:9092, [::1]:9093"})
    assert settings.kafka == "one:9092,[::1]:9093"
    assert brokers.options(settings) == {"bootstrap_servers": settings.kafka, "security_protocol": "PLAINTEXT"}


def test_the_password_is_read_anew_each_time(tmp_path: pathlib.Path) -> None:
    secret = tmp_path / "password"
    settings = config.from_environment(
        {
            **URL,
            "CLOCKHAND_KAFKA": "one:9092",
            "CLOCKHAND_KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
            "CLOCKHAND_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
            "CLOCKHAND_KAFKA_USERNAME": "me",
            "CLOCKHAND_KAFKA_PASSWORD_FILE": str(secret),
        }
    )
    with pytest.raises(errors.Unavailable, match="cannot be read"):
        brokers.options(settings)
    for password in ("old", "new"):
        secret.write_text(f"{password}\n")
        assert brokers.options(settings)["sasl_plain_password"] == password
