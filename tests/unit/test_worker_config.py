"""A worker's settings: every mistake in them is told at the same time."""

from __future__ import annotations

import pytest

from clockhand import errors
from clockhand.worker import config, worker

ENOUGH = {"CLOCKHAND_POOL": "team-a/mailers", "CLOCKHAND_TOKEN": "secret"}


def test_pool_and_credential_are_enough() -> None:
    settings = config.from_environment(ENOUGH)
    assert (settings.pool, settings.token, settings.concurrency) == ("team-a/mailers", "secret", 10)
    assert settings.worker_name != config.from_environment(ENOUGH).worker_name


def test_every_variable_reaches_its_setting() -> None:
    settings = config.from_environment(
        {
            "CLOCKHAND_API_URL": "https://clockhand.example.com/api/",
            "CLOCKHAND_POOL": "acme/jobs",
            "CLOCKHAND_TOKEN_FILE": "/var/run/token",
            "CLOCKHAND_WORKER_NAME": "one",
            "CLOCKHAND_CONCURRENCY": "50",
            "CLOCKHAND_HANDLERS": "mailers.app:worker",
            "CLOCKHAND_EXEC_COMMANDS": "/commands.yaml",
            "CLOCKHAND_HTTP_HOSTS": "/hosts.yaml",
            "CLOCKHAND_HTTP_KEYS": "/keys",
            "CLOCKHAND_GRACE_SECONDS": "12.5",
            "CLOCKHAND_HEALTH_PORT": "0",
            "CLOCKHAND_LOG_FORMAT": "text",
        }
    )
    assert settings == config.Settings(
        api_url="https://clockhand.example.com/api",
        pool="acme/jobs",
        token_file="/var/run/token",
        worker_name="one",
        concurrency=50,
        handlers="mailers.app:worker",
        exec_commands="/commands.yaml",
        http_hosts="/hosts.yaml",
        http_keys="/keys",
        grace_seconds=12.5,
        health_port=0,
        log_format="text",
    )


def test_the_environments_pool_goes_before_the_codes() -> None:
    assert config.from_environment(ENOUGH, pool="team-b/mailers").pool == "team-a/mailers"
    assert config.from_environment({"CLOCKHAND_TOKEN": "x"}, pool="team-b/mailers").pool == "team-b/mailers"


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(errors.InvalidInput) as error:
        config.from_environment(
            {
                "CLOCKHAND_API_URL": "clockhand:8080",
                "CLOCKHAND_POOL": "mailers",
                "CLOCKHAND_CONCURRENCY": "0",
                "CLOCKHAND_HANDLERS": "mailers",
                "CLOCKHAND_WORKER_NAME": "-",
            }
        )
    assert str(error.value) == (
        "CLOCKHAND_API_URL: 'clockhand:8080' is not a URL such as http://clockhand-api:8080; "
        "CLOCKHAND_POOL: 'mailers' is not a pool such as team-a/mailers; "
        "CLOCKHAND_WORKER_NAME: '-' is not a name of letters, digits, dots and dashes; "
        "CLOCKHAND_CONCURRENCY: '0' is not a whole number from 1 to 1000; "
        "CLOCKHAND_HANDLERS: 'mailers' is not a reference such as mailers.app:worker; "
        "CLOCKHAND_TOKEN_FILE: set it or CLOCKHAND_TOKEN, and not both"
    )


def test_what_is_missing_is_named() -> None:
    with pytest.raises(errors.InvalidInput, match=r"^CLOCKHAND_POOL: missing; .*; CLOCKHAND_TOKEN_FILE: set it or"):
        config.from_environment({})


@pytest.mark.parametrize(
    ("code", "fits"),
    [(None, True), ("mailers", True), ("team-a/mailers", True), ("reports", False), ("b/mailers", False)],
)
def test_code_says_which_pool_it_is_for(code: str | None, fits: bool) -> None:
    assert worker.fits("team-a/mailers", code) is fits


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("no_such_module:worker", "No module named 'no_such_module'; its folder belongs in PYTHONPATH"),
        ("json:loads", "json:loads is no Worker of clockhand.worker"),
        ("json:worker", "json:worker is no Worker"),
    ],
)
def test_handlers_that_are_not_there_are_said_so(reference: str, says: str) -> None:
    with pytest.raises(errors.InvalidInput, match=says):
        worker.load(reference)


async def coroutine(run: object) -> None: ...


def function(run: object) -> None: ...


def test_what_cannot_be_a_handler_is_refused_where_it_is_written() -> None:
    made = worker.Worker()
    made.handler("a")(coroutine)
    with pytest.raises(errors.InvalidInput, match="a: has a handler already"):
        made.handler("a")(function)
    with pytest.raises(errors.InvalidInput, match="b: a coroutine function runs on the event loop"):
        made.handler("b", processes=True)(coroutine)
    with pytest.raises(errors.InvalidInput, match="c: processes=True needs a function of a module"):
        made.handler("c", processes=True)(lambda run: None)
    assert made.handler("d", processes=True)(function) is function
