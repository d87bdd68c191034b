"""The last release, this tree and what may come after it, as processes on one database whose schema moves on meanwhile."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from tests.e2e.releases import kept
from tests.support import postgres, released
from tests.support.kubectl import wait_for

# what every release may do to tables that another one reads and writes
ADDS = """
ALTER TABLE live_runs ADD COLUMN colour text NOT NULL DEFAULT 'red', ADD COLUMN shade int;
ALTER TABLE run_history ADD COLUMN shade int NOT NULL DEFAULT 1;
ALTER TABLE jobs ADD COLUMN colour text;
ALTER TABLE job_specs ADD COLUMN colour text;
ALTER TABLE attempts ADD COLUMN colour text;
CREATE INDEX jobs_by_colour ON jobs (colour);
CREATE TABLE colours (name text PRIMARY KEY);
"""
TAKES_AWAY = "ALTER TABLE jobs DROP COLUMN colour;"
EVERY = timedelta(seconds=1)
TICKS = tuple(f"tick-{number}" for number in range(3))
LONG = ("since-the-last", "since-both")
HOLDERS = "SELECT DISTINCT release FROM shard_leases JOIN replicas ON holder = replica WHERE shard >= 256"
LIVE = "SELECT count(*) FROM live_runs"
ENDED = """
SELECT job_name, scheduled_at, state::text, attempt FROM run_history ORDER BY scheduled_at
"""


@pytest.fixture(scope="module")
def last(tmp_path_factory: pytest.TempPathFactory) -> released.Release:
    """As it was released, with no database yet."""
    folder = tmp_path_factory.mktemp("last")
    released.unpack_the_last(folder)
    return released.Release(folder, "", tmp_path_factory.mktemp("logs-of-last"))


@pytest.fixture(scope="module")
def following(tmp_path_factory: pytest.TempPathFactory) -> released.Release:
    """This tree with migrations of both kinds that are still to come."""
    folder = tmp_path_factory.mktemp("following") / "src"
    released.copy_of_this(folder, **{"0002_before_adds": ADDS, "0003_after_takes_away": TAKES_AWAY})
    return released.Release(folder, "", tmp_path_factory.mktemp("logs-of-following"))


@pytest.fixture
def database(server: postgres.PostgresServer) -> Iterator[str]:
    name = server.new_database()
    yield name
    server.drop_database(name)


def test_both_work_on_one_database_while_its_schema_moves_on(
    server: postgres.PostgresServer, database: str, last: released.Release, following: released.Release, tmp_path: Path
) -> None:
    last, following = last.on(server.url(database)), following.on(server.url(database))
    last.call("migrate")
    here, there = released.place(), released.place()
    token = last.call(
        "tokens", "create", "--owner=rest/acme", "--role=worker", "--pool=mailers", "--name=workers"
    ).strip()
    folders = [tmp_path / "first", tmp_path / "second"]
    people = People(
        last, here, last.call("tokens", "create", "--owner=rest/acme", "--role=editor", "--name=people").strip()
    )
    with contextlib.ExitStack() as over:

        def begin(process: contextlib.AbstractContextManager[None]) -> contextlib.ExitStack:
            own = over.enter_context(contextlib.ExitStack())
            own.enter_context(process)
            return own

        old = begin(last.serving(here))
        begin(last.working(here, folders[0], pool="acme/mailers", token=token))
        often = ("--every=1s", "--handler=email.send", "--pool=mailers", "--set=catchUp.policy=All")
        for name in TICKS:
            people.call("jobs", "create", name, *often)
        begin_long(people, folders, LONG[0])

        assert "applied 0002_before_adds.sql" in following.call("migrate")
        new = [begin(following.serving(there))]
        begin(following.working(there, folders[1], pool="acme/mailers", token=token))
        begin_long(people, folders, LONG[1])
        wait_for("both to hold shards", lambda: len(server.rows(HOLDERS, database=database)) == 2)
        wait_for_more(folders)

        old.close()
        new.append(begin(following.serving(here)))
        wait_for_more(folders)

        for one in new:
            one.close()
        begin(last.serving(here))
        begin(last.serving(there))
        wait_for_more(folders)
        for folder in folders:
            (folder / "go").touch()
        for name in TICKS:
            people.call("jobs", "pause", name)
        wait_for("every run to end", lambda: server.rows(LIVE, database=database) == [(0,)])

    ended = server.rows(ENDED, database=database)
    assert {(state, attempt) for _, _, state, attempt in ended} == {("Succeeded", 1)}
    expected = Counter(f"{name} 1 {what}" for name in LONG for what in ("begun", "done"))
    for name in TICKS:
        slots = [at for job, at, _, _ in ended if job == name]
        assert slots == [slots[0] + EVERY * number for number in range(len(slots))]
        expected[f"{name} 1 sent"] = len(slots)
    assert Counter(line for folder in folders for line in effects(folder)) == expected


def test_what_ends_a_release_waits_until_it_is_gone(
    server: postgres.PostgresServer, database: str, last: released.Release, following: released.Release
) -> None:
    last, following = last.on(server.url(database)), following.on(server.url(database))
    last.call("migrate")
    following.call("migrate")
    place = released.place()
    with last.serving(place):
        refusal = following.refusal("migrate", "--after")
        assert f"({kept.VERSION})" in refusal
        assert "End the roll-out first" in refusal
    assert "0003_after_takes_away.sql is to come" in following.call("migrate", "--check")
    # the release before goes on, whatever it is asked: so does its hook in a chart
    assert "the schema fits this release" in last.call("migrate")

    assert "applied 0003_after_takes_away.sql" in following.call("migrate", "--after")
    for arguments in (("migrate",), ("migrate", "--check"), ("migrate", "--after")):
        assert "newer than this release: it has 0003_after_takes_away.sql" in last.refusal(*arguments)
    with last.process("api", CLOCKHAND_API_PORT=f"{place.port}", CLOCKHAND_HEALTH_PORT=f"{place.health}"):
        wait_for("the API to say what it waits for", lambda: "it has 0003_after_takes_away.sql" in last.log("api"))
        assert not released.is_ready(place)
    with following.serving(place):
        pass


def test_no_step_is_left_out(
    server: postgres.PostgresServer, database: str, last: released.Release, tmp_path: Path
) -> None:
    folder = tmp_path / "src"
    needs = {"0004_before_adds_again": "ALTER TABLE jobs ADD COLUMN colour int;"}
    released.copy_of_this(folder, **{"0002_before_adds": ADDS, "0003_after_takes_away": TAKES_AWAY, **needs})
    far = released.Release(folder, server.url(database), tmp_path)
    last.on(server.url(database)).call("migrate")
    # 0003 ends the last release, or one before it: this one cannot know
    for arguments in (("migrate",), ("migrate", "--check")):
        refusal = far.refusal(*arguments)
        assert "0003_after_takes_away.sql comes before it" in refusal
        assert "does not know it: scale all parts to 0" in refusal
    assert "applied 0004_before_adds_again.sql" in far.call("migrate", "--after")

    empty = server.new_database()
    assert "applied 0004_before_adds_again.sql" in far.on(server.url(empty)).call("migrate")
    server.drop_database(empty)


@dataclasses.dataclass(frozen=True)
class People:
    """Who uses the API at a place."""

    release: released.Release
    place: released.Place
    token: str

    def call(self, *arguments: str) -> str:
        return self.release.call(*arguments, CLOCKHAND_API_URL=self.place.url, CLOCKHAND_TOKEN=self.token)


def begin_long(people: People, folders: Sequence[Path], name: str) -> None:
    """A run that is under way until its worker's folder has a file `go`."""
    people.call("jobs", "create", name, "--every=1d", "--handler=wait", "--pool=mailers")
    people.call("jobs", "run", name)
    wait_for(f"{name} to begin", lambda: any(f"{name} 1 begun" in effects(folder) for folder in folders))


def wait_for_more(folders: Sequence[Path]) -> None:
    """Waits until each job that falls due all the time has had further runs."""
    seen = done(folders)
    wait_for("later runs", lambda: all(done(folders)[name] > seen[name] + 1 for name in TICKS))


def done(folders: Sequence[Path]) -> Counter[str]:
    """How often each job did something."""
    return Counter(line.split()[0] for folder in folders for line in effects(folder))


def effects(folder: Path) -> Sequence[str]:
    with contextlib.suppress(FileNotFoundError):
        return (folder / "effects").read_text(encoding="utf-8").splitlines()
    return []
