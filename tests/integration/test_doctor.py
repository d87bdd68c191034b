"""Each check of `clockhand doctor` seen content with a sound database and finding fault with one that is really broken."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.support import examined, jobs, ports, postgres

from clockhand import errors
from clockhand.admin.doctor import examination, upkeep
from clockhand.admin.doctor.patient import Patient
from clockhand.domain import tokens as token_values
from clockhand.domain.findings import Finding, Verdict
from clockhand.domain.states import RunState as S
from clockhand.store import database, migrations, partitions, shards
from clockhand.store import doctor as doctor_rows
from clockhand.store import tokens as token_rows

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def sound() -> Iterator[postgres.PostgresServer]:
    """A server that is set up as one should be; tests change its settings and set them back."""
    with postgres.server(fsync="on", max_prepared_transactions="2") as running:
        yield running


@pytest.fixture
def sound_url(sound: postgres.PostgresServer) -> Iterator[str]:
    name = sound.new_database()
    asyncio.run(_migrate(sound.url(name)))
    yield sound.url(name)
    sound.drop_database(name)


async def _migrate(url: str) -> None:
    async with opened(url) as db:
        await migrations.apply(db)


@contextlib.asynccontextmanager
async def opened(url: str, *, options: bool = True) -> AsyncIterator[database.Database]:
    db = database.Database(url, size=2, name="test", options=options)
    await db.open()
    try:
        yield db
    finally:
        await db.close()


async def look(db: database.Database, url: str, name: str, **changes: Any) -> Finding:
    return await examined.finding_of(await examined.patient_of(db, url, **changes), name)


async def run(db: database.Database, text: str, *parameters: object) -> None:
    async with db.transaction() as connection:
        await connection.execute(text.encode(), parameters)


async def run_as_owner(url: str, *statements: str) -> None:
    async with opened(url) as db:
        for text in statements:
            await run(db, text)


@contextlib.contextmanager
def altered(server: postgres.PostgresServer, name: str, value: str) -> Iterator[None]:
    """The server with another setting, as an administrator would give it."""
    _set_system(server, f"ALTER SYSTEM SET {name} = '{value}'", name, lambda shown: shown == value)
    try:
        yield
    finally:
        _set_system(server, f"ALTER SYSTEM RESET {name}", name, lambda shown: shown != value)


def _set_system(server: postgres.PostgresServer, statement: str, name: str, holds: Any) -> None:
    server.execute(statement)
    server.execute("SELECT pg_reload_conf()")
    deadline = time.monotonic() + 10
    while True:
        with psycopg.connect(server.url()) as connection:
            row = connection.execute(f"SHOW {name}".encode()).fetchone()
        if row is not None and holds(row[0]):
            return
        assert time.monotonic() < deadline
        time.sleep(0.05)


async def test_a_sound_database_is_found_so(sound_url: str) -> None:
    async with opened(sound_url) as db:
        patient = await examined.patient_of(db, sound_url)
        for name in ("database", "durability", "standby", "timeouts", "autovacuum", "snapshots", "replication-slots",
                     "host-clock", "schema", "connections", "clock", "epoch", "table-settings", "bloat", "kept", "tokens",
                     "worker-leases", "overdue", "parked", "changes", "conflicts"):  # fmt: skip
            found = await examined.finding_of(patient, name)
            assert found.verdict is Verdict.OK, (name, found)
            assert found.sentence


async def test_a_database_that_cannot_be_reached(db: database.Database, database_url: str) -> None:
    away = f"postgresql://somebody:s3cret@127.0.0.1:{ports.free_row(1)}/any"
    patient = await examined.patient_of(db, away)
    found = await examined.finding_of(patient, "database")
    assert found.verdict is Verdict.ERROR
    assert "Connection refused" in found.sentence
    assert "s3cret" not in found.sentence
    assert await examined.finding_of(patient, "overdue") == Finding(Verdict.SKIPPED, "it needs `database`")
    for url in ("postgresql://somebody:s3cret@127.0.0.1/any?s3cret=1", "postgresql://somebody:s@3cret@127.0.0.1/any"):
        with pytest.raises(errors.InvalidInput, match="CLOCKHAND_DATABASE_URL") as refused:
            await doctor_rows.reach(url)
        assert "3cret" not in str(refused.value)


async def test_a_database_that_takes_nothing(server: postgres.PostgresServer, database_url: str) -> None:
    server.execute(f"ALTER DATABASE {database_url.rpartition('/')[2]} SET default_transaction_read_only = on")
    async with opened(database_url) as db:
        found = await look(db, database_url, "database")
    assert (found.verdict, found.sentence) == (Verdict.ERROR, "it is read-only: nothing can be stored")


async def test_a_crash_would_lose_what_was_stored(db: database.Database, database_url: str) -> None:
    """The server of the other tests is fast and careless."""
    found = await look(db, database_url, "durability")
    assert found.verdict is Verdict.ERROR
    assert found.sentence.startswith("fsync off")


async def test_commits_that_nobody_waits_for(sound: postgres.PostgresServer, sound_url: str) -> None:
    """What Clockhand asks for at connect holds, but a pooler asks for nothing."""
    with altered(sound, "synchronous_commit", "off"):
        async with opened(sound_url) as db:
            assert (await look(db, sound_url, "durability")).verdict is Verdict.OK
        async with opened(sound_url, options=False) as db:
            found = await look(db, sound_url, "durability")
    assert found.verdict is Verdict.ERROR
    assert found.sentence.startswith("synchronous_commit off")


async def test_pages_that_a_crash_would_tear(sound: postgres.PostgresServer, sound_url: str) -> None:
    with altered(sound, "full_page_writes", "off"):
        async with opened(sound_url) as db:
            assert "full_page_writes off" in (await look(db, sound_url, "durability")).sentence


async def test_a_standby_that_does_not_follow(sound: postgres.PostgresServer, sound_url: str, tmp_path: Path) -> None:
    async with opened(sound_url) as db:
        with following(sound, tmp_path):
            found = await look(db, sound_url, "standby")
            assert (found.verdict, found.samples) == (Verdict.WARNING, ("pg_receivewal",))
            with altered(sound, "synchronous_standby_names", "pg_receivewal"):
                assert (await look(db, sound_url, "standby")).sentence == "1 synchronous standby connected"
        with altered(sound, "synchronous_standby_names", "nobody"):
            found = await look(db, sound_url, "standby")
    assert found.verdict is Verdict.ERROR
    assert "every commit waits" in found.sentence


@contextlib.contextmanager
def following(server: postgres.PostgresServer, folder: Path) -> Iterator[None]:
    """What follows the server as a standby does: by its log."""
    log = folder / "log"
    log.mkdir()
    command = [str(postgres.binaries() / "pg_receivewal"), "-D", str(log), "-d", server.url(), "--synchronous"]
    process = subprocess.Popen(command)
    try:
        _wait_for_walsenders(server, 1)
        yield
    finally:
        process.terminate()
        process.wait(timeout=20)
        _wait_for_walsenders(server, 0)


def _wait_for_walsenders(server: postgres.PostgresServer, count: int) -> None:
    deadline = time.monotonic() + 20
    with psycopg.connect(server.url(), autocommit=True) as connection:
        while connection.execute("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'").fetchone() != (
            count,
        ):
            assert time.monotonic() < deadline
            time.sleep(0.05)


async def test_connections_without_time_outs(sound_url: str) -> None:
    async with opened(sound_url, options=False) as db:
        found = await look(db, sound_url, "timeouts")
    assert found.verdict is Verdict.WARNING
    assert "no idle_in_transaction_session_timeout and no statement_timeout" in found.sentence


async def test_tables_that_nobody_vacuums(sound: postgres.PostgresServer, sound_url: str) -> None:
    with altered(sound, "autovacuum", "off"):
        async with opened(sound_url) as db:
            assert (await look(db, sound_url, "autovacuum")).sentence == "autovacuum off: tables only grow"


async def test_a_transaction_that_stays_open(sound_url: str) -> None:
    async with opened(sound_url) as db:
        with psycopg.connect(sound_url, application_name="report") as other:
            other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            other.execute("SELECT * FROM installation")
            assert (await look(db, sound_url, "snapshots")).verdict is Verdict.OK
            for later, verdict in ((2 * MINUTE, Verdict.WARNING), (HOUR, Verdict.ERROR)):
                found = await look(db, sound_url, "snapshots", later=later)
                assert found.verdict is verdict
                assert f"session {other.info.backend_pid} of report on" in found.samples[0]


async def test_a_prepared_transaction_that_nobody_ends(sound_url: str) -> None:
    async with opened(sound_url) as db:
        with psycopg.connect(sound_url, autocommit=True) as other:
            other.execute("BEGIN")
            other.execute("UPDATE installation SET last_change = last_change")
            other.execute("PREPARE TRANSACTION 'forgotten'")
            found = await look(db, sound_url, "snapshots", later=2 * MINUTE)
            other.execute("ROLLBACK PREPARED 'forgotten'")
    assert found.samples[0].startswith("prepared transaction forgotten of ")


async def test_a_slot_that_nobody_reads(sound: postgres.PostgresServer, sound_url: str) -> None:
    sound.execute("SELECT pg_create_physical_replication_slot('left', true)")
    try:
        async with opened(sound_url) as db:
            found = await look(db, sound_url, "replication-slots")
    finally:
        sound.execute("SELECT pg_drop_replication_slot('left')")
    assert (found.verdict, found.samples[0].partition(",")[0]) == (Verdict.WARNING, "left")


async def test_a_host_whose_clock_is_off(db: database.Database, database_url: str) -> None:
    found = await look(db, database_url, "host-clock", later=HOUR)
    assert found.verdict is Verdict.WARNING
    assert "apart" in found.sentence


async def test_a_schema_of_another_release(db: database.Database, database_url: str) -> None:
    await run(db, "UPDATE schema_migrations SET checksum = 'other'")
    patient = await examined.patient_of(db, database_url)
    found = await examined.finding_of(patient, "schema")
    assert found.verdict is Verdict.ERROR
    assert "applied with other content" in found.sentence
    assert (await examined.finding_of(patient, "overdue")).sentence == "it needs `schema`"
    await run(db, "DELETE FROM schema_migrations")
    assert "lacks 0001_before_initial.sql" in (await look(db, database_url, "schema")).sentence


async def test_a_check_that_fails_hides_no_other(db: database.Database, database_url: str) -> None:
    def broken() -> datetime:
        raise ValueError("no time")

    patient = dataclasses.replace(await examined.patient_of(db, database_url), here=broken)
    failed, other = await examination.examine(patient, ["host-clock", "schema"])
    assert failed.finding.verdict is Verdict.SKIPPED
    assert "ValueError: no time" in failed.finding.sentence
    assert other.finding.verdict is Verdict.OK


async def test_too_few_connections(db: database.Database, database_url: str) -> None:
    await run(db, "INSERT INTO replicas SELECT 'api-' || n, 'api', now(), now() FROM generate_series(1, 30) AS n")
    found = await look(db, database_url, "connections")
    assert found.verdict is Verdict.WARNING
    assert "30 replicas may open 360" in found.sentence


async def test_connections_that_run_out(sound: postgres.PostgresServer, sound_url: str) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(192):
            stack.enter_context(psycopg.connect(sound_url))
        async with opened(sound_url) as db:
            await run(db, "SELECT pg_stat_force_next_flush()")
            found = await look(db, sound_url, "connections")
    assert found.verdict is Verdict.ERROR


async def test_a_clock_that_jumped(db: database.Database, database_url: str) -> None:
    await run(db, "UPDATE installation SET clock_step = '1 hour', clock_noticed_at = now()")
    found = await look(db, database_url, "clock")
    assert found.verdict is Verdict.ERROR
    assert "nothing fires" in found.sentence


async def test_a_standby_that_was_promoted(db: database.Database, database_url: str) -> None:
    await run(db, "UPDATE installation SET timeline = '0000000F'")
    assert (await look(db, database_url, "epoch")).verdict is Verdict.ERROR


async def test_tables_whose_settings_somebody_changed(db: database.Database, database_url: str) -> None:
    await run(db, "ALTER TABLE live_runs SET (autovacuum_enabled = false, fillfactor = 100)")
    await run(db, "ALTER TABLE jobs RESET (fillfactor)")
    patient = await examined.patient_of(db, database_url)
    found = await examined.finding_of(patient, "table-settings")
    assert found.verdict is Verdict.WARNING
    assert found.samples == (
        "jobs: without fillfactor=80",
        "live_runs: autovacuum_enabled=false, fillfactor=100",
    )
    assert await examined.mended(patient, "table-settings") == ("set jobs back", "set live_runs back")


async def test_dead_rows(db: database.Database, database_url: str) -> None:
    await run(db, "ALTER TABLE owners SET (autovacuum_enabled = false)")
    await run(db, "ALTER TABLE replicas SET (autovacuum_enabled = false)")
    count = upkeep.MANY_DEAD + 1
    await run(db, "INSERT INTO replicas SELECT n::text, 'api', now(), now() FROM generate_series(1, %s) AS n", count)
    await run(db, "UPDATE replicas SET last_seen = now()")
    await run(db, "DELETE FROM replicas WHERE replica::int > 10")
    await run(db, "SELECT pg_stat_force_next_flush()")
    patient = await examined.patient_of(db, database_url)
    found = await examined.finding_of(patient, "bloat")
    assert found.verdict is Verdict.WARNING
    assert found.samples[0].startswith("replicas: ")
    assert await examined.mended(patient, "bloat") == ("vacuumed replicas",)


async def test_weeks_without_a_partition(db: database.Database, database_url: str) -> None:
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
    patient = await examined.patient_of(db, database_url)
    found = await examined.finding_of(patient, "partitions")
    assert found.verdict is Verdict.ERROR
    done = await examined.mended(patient, "partitions")
    assert all(name.startswith("made ") for name in done)
    assert (await examined.finding_of(examined.hurried(patient, 22 * DAY), "partitions")).verdict is Verdict.ERROR


async def test_weeks_that_were_detached_or_left(db: database.Database, database_url: str) -> None:
    patient = await examined.patient_of(db, database_url, retention_days=7)
    async with db.transaction() as connection:
        await partitions.ensure(connection, oldest=patient.now - 60 * DAY, newest=patient.now + 14 * DAY)
    stale = await examined.finding_of(patient, "partitions")
    assert (stale.verdict, "older than 7 days" in stale.sentence) == (Verdict.WARNING, True)
    kept = await examined.patient_of(db, database_url, retention_days=60)
    name = partitions.name_of("skips", (patient.now - 30 * DAY).date())
    await run(db, f"ALTER TABLE skips DETACH PARTITION {name}")
    assert name in (await examined.finding_of(kept, "partitions")).samples
    left = partitions.name_of("skips", (patient.now - 61 * DAY - 14 * DAY).date())
    await run(db, f"CREATE TABLE {left} (LIKE skips)")
    assert f"dropped {left}" in await examined.mended(kept, "partitions")


async def test_what_is_kept_for_too_long(db: database.Database, database_url: str) -> None:
    await run(
        db,
        "INSERT INTO kept_answers (owner, key, digest, status, body, stored_at) "
        "SELECT 'rest/acme', n::text, 'x', 201, '{}', now() - interval '2 days' FROM generate_series(1, 5001) AS n",
    )
    await run(
        db,
        "INSERT INTO idempotency_keys (scope, key, run_id, stored_at) "
        "VALUES ('job', 'key', gen_random_uuid(), now() - interval '2 days')",
    )
    patient = await examined.patient_of(db, database_url)
    assert (await examined.finding_of(patient, "kept")).sentence.startswith("answers and keys")
    assert await examined.mended(patient, "kept") == ("deleted 5001 rows of answers", "deleted 1 row of keys")


async def test_a_token_that_expires(db: database.Database, database_url: str) -> None:
    patient = await examined.patient_of(db, database_url)
    async with db.transaction() as connection:
        for number, lasts in enumerate((-30 * DAY, -DAY, DAY, 30 * DAY, None)):
            token = token_values.Token(
                token_id=uuid.uuid4(),
                owner="rest/acme",
                role=token_values.Role.EDITOR,
                pool=None,
                name=f"laptop-{number}",
                created_at=patient.now - 60 * DAY,
                expires_at=None if lasts is None else patient.now + lasts,
            )
            await token_rows.add(connection, token, digest=bytes([number]))
    found = await examined.finding_of(patient, "tokens")
    assert found.verdict is Verdict.WARNING
    assert [one.partition(" ")[0] for one in found.samples] == ["laptop-1", "laptop-2"]


async def test_a_file_of_limits_that_cannot_be_used(db: database.Database, database_url: str, tmp_path: Path) -> None:
    file = tmp_path / "limits.yaml"
    file.write_text("owners: {k8s/team-a: {maxConcurrentRuns: 3}}")
    assert (await look(db, database_url, "limits", limits=str(file))).verdict is Verdict.OK
    file.write_text("owners: {k8s/team-a: {maxConcurentRuns: 3}}")
    assert "maxConcurentRuns" in (await look(db, database_url, "limits", limits=str(file))).sentence
    assert (await look(db, database_url, "limits", limits=str(tmp_path / "none"))).verdict is Verdict.ERROR


async def test_replicas_that_are_silent_or_of_another_kind(db: database.Database, database_url: str) -> None:
    assert (await look(db, database_url, "replicas")).sentence.startswith("no operator process lives")
    await run(db, "INSERT INTO replicas VALUES ('one', 'operator', now(), now(), '2026a')")
    assert (await look(db, database_url, "replicas")).sentence == "1 replica live: operator"
    await run(db, "INSERT INTO replicas VALUES ('two', 'operator', now(), now(), '2026b')")
    assert "2026a, 2026b" in (await look(db, database_url, "replicas")).sentence
    await run(db, "UPDATE replicas SET release = '0.' || zone_version")
    assert "different releases: 0.2026a, 0.2026b" in (await look(db, database_url, "replicas")).sentence
    await run(db, "UPDATE replicas SET last_seen = now() - interval '5 minutes' WHERE replica = 'two'")
    found = await look(db, database_url, "replicas")
    assert (found.verdict, found.samples[0].startswith("two, last seen ")) == (Verdict.WARNING, True)
    async with db.transaction() as connection:
        await jobs.make_job(connection, jobs.pooled(), next_slot_at=await database.now(connection) + HOUR)
    assert "no api process lives" in (await look(db, database_url, "replicas")).sentence


async def test_shards_and_duties_that_nobody_holds(db: database.Database, database_url: str) -> None:
    found = await look(db, database_url, "shards")
    assert found.verdict is Verdict.ERROR
    assert found.samples == ("256 of 256 shards of operator processes", "the duty mirror", "the duty prune")
    async with db.transaction() as connection:
        await shards.take(connection, replica="one", lease=60, shards=range(256))
        await connection.execute("UPDATE duty_leases SET holder = 'one', expires_at = now() + interval '1 minute'")
    assert (await look(db, database_url, "shards")).verdict is Verdict.OK
    assert (await look(db, database_url, "shards", later=2 * MINUTE)).verdict is Verdict.ERROR
    async with db.transaction() as connection:
        await jobs.make_job(connection, jobs.pooled(), next_slot_at=await database.now(connection) + HOUR)
    assert (await look(db, database_url, "shards")).samples == ("256 of 256 shards of api processes",)


async def test_attempts_that_nobody_rescues(db: database.Database, database_url: str) -> None:
    async with db.transaction() as connection:
        job = await jobs.make_job(connection, jobs.pooled())
        await jobs.make_run(connection, job, S.RUNNING)
        await connection.execute("UPDATE installation SET served_since = now()")
    assert (await look(db, database_url, "worker-leases")).sentence == "1 attempt of workers, none forgotten"
    found = await look(db, database_url, "worker-leases", later=HOUR)
    assert (found.verdict, found.samples) == (Verdict.ERROR, (f"1 of {jobs.WORKER} in {jobs.POOL}",))


async def test_jobs_that_nobody_fires(db: database.Database, database_url: str) -> None:
    async with db.transaction() as connection:
        await jobs.make_jobs(connection, 8, next_slot_at=await database.now(connection) - MINUTE)
    found = await look(db, database_url, "overdue")
    assert (found.verdict, len(found.samples), found.more) == (Verdict.ERROR, 5, 3)
    assert found.sentence == "8 jobs due for more than 10 seconds and not fired"


async def test_a_job_that_cannot_be_used(db: database.Database, database_url: str) -> None:
    async with db.transaction() as connection:
        await jobs.make_job(connection)
    await run(db, "UPDATE jobs SET parked = 'spec.schedule: is wrong'")
    found = await look(db, database_url, "parked")
    assert (found.verdict, found.samples) == (Verdict.WARNING, ("k8s/team-a/job-00000: spec.schedule: is wrong",))


async def test_changes_without_a_number(db: database.Database, database_url: str) -> None:
    await run(
        db, "INSERT INTO run_changes (runs, states) VALUES (ARRAY[gen_random_uuid()], ARRAY['Queued'::run_state])"
    )
    patient = await examined.patient_of(db, database_url)
    assert (await examined.finding_of(patient, "changes")).verdict is Verdict.OK
    assert "1 change of runs" in (await look(db, database_url, "changes", later=MINUTE)).sentence
    done = await examined.mended(examined.hurried(patient, MINUTE), "changes")
    assert done == ("numbered what no open transaction is before",)


async def test_a_run_that_is_live_and_over(db: database.Database, database_url: str) -> None:
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
        job = await jobs.make_job(connection)
        at = await database.now(connection)
        await jobs.make_run(connection, job, S.QUEUED, at=at)
        await jobs.make_run(connection, job, S.SUCCEEDED, at=at)
    found = await look(db, database_url, "conflicts")
    assert (found.verdict, found.sentence) == (Verdict.ERROR, "1 live run that history has already")


async def test_a_user_who_may_not_look_is_told(sound: postgres.PostgresServer, sound_url: str, tmp_path: Path) -> None:
    """Another role than the owner of the tables."""
    sound.execute("CREATE ROLE guest LOGIN")
    try:
        async with opened(sound_url.replace("postgres@", "guest@")) as db:
            async with opened(sound_url) as own:
                patient = await examined.patient_of(own, sound_url)
            guest = Patient(
                patient.settings, db, None, patient.clusterless, now=patient.now, clock=patient.clock, here=patient.here
            )
            found = await examined.finding_of(guest, "overdue")
            assert found.verdict is Verdict.SKIPPED
            await run_as_owner(
                sound_url, "ALTER TABLE jobs RESET (fillfactor)", "GRANT SELECT ON ALL TABLES IN SCHEMA public TO guest"
            )
            [seen] = await examination.examine(guest, ["table-settings"])
            assert "must be owner" in (await examination.mend(guest, seen)).failure
            with following(sound, tmp_path):
                assert "pg_read_all_stats" in (await examined.finding_of(guest, "standby")).sentence
    finally:
        await run_as_owner(sound_url, "DROP OWNED BY guest")
        sound.execute("DROP ROLE guest")
