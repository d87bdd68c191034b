"""Whatever a worker sends is answered with what is wrong about it: nothing gets as far as an error of the server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from tests.support import answers, jobs, workers_api
from tests.support.workers_api import right

from clockhand.domain import protocol
from clockhand.domain.states import RunState as S
from clockhand.store import database

CALLS = ("claim", "heartbeat", "report", "start")
RUN = "019a0000-0000-8000-8000-000000000001"
ODD = ("\0", "\ud800", "\udfff", "a\nb", "é", "\u202e", "😀", "", " ", "'; DROP TABLE jobs; --", "%s", "{}", "x" * 300)
NO_JSON = (
    b"", b"{", b"nul", b"\xff", b'{"worker": "\xff"}', b'{"worker": "\\ud800"}', b'{"worker": NaN}',
    b'{"worker": "w",}', b"\x1f\x8b\x08", b"\0", b'{"worker": "w" x}',
)  # fmt: skip


@pytest.fixture
async def worker(db: database.Database) -> AsyncIterator[workers_api.Caller]:
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
    await workers_api.make_pool(db)
    async with workers_api.served(db) as api:
        yield await api.worker()


def pointers(answer: answers.Answer) -> list[str]:
    assert answer.headers["Content-Type"] == "application/problem+json", answer.text
    return [one["pointer"] for one in answer.json["errors"]]


async def test_what_is_no_json_is_400(worker: workers_api.Caller) -> None:
    for call in CALLS:
        for body in NO_JSON:
            answer = await worker.post(workers_api.path_of(call), body)
            assert (answer.status, answer.json["status"]) == (400, 400), (call, body, answer.text)


async def test_brackets_without_end_are_400(worker: workers_api.Caller) -> None:
    body = b'{"worker": "w", "reports": [{"result": ' + b"[" * 100_000
    assert (await worker.post(workers_api.path_of("report"), body)).status == 400


UNFIT: Sequence[tuple[str, dict[str, Any], str]] = (
    ("claim", {"worker": None}, "/worker"),
    ("claim", {"worker": "a b"}, "/worker"),
    ("claim", {"worker": "a\n"}, "/worker"),
    ("claim", {"worker": "w" * 129}, "/worker"),
    ("claim", {"requestId": "1"}, "/requestId"),
    ("claim", {"handlers": []}, "/handlers"),
    ("claim", {"handlers": ["ok", "not ok"]}, "/handlers/1"),
    ("claim", {"handlers": ["h"] * 257}, "/handlers"),
    ("claim", {"max": 0}, "/max"),
    ("claim", {"max": 1.5}, "/max"),
    ("claim", {"max": 1_001}, "/max"),
    ("claim", {"waitSeconds": -1}, "/waitSeconds"),
    ("claim", {"waitSeconds": 61}, "/waitSeconds"),
    ("claim", {"held": [{"runId": RUN, "token": "1"}, {"runId": RUN}]}, "/held/1/token"),
    ("claim", {"held": [{"runId": RUN, "token": 1}]}, "/held/0/token"),
    ("claim", {"a/b~c": 1}, "/a~1b~0c"),
    ("heartbeat", {"held": [{"runId": RUN, "token": "-1"}]}, "/held/0/token"),
    ("heartbeat", {"held": [{"runId": RUN, "token": "92233720368547758080"}]}, "/held/0/token"),
    ("heartbeat", {"held": [{"runId": "ffffffff-ffff-8fff-8000-000000000001", "token": "1"}]}, "/held/0/runId"),
    ("heartbeat", {"held": [{"runId": RUN, "token": "1"}] * (protocol.MAX_RUNS + 1)}, "/held"),
    ("start", {"held": []}, "/held"),
    ("start", {"held": [{"runId": RUN, "token": "1", "extra": 1}]}, "/held/0/extra"),
    ("report", {"reports": []}, "/reports"),
    ("report", {"reports": {}}, "/reports"),
)


async def test_what_does_not_fit_is_422_and_says_where(worker: workers_api.Caller) -> None:
    for call, fields, pointer in UNFIT:
        answer = await worker.call(call, **fields)
        assert answer.status == 422, (fields, answer.text)
        assert pointers(answer) == [pointer]
        assert pointer in answer.json["detail"]


UNKEPT: Sequence[tuple[dict[str, Any], str]] = (
    ({"outcome": "Done"}, "outcome"),
    ({"outcome": None}, "outcome"),
    ({"seconds": -1}, "seconds"),
    ({"seconds": 10**400}, "seconds"),
    ({"result": "x" * protocol.MAX_RESULT_BYTES}, "result"),
    ({"result": {"deep": "a\0b"}}, "result"),
    ({"result": {"a\0b": 1}}, "result"),
    ({"result": 2**70}, "result"),
    ({"result": json.loads("[" * 100 + "]" * 100)}, "result"),
    ({"failure": {"error": ""}}, "failure/error"),
    ({"failure": {"error": "E" * 257}}, "failure/error"),
    ({"failure": {"exitCode": 256}}, "failure/exitCode"),
    ({"failure": {"retryAfterSeconds": 1e9}}, "failure/retryAfterSeconds"),
    ({"failure": {"error": "E"}}, "failure"),
    ({"outcome": "Failed"}, "result"),
    ({"log": 1}, "log"),
)


async def test_a_report_that_cannot_be_kept_says_which(worker: workers_api.Caller) -> None:
    good = {"runId": RUN, "token": "1", "outcome": "Succeeded", "result": {"fine": "\\u0000"}}
    for report, at in UNKEPT:
        answer = await worker.call("report", reports=[good, {**good, **report}])
        assert answer.status == 422, (report, answer.text)
        [pointer] = pointers(answer)
        assert pointer.startswith(f"/reports/1/{at}")


async def test_texts_that_the_database_cannot_hold_end_a_run_all_the_same(
    worker: workers_api.Caller, db: database.Database
) -> None:
    async with db.transaction() as connection:
        job = await jobs.make_job(connection, jobs.pooled())
        run_id = await jobs.make_run(connection, job, S.CLAIMED)
    failure = {"error": "Odd\u202e", "message": "a\0b" * 5_000, "fatal": True}
    held = {"runId": str(run_id), "token": str(jobs.TOKEN)}
    report = {**held, "outcome": "Failed", "failure": failure, "log": "é\0" * 50_000}
    answer = await worker.call("report", reports=[report])
    assert answer.json["reports"] == [{**held, "accepted": True, "state": "Dead"}]


def odd_values() -> st.SearchStrategy[Any]:
    text = st.one_of(st.sampled_from(ODD), st.text(max_size=20))
    number = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False))
    plain = st.one_of(st.none(), st.booleans(), number, text, st.just(RUN))
    return st.recursive(
        plain,
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(text, inner, max_size=4)),
        max_leaves=8,
    )


@hypothesis.settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(
    call=st.sampled_from(CALLS),
    value=odd_values(),
    place=st.integers(min_value=0, max_value=20),
    cut=st.one_of(st.none(), st.integers(min_value=0, max_value=200)),
)
async def test_odd_values_anywhere_are_never_an_error_of_the_server(
    worker: workers_api.Caller, call: str, value: Any, place: int, cut: int | None
) -> None:
    document = right(call)
    places = list(_places(document))
    holder, key = places[place % len(places)]
    holder[key] = value
    body = json.dumps(document).encode("utf-8", "surrogatepass")
    answer = await worker.post(workers_api.path_of(call), body[:cut])
    assert answer.status in (200, 400, 422), answer.text


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    for key, value in list(document.items() if isinstance(document, dict) else enumerate(document)):
        yield document, key
        if isinstance(value, dict | list):
            yield from _places(value)
