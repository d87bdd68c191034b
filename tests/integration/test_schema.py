"""The migrations, end to end, make exactly the schema that is written down."""

from __future__ import annotations

from pathlib import Path

from tests.support import postgres, schema_dump

from clockhand.store import migrations

MIGRATIONS = Path(migrations.__file__).parent


def test_the_migrations_make_the_schema_that_is_written_down(server: postgres.PostgresServer, template: str) -> None:
    copy = server.new_database(template=template)
    try:
        assert schema_dump.dump(server.url(copy)) == schema_dump.FILE.read_text(encoding="utf-8"), (
            "run `python -m tests.support.schema_dump` and look at what has changed"
        )
    finally:
        server.drop_database(copy)


def test_the_file_alone_makes_the_same_schema(server: postgres.PostgresServer) -> None:
    name = server.new_database()
    try:
        for statement in (schema_dump.FILE.read_text(encoding="utf-8"),):
            server.execute(statement, database=name)
        assert schema_dump.dump(server.url(name)) == schema_dump.FILE.read_text(encoding="utf-8")
    finally:
        server.drop_database(name)


def test_migrations_are_numbered_without_a_gap() -> None:
    files = sorted(entry.name for entry in MIGRATIONS.glob("*.sql"))
    assert [migration.name for migration in migrations.known()] == files
    assert [migration.number for migration in migrations.known()] == list(range(1, len(files) + 1))
