"""Whatever somebody sends to REST: it is answered, never by a mistake of ours, and what is refused leaves no row behind."""

from __future__ import annotations

import http.client
import json
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any

import hypothesis
import psycopg
import pytest
from hypothesis import strategies as st
from tests.support import postgres, served_apart

# the loops of the API, which runs in a thread beside, draw random numbers while strategies do
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module")

JOB = {
    "name": "nightly",
    "schedule": "0 2 * * *",
    "timeZone": "Europe/Berlin",
    "handler": "email.send",
    "pool": "mailers",
    "payload": {"to": "you"},
    "labels": {"tier": "gold"},
    "retry": {"maxAttempts": 3, "backoff": {"initialSeconds": 10, "factor": 2}, "rules": [{"onExitCodes": [42]}]},
    "catchUp": {"policy": "Latest", "limit": 100},
    "priority": 0,
}
SPAN = {"from": "2026-11-01T00:00:00Z", "to": "2026-11-02T00:00:00Z", "order": "OldestFirst", "concurrency": 1}
BODIES: Mapping[tuple[str, str], Any] = {
    ("POST", "/v1/jobs"): JOB,
    ("POST", "/v1/jobs:batch"): [JOB, JOB],
    ("PUT", "/v1/jobs/{job}"): JOB,
    ("PATCH", "/v1/jobs/{job}"): JOB,
    ("POST", "/v1/jobs/{job}:run"): {"name": "by-hand", "payload": [1]},
    ("POST", "/v1/jobs/{job}:backfill"): SPAN,
    ("POST", "/v1/jobs/{job}:pause"): {},
    ("POST", "/v1/runs/{run}:cancel"): {},
    ("POST", "/v1/runs/{run}:retry"): {},
    ("POST", "/v1/runs:retry"): {"state": "Dead", "since": SPAN["from"], "limit": 10, "cursor": "AAAA", "dryRun": True},
}
LISTS = ("/v1/jobs", "/v1/runs", "/v1/jobs/{job}/runs", "/v1/jobs/{job}/upcoming", "/v1/runs/{run}/log", "/v1/audit")
NAMES = ("limit", "cursor", "state", "job", "since", "until", "name", "namePrefix", "label", "standing", "namespace")
NASTY = (
    *(
        "",
        " ",
        "\x00",
        "a\x00b",
        "\ud800",
        "\udfff\ud800",
        "\u202e",
        "\U0010ffff",
        "null",
        "NaN",
        "-0",
        "0x10",
        "1e999",
    ),
    *("10000-01-01T00:00:00Z", "9999-12-31T23:59:59-14:00", "0000-00-00T00:00:00Z", "2026-02-30T00:00:00Z"),
    *("2026-01-01T00:00:60Z", "2026-11-30T00:00:00+24:00", "* * * * * *", "@reboot", "TZ=UTC * * * * *", "0 0 31 2 *"),
    *("../../etc/passwd", "'; DROP TABLE jobs; --", "%s%(x)s{0}", "a" * 300, "{}", "k8s/team-a", "٣"),
)
PATHS = ("/v1/jobs/%00", "/v1/runs/%ff", "/v1/jobs/..", "/v1//runs", "/%2e%2e/", "*", "/v1/runs/%zz")
NUMBERS = (0, -1, 1.5, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 1e308, float("nan"), float("inf"), -float("inf"))
_COUNTS = """
SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM job_specs), (SELECT count(*) FROM backfills),
       (SELECT count(*) FROM audit), (SELECT count(*) FROM kept_answers),
       (SELECT count(*) FROM live_runs WHERE kind <> 'Slot'), (SELECT sum(resource_version) FROM jobs)
"""
_BROKEN = """
SELECT (SELECT count(*) FROM jobs j WHERE NOT EXISTS (SELECT FROM job_specs s WHERE s.spec_id = j.spec_id)),
       (SELECT count(*) FROM jobs j WHERE NOT EXISTS (SELECT FROM job_status s WHERE s.job_id = j.job_id)),
       (SELECT count(*) FROM live_runs r WHERE NOT EXISTS (SELECT FROM job_specs s WHERE s.spec_id = r.spec_id)),
       (SELECT count(*) FROM audit a WHERE action = 'run' AND NOT EXISTS (SELECT FROM runs r WHERE r.run_id = a.run_id)),
       (SELECT count(*) FROM audit a WHERE action = 'create' AND NOT EXISTS (SELECT FROM jobs j WHERE j.job_id = a.job_id))
"""
leaves: st.SearchStrategy[Any] = (
    st.sampled_from([*NASTY, *NUMBERS, None, True, [], {}]) | st.text(max_size=20) | st.integers() | st.floats()
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
raw = st.binary(max_size=60) | st.sampled_from(
    [
        b"{",
        b"[]",
        b"null",
        b'"',
        b"\xff\xfe{}",
        b"\xef\xbb\xbf{}",
        b'{"a":1}{"b":2}',
        b'{"name":"a","name":"b"}',
        b"{} x",
    ]
    + [b"[" * depth + b"]" * depth for depth in (64, 65, 1_000, 100_000)]
    + [b'{"payload":' * depth + b"1" + b"}" * depth for depth in (63, 64, 65, 2_000)]
    + [b'{"payload": "' + rb"\ud800" + b'"}', b'{"payload": "' + rb"\u0000" + b'"}', b'{"payload": 1e999}']
)
settings = hypothesis.settings(max_examples=250, suppress_health_check=list(hypothesis.HealthCheck))


class Target:
    """The API, and the database below it."""

    def __init__(self, apart: served_apart.Apart, database_url: str) -> None:
        self.apart = apart
        self.database = psycopg.connect(database_url, autocommit=True)

    def send(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Any:
        """Status and document of the answer; asserts all that holds for any."""
        before = self.rows(_COUNTS)
        place = urllib.parse.urlsplit(self.apart.url)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
        given = {"Authorization": f"Bearer {self.apart.secret}", "Content-Type": "application/json", **(headers or {})}
        connection.request(method, path, body=body, headers=given)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        about = (method, path, (body or b"")[:300], given, answer.status, text[:500])
        assert answer.status < 500, about
        document: Any = json.loads(text) if text else None
        if answer.status >= 400:
            assert answer.headers["Content-Type"] == "application/problem+json", about
            assert document["status"] == answer.status, about
            assert document["detail"], about
            assert self.rows(_COUNTS) == before, about
        return answer.status, document

    def path(self, template: str, turn: int) -> str:
        """With ids of what is there."""
        job, run = self.apart.jobs[turn % len(self.apart.jobs)], self.apart.runs[turn % len(self.apart.runs)]
        return template.replace("{job}", str(job)).replace("{run}", str(run))

    def rows(self, text: str) -> Any:
        return self.database.execute(text.encode()).fetchone()


@pytest.fixture(scope="module")
def target(server: postgres.PostgresServer, template: str) -> Iterator[Target]:
    name = server.new_database(template=template)
    with served_apart.served(server.url(name), count=20) as running:
        reached = Target(running, server.url(name))
        yield reached
        assert reached.rows(_BROKEN) == (0, 0, 0, 0, 0)
        reached.database.close()
    server.drop_database(name)


def encoded(value: object) -> bytes:
    """As JSON, with all that JSON does not allow where Python writes it: NaN, infinity, halves of surrogate pairs."""
    return json.dumps(value).encode("utf-8", "surrogatepass")


def changed(draw: st.DrawFn, value: Any) -> Any:
    """The document with one thing in it, or beside it, that is another."""
    if isinstance(value, dict) and value and draw(st.booleans()):
        name = draw(st.sampled_from(sorted(value)))
        return {**value, name: changed(draw, value[name])}
    if isinstance(value, list) and value and draw(st.booleans()):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], changed(draw, value[place]), *value[place + 1 :]]
    if isinstance(value, dict) and draw(st.booleans()):
        return {**value, draw(st.text(max_size=12)): draw(values)}
    return draw(values)


@st.composite
def wrong_bodies(draw: st.DrawFn) -> tuple[str, str, bytes]:
    """Method, path and body."""
    method, path = draw(st.sampled_from(sorted(BODIES)))
    if draw(st.integers(0, 3)) == 0:
        return method, path, draw(raw)
    return method, path, encoded(changed(draw, BODIES[method, path]))


@hypothesis.given(sent=wrong_bodies(), turn=st.integers(0, 1_000))
@settings
def test_bodies(target: Target, sent: tuple[str, str, bytes], turn: int) -> None:
    method, path, body = sent
    target.send(method, target.path(path, turn), body)


@hypothesis.given(
    path=st.sampled_from(LISTS),
    query=st.lists(
        st.tuples(st.sampled_from(NAMES) | st.text(max_size=6), st.sampled_from(NASTY) | st.text()), max_size=4
    ),
    turn=st.integers(0, 1_000),
)
@settings
def test_queries(target: Target, path: str, query: list[tuple[str, str]], turn: int) -> None:
    text = urllib.parse.urlencode(query, errors="surrogatepass")
    target.send("GET", f"{target.path(path, turn)}?{text}")


@hypothesis.given(
    what=st.sampled_from(["/v1/runs", "/v1/jobs", "/v1/audit"]), place=st.integers(0, 200), character=st.characters()
)
@settings
def test_cursors(target: Target, what: str, place: int, character: str) -> None:
    """One that was given out, with one character changed."""
    target.send("POST", target.path("/v1/jobs/{job}:pause", place))
    _, page = target.send("GET", f"{what}?limit=1")
    cursor = page.get("next", "AAAAAAAA")
    wrong = cursor[: place % len(cursor)] + character + cursor[place % len(cursor) + 1 :]
    text = urllib.parse.urlencode({"limit": 1, "cursor": wrong}, errors="surrogatepass")
    status, document = target.send("GET", f"{what}?{text}")
    if status == 422:
        assert document["errors"][0]["parameter"] == "cursor"
    else:
        assert (status, len(document["items"])) == (200, 1), "unchanged, in bits that count"


@hypothesis.given(
    name=st.sampled_from(["Idempotency-Key", "If-Match", "If-None-Match", "Content-Type", "Accept", "Last-Event-ID"]),
    value=st.sampled_from(["", "*", '"', '"1"', 'W/"1", "x"', '"' + "9" * 30 + '"', "text/plain", "a" * 300, "ä"])
    | st.text(st.characters(max_codepoint=255, exclude_categories=["Cc"]), max_size=30),
    method=st.sampled_from(["GET", "PUT", "PATCH", "DELETE", "POST"]),
    turn=st.integers(0, 10),
)
@settings
def test_headers(target: Target, name: str, value: str, method: str, turn: int) -> None:
    path = "/v1/jobs/{job}:resume" if method == "POST" else "/v1/jobs/{job}"
    body = encoded({**JOB, "name": f"renamed-{turn}"}) if method in ("PUT", "PATCH") else None
    target.send(method, target.path(path, turn), body, {name: value})


@hypothesis.given(
    path=st.text(max_size=40) | st.sampled_from(PATHS),
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "TRACE"]),
)
@settings
def test_paths(target: Target, path: str, method: str) -> None:
    quoted = path if path in PATHS else urllib.parse.quote(path, errors="surrogatepass")
    target.send(method, quoted if quoted.startswith("/") else f"/{quoted}")
