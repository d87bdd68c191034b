"""The API for workers over real HTTP: who gets in, what is refused and how, and what happens to claims that wait."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta

import pytest
from tests.support import jobs, workers_api
from tests.support.workers_api import ACCOUNT, PLACE, right

from clockhand import errors, metrics
from clockhand.api import kept
from clockhand.domain import protocol, tokens
from clockhand.domain.states import RunState as S
from clockhand.kube import access
from clockhand.store import database

CALLS = ("claim", "heartbeat", "report", "start")
OWN = f"system:serviceaccount:{PLACE}:{ACCOUNT}"
USERS: Mapping[str, str] = {
    "own": OWN,
    "another-account": f"system:serviceaccount:{PLACE}:default",
    "another-namespace": f"system:serviceaccount:team-b:{ACCOUNT}",
    "somebody": "jane",
    "nearly": f"system:serviceaccount:{PLACE}",
}


class Cluster:
    """What the API server would say of `USERS`' tokens; `away`: nothing."""

    def __init__(self) -> None:
        self.away = False

    async def user_of(self, token: str) -> access.User | None:
        if self.away:
            raise errors.Unavailable("the API server did not answer", 7.0)
        return access.User(USERS[token]) if token in USERS else None

    async def decide(self, user: access.User, action: access.Action) -> access.Decision:
        raise AssertionError("workers need no rights in the cluster")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
async def api(db: database.Database, cluster: Cluster) -> AsyncIterator[workers_api.Served]:
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
    await workers_api.make_pool(db)
    async with workers_api.served(db, asked=cluster) as running:
        yield running


CREDENTIALS: Mapping[str, tuple[Mapping[str, object] | str | None, int]] = {
    "none": (None, 401),
    "an unknown one": (tokens.secret_of(b"\1" * tokens.SECRET_BYTES), 401),
    "no token at all": ("\t", 401),
    "one too long": ("x" * 7_000, 401),
    "its own": ({}, 200),
    "its own for a while": ({"lasts": timedelta(hours=1)}, 200),
    "revoked": ({"revoked": True}, 401),
    "expired": ({"lasts": timedelta(seconds=-1)}, 401),
    "of another pool": ({"pool": "reports"}, 403),
    "of another namespace": ({"owner": "k8s/team-b"}, 403),
    "of a tenant of another name": ({"owner": "rest/acme"}, 403),
    "a viewer's": ({"role": tokens.Role.VIEWER}, 403),
    "an editor's": ({"role": tokens.Role.EDITOR}, 403),
    "of the pool's account": ("own", 200),
    "of another account": ("another-account", 403),
    "of an account elsewhere": ("another-namespace", 403),
    "of a person": ("somebody", 403),
    "of nearly an account": ("nearly", 403),
    "unknown to the cluster": ("stranger", 401),
}


@pytest.mark.parametrize("credential", CREDENTIALS)
async def test_each_call_lets_in_exactly_those_meant(api: workers_api.Served, credential: str) -> None:
    made, status = CREDENTIALS[credential]
    secret = await workers_api.make_token(api.db, **made) if isinstance(made, Mapping) else made  # type: ignore[arg-type]
    for call in CALLS:
        answer = await api.caller(secret).call(call)
        assert answer.status == status, (call, answer.text)
        assert ("WWW-Authenticate" in answer.headers) == (status == 401)
        if status == 200:
            assert answer.headers["Content-Type"].startswith("application/json")
        else:
            assert answer.headers["Content-Type"] == "application/problem+json"
            assert answer.json["status"] == status
            assert secret is None or not secret.strip() or secret not in answer.text


async def test_the_challenge_says_whether_there_was_a_token(api: workers_api.Served) -> None:
    bare = await api.caller().call("claim")
    assert bare.headers["WWW-Authenticate"] == 'Bearer realm="clockhand"'
    bad = await api.caller("stranger").call("claim")
    assert bad.headers["WWW-Authenticate"] == 'Bearer realm="clockhand", error="invalid_token"'


async def test_a_tenant_and_a_namespace_of_one_name_are_two(api: workers_api.Served) -> None:
    """The path is the same: the credential says whose pool is meant."""
    async with api.db.transaction() as connection:
        job = await jobs.make_job(connection, jobs.pooled(), owner=jobs.OWNER)
        await jobs.make_run(connection, job, S.QUEUED)
    tenant = await api.worker(owner=f"rest/{PLACE}")
    assert (await tenant.call("claim")).json["runs"] == []
    own = await api.worker()
    [run] = (await own.call("claim")).json["runs"]
    assert run["owner"] == jobs.OWNER


async def test_many_strangers_at_once_do_not_keep_out_a_worker(
    api: workers_api.Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "KEEP_SECONDS", 0.0)  # each of the worker's calls has its token looked up
    strangers = [tokens.secret_of(number.to_bytes(tokens.SECRET_BYTES, "big")) for number in range(1_000)]
    worker, late = await api.worker(), await api.worker()
    assert (await worker.call("claim")).status == 200
    asked = [asyncio.create_task(api.caller(one).call("claim")) for one in strangers]
    assert {(await worker.call("claim")).status for _ in range(10)} == {200}
    answers = await asyncio.gather(*asked)
    assert {answer.status for answer in answers} == {401, 503}
    assert {answer.headers["Retry-After"] for answer in answers if answer.status == 503} == {"1"}
    assert (await late.call("claim")).status == 200, "who is new comes in after them"


async def test_who_cannot_be_asked_lets_nobody_in(api: workers_api.Served, cluster: Cluster) -> None:
    cluster.away = True
    answer = await api.caller("own").call("claim")
    assert (answer.status, answer.headers["Retry-After"]) == (503, "7")
    cluster.away = False
    assert (await api.caller("own").call("claim")).status == 200, "a failure is not kept"


async def test_without_a_cluster_static_tokens_alone_count(db: database.Database) -> None:
    await workers_api.make_pool(db)
    async with workers_api.served(db) as api:
        assert (await api.caller("own").call("claim")).status == 401
        assert (await (await api.worker()).call("claim")).status == 200


async def test_a_pool_that_is_not_there(api: workers_api.Served) -> None:
    static = await api.worker(pool="reports")
    for call in CALLS:
        for caller in (static, api.caller("own")):
            assert (await caller.call(call, pool="reports")).status == 404


async def test_paths_and_methods_that_are_none(api: workers_api.Served) -> None:
    worker = await api.worker()
    for method, path, status in (
        ("POST", "/", 404),
        ("POST", "/v1/pools/team-a/mailers", 404),
        ("POST", "/v1/pools/team-a/mailers/take", 404),
        ("POST", "/v1/pools/team-a/mailers/claim/", 404),
        ("POST", "/v1/pools/team-a/mai%00lers/claim", 404),
        ("POST", "/v1/pools/team-a/%ED%A0%80/claim", 404),
        ("POST", "/v1/pools/team-a/MAILERS/claim", 404),
        ("POST", "/v1/pools/team-a/a%2Fb/claim", 404),
        ("GET", "/v1/pools/team-a/mailers/claim", 405),
        ("PUT", "/v1/pools/team-a/mailers/claim", 405),
        ("DELETE", "/v1/pools/team-a/mailers/claim", 405),
    ):
        answer = await worker.send(method, path, right("claim"))
        assert (answer.status, answer.json["status"]) == (status, status), path
        assert answer.headers.get("Allow") == ("POST" if status == 405 else None)


async def test_a_body_may_have_a_mebibyte(api: workers_api.Served) -> None:
    worker = await api.worker()
    whole = b'{"worker": "w", "held": []}'.ljust(protocol.MAX_BODY_BYTES)
    path = workers_api.path_of("heartbeat")
    assert (await worker.post(path, whole)).status == 200
    answer = await worker.post(path, whole + b" ")
    assert answer.status == 413
    assert str(protocol.MAX_BODY_BYTES) in answer.json["detail"]


async def test_a_body_of_unknown_length_is_read_no_further_than_that(api: workers_api.Served) -> None:
    worker = await api.worker()

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield b" " * 65_536

    headers = {"Authorization": f"Bearer {worker.secret}"}
    async with api.session.post(api.url + workers_api.path_of("report"), data=endless(), headers=headers) as answer:
        assert answer.status == 413


async def test_a_body_that_does_not_come_is_not_waited_for(db: database.Database) -> None:
    await workers_api.make_pool(db)
    async with workers_api.served(db, body_seconds=0.1) as api:
        worker = await api.worker()
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        head = f"POST {workers_api.path_of('claim')} HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n"
        writer.write(f"{head}Authorization: Bearer {worker.secret}\r\n\r\n{{".encode())
        assert (await reader.readline()).split()[1] == b"408"
        writer.close()


async def test_a_client_that_asks_first_is_told_whether_its_body_is_wanted(api: workers_api.Served) -> None:
    """curl does so for large bodies, and waits a second where nobody answers."""
    body = b'{"worker": "w", "held": []}'
    for secret, told in ((await workers_api.make_token(api.db), b"100"), ("stranger", b"401")):
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        head = f"POST {workers_api.path_of('heartbeat')} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}Authorization: Bearer {secret}\r\nExpect: 100-continue\r\n\r\n".encode())
        assert (await reader.readline()).split()[1] == told
        if told == b"100":
            assert await reader.readline() == b"\r\n"
            writer.write(body)
            assert (await reader.readline()).split()[1] == b"200"
        writer.close()


async def test_the_database_is_away() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"postgresql://u@127.0.0.1:{closed.getsockname()[1]}/d"
        db = database.Database(url, size=1, name="away", patience=0.2)
        await db.open()
        async with workers_api.served(db) as api:
            answer = await api.caller(tokens.secret_of(bytes(tokens.SECRET_BYTES))).call("claim")
        await db.close()
    assert answer.status == 503
    assert int(answer.headers["Retry-After"]) >= 1


async def test_what_is_no_http_leaves_no_token_in_a_log(
    api: workers_api.Served, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    writer.write(b"POST /v1 HTTP/1.1\r\nAuthorization: Bearer clockhand_sec\x01ret\r\n\r\n")
    assert (await reader.readline()).split()[1] == b"400"
    writer.close()
    said = capfd.readouterr()
    assert "clockhand_sec" not in caplog.text + said.out + said.err


async def test_calls_are_counted_by_route_and_code(api: workers_api.Served) -> None:
    counter = metrics.API_REQUESTS.labels("claim", "401")
    before = counter._value.get()
    await api.caller().call("claim")
    assert counter._value.get() == before + 1


async def make_queued(db: database.Database, count: int) -> None:
    async with db.transaction() as connection:
        for job in await jobs.make_jobs(connection, count, job=jobs.pooled()):
            await jobs.make_run(connection, job, S.QUEUED)


async def until_waiting(api: workers_api.Served, count: int) -> None:
    async with asyncio.timeout(30):
        while sitting(api) != count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def sitting(api: workers_api.Served) -> int:
    desk = api.pools.desk
    return len(desk.sitting(jobs.POOL)) if desk.spans() else 0


async def test_200_workers_wait_at_once_and_each_gets_its_run(api: workers_api.Served) -> None:
    worker = await api.worker()
    claims = [
        asyncio.create_task(worker.call("claim", worker=f"worker-{number}", waitSeconds=30)) for number in range(200)
    ]
    await until_waiting(api, 200)
    await make_queued(api.db, 200)
    api.pools.desk.queued([(jobs.POOL, jobs.HANDLER)])
    answers = await asyncio.gather(*claims)
    assert {answer.status for answer in answers} == {200}
    given = [run["runId"] for answer in answers for run in answer.json["runs"]]
    assert len(given) == len(set(given)) == 200


async def test_a_worker_that_goes_away_gives_its_seat_back(api: workers_api.Served) -> None:
    gone = asyncio.create_task((await api.worker()).call("claim", worker="gone", waitSeconds=30))
    await until_waiting(api, 1)
    gone.cancel()
    await until_waiting(api, 0)
    await make_queued(api.db, 1)
    api.pools.desk.queued([(jobs.POOL, jobs.HANDLER)])
    assert len((await (await api.worker()).call("claim")).json["runs"]) == 1


async def test_no_more_claims_wait_than_may(db: database.Database) -> None:
    await workers_api.make_pool(db)
    async with workers_api.served(db, most_waiting=2) as api:
        worker = await api.worker()
        waiting = [asyncio.create_task(worker.call("claim", worker=f"w{n}", waitSeconds=30)) for n in range(2)]
        await until_waiting(api, 2)
        answer = await worker.call("claim", worker="w3")
        assert answer.status == 503
        assert "Retry-After" in answer.headers
        assert (await worker.call("heartbeat")).status == 200, "those that hold runs are served all the same"
        api.pools.desk.close()
        assert [answer.json["runs"] for answer in await asyncio.gather(*waiting)] == [[], []]


async def test_a_stop_answers_claims_that_wait_and_refuses_new_ones(db: database.Database) -> None:
    await workers_api.make_pool(db)
    async with workers_api.served(db) as api:
        worker = await api.worker()
        waiting = asyncio.create_task(worker.call("claim", waitSeconds=30))
        await until_waiting(api, 1)
        api.pools.desk.close()
        assert (await waiting).json["runs"] == []
        refused = await worker.call("claim", waitSeconds=30)
        assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
