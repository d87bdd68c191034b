"""Templates of jobs over REST: their makers are told soon what is wrong with them, though no object tells the mirror."""

from __future__ import annotations

import time
import types
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from tests.support import rested, statements
from tests.support.rested import TEAM

from clockhand import errors
from clockhand.domain import resources
from clockhand.engine import templates
from clockhand.engine.jobs import editing, service
from clockhand.kube import client as clients
from clockhand.kube import connection as connections
from clockhand.kube import pods
from clockhand.store import database, duties, mirroring, partitions

NOBODY = connections.Connection(server="http://127.0.0.1:1")
LEASE = timedelta(minutes=5)
OWNER = "k8s/team-a"
WRONG = {"spec": {"containers": [{"name": "main", "image": "any", "env": [{"name": ["A"]}]}]}}
WHY = "spec.template.spec.containers.env: must be a list of names and values"


class Holder:
    """Who holds the duty, with an API server that is not there: what is wrong here is found without asking it."""

    def __init__(self, db: database.Database, client: clients.Client, held: duties.Held) -> None:
        self._db = db
        self._held = held
        self._templates = templates.Templates(db, pods.Pods(client))

    async def renew(self) -> None:
        """A renewal of the duty, and then whatever there is to check."""
        async with self._db.transaction() as connection:
            newest = await duties.renew(connection, self._held, lease=LEASE)
        self._templates.heard(newest)
        while await self._templates.check_once(self._held):
            pass

    async def load(self) -> None:
        """As at the start of the duty."""
        await self._templates.load()


@pytest.fixture
async def holder(db: database.Database) -> AsyncIterator[Holder]:
    async with db.transaction() as connection:
        await partitions.ensure_window(connection, now=await database.now(connection), retention_days=30)
        held = await duties.take(connection, duties.MIRROR, replica="one", lease=LEASE)
    assert held is not None
    async with clients.connect(NOBODY) as client:
        made = Holder(db, client, held)
        await made.load()
        yield made


@pytest.fixture
async def core(db: database.Database) -> AsyncIterator[service.Jobs]:
    async with rested.at_work(db) as made:
        yield made


async def make(core: service.Jobs, template: Any) -> resources.Job:
    return await rested.make(core, TEAM, handler=None, template=template)


async def standing(core: service.Jobs, job: resources.Job) -> tuple[str, str | None]:
    status = (await rested.get(core, job, OWNER)).status
    return status.standing, status.message


async def test_a_template_is_looked_at_with_the_next_renewal(core: service.Jobs, holder: Holder) -> None:
    await holder.renew()
    job = await make(core, WRONG)
    assert await standing(core, job) == ("Active", None)
    await holder.renew()
    told, why = await standing(core, job)
    assert (told, why) == ("Invalid", WHY.removeprefix("spec."))


async def test_so_is_that_of_an_edit(core: service.Jobs, holder: Holder) -> None:
    job = await rested.make(core, TEAM)
    await holder.renew()
    await core.patch(TEAM, job.id, {"handler": None, "template": WRONG})
    await holder.renew()
    assert (await standing(core, job))[0] == "Invalid"


async def test_one_that_is_stored_late_under_an_earlier_number_is_not_overlooked(
    db: database.Database, core: service.Jobs, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(templates, "_LONGEST_WRITE", 3600.0)  # however slow this machine is
    late, early = await rested.make(core, TEAM), await rested.make(core, TEAM)
    async with db.transaction() as connection:
        await connection.execute(b"SET LOCAL idle_in_transaction_session_timeout TO 0")
        now = await database.now(connection)
        await editing.patch(connection, editing.Change(TEAM, late.id), {"handler": None, "template": WRONG}, now=now)
        await core.patch(TEAM, early.id, {"handler": None, "template": WRONG})
        await holder.renew()
        assert (await standing(core, early))[0] == "Invalid"
    await holder.renew()
    assert (await standing(core, late))[0] == "Invalid"


async def test_a_look_that_failed_is_made_up_for(
    core: service.Jobs, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the database was away, and though nothing new came since."""
    await holder.renew()
    monkeypatch.setattr(templates, "_LONGEST_WRITE", 0.0)
    job = await make(core, WRONG)
    with monkeypatch.context() as away:
        away.setattr(mirroring, "unchecked_page", unavailable)
        with pytest.raises(errors.Unavailable):
            await holder.renew()
    assert (await standing(core, job))[0] == "Active"
    await holder.renew()
    assert (await standing(core, job))[0] == "Invalid"


async def test_a_last_look_is_taken_when_nothing_can_come_late_any_more(
    core: service.Jobs, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where no renewal came in all that time."""
    await rested.make(core, TEAM)
    await holder.renew()
    later = types.SimpleNamespace(monotonic=lambda: time.monotonic() + templates._LONGEST_WRITE)
    monkeypatch.setattr(templates, "time", later)
    asked = statements.named(monkeypatch)
    await holder.renew()
    assert "mirroring.last_spec_before" in asked
    asked.clear()
    await holder.renew()
    assert asked == ["duties.renew"]


async def unavailable(*_: object, **__: object) -> None:
    raise errors.Unavailable("the database is away")


async def test_where_nothing_is_new_nothing_is_asked(
    core: service.Jobs, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(core, WRONG)
    await holder.renew()
    monkeypatch.setattr(templates, "_LONGEST_WRITE", 0.0)
    await rested.make(core, TEAM)
    await holder.renew()
    asked = statements.named(monkeypatch)
    await holder.renew()
    assert asked == ["duties.renew"]
