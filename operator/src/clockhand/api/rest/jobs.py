"""`/v1/jobs`: HTTP around what the engine does with jobs."""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timezone
from typing import Annotated, Any

import msgspec

from clockhand.api import problems
from clockhand.api.rest import cursors, rights, routes
from clockhand.domain import resources, times, upcoming
from clockhand.domain.tokens import Role
from clockhand.engine.jobs import asking, service
from clockhand.store import database

JobDocument = Annotated[dict[str, Any], msgspec.Meta(extra_json_schema={"$ref": "#/components/schemas/JobDocument"})]
"""A job as it is sent; the engine reads it by the table of fields."""
JobOfMany = Annotated[Any, msgspec.Meta(extra_json_schema={"$ref": "#/components/schemas/JobDocument"})]
"""One that is none is refused by itself."""
JobPatch = Annotated[dict[str, Any], msgspec.Meta(extra_json_schema={"$ref": "#/components/schemas/JobPatch"})]
_MOST_SLOTS = 100
_ETAG = re.compile(r'(?P<weak>W/)?"(?P<opaque>[!#-~]*)"')
_OURS = re.compile('"(?P<version>[0-9]{1,18})(-[0-9a-f]{16})?"', re.ASCII)
_IF_MATCH = routes.Parameter("If-Match", str | None, "The ETag of the version that is meant; 412 where it is another.")
_MOST_CLASSES = 20
_ID_BYTES = 16
Count = Annotated[int, msgspec.Meta(ge=1, le=_MOST_SLOTS)]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]


class JobCalls:
    """The calls on jobs."""

    def __init__(self, jobs: service.Jobs, db: database.Database, sealed: cursors.Cursors) -> None:
        self._jobs = jobs
        self._db = db
        self._cursors = sealed

    def all(self) -> Sequence[routes.Route]:
        """What there is under `/v1/jobs`, but for runs."""
        one = "/v1/jobs/{id}"
        view, edit = Role.VIEWER, Role.EDITOR
        return (
            routes.Route(
                method="GET",
                path="/v1/jobs",
                name="listJobs",
                summary="Jobs by name, a page at a time, without payloads and templates.",
                role=view,
                right=routes.Right("list"),
                gives={200: resources.JobPage},
                query=_FILTERS,
                handle=self.list,
            ),
            routes.Route(
                method="POST",
                path="/v1/jobs",
                name="createJob",
                summary="Makes a job.",
                role=edit,
                right=routes.Right("create"),
                takes=JobDocument,
                gives={201: resources.Job},
                fails=(409,),
                handle=self.create,
            ),
            routes.Route(
                method="POST",
                path="/v1/jobs:batch",
                name="createJobs",
                summary=f"Makes up to {resources.MAX_BATCH:,} jobs; one that is refused leaves the others be.",
                role=edit,
                right=routes.Right("create"),
                takes=list[JobOfMany],
                gives={200: resources.BatchAnswer},
                fails=(409,),
                most_bytes=resources.MAX_BATCH_BODY_BYTES,
                handle=self.create_many,
            ),
            routes.Route(
                method="GET",
                path=one,
                name="getJob",
                summary="A job as a whole.",
                role=view,
                right=routes.Right("get"),
                gives={200: resources.Job, 304: None},
                fails=(404,),
                headers=(
                    routes.Parameter(
                        "If-None-Match", str | None, "304 where what is shown of the job still has this ETag."
                    ),
                ),
                handle=self.get,
            ),
            routes.Route(
                method="PUT",
                path=one,
                name="replaceJob",
                summary="Gives a job other fields; those that are left out go back to their defaults.",
                role=edit,
                right=routes.Right("update"),
                takes=JobDocument,
                gives={200: resources.Job},
                fails=(404, 409, 412),
                headers=(_IF_MATCH,),
                handle=self.replace,
            ),
            routes.Route(
                method="PATCH",
                path=one,
                name="editJob",
                summary="Changes some fields of a job, by a merge patch (RFC 7396); null is the default.",
                role=edit,
                right=routes.Right("patch"),
                takes=JobPatch,
                gives={200: resources.Job},
                fails=(404, 409, 412),
                headers=(_IF_MATCH,),
                media_types=(routes.MERGE_PATCH, routes.JSON),
                handle=self.patch,
            ),
            routes.Route(
                method="DELETE",
                path=one,
                name="deleteJob",
                summary="Ends a job: nothing of it fires any more, and runs that have not begun are cancelled.",
                role=edit,
                right=routes.Right("delete"),
                gives={204: None},
                fails=(404, 409, 412),
                query=(
                    routes.Parameter(
                        "runs",
                        asking.LiveRuns | None,
                        "What becomes of attempts that are under way; by default as the job's onDelete says.",
                    ),
                ),
                headers=(_IF_MATCH,),
                handle=self.delete,
            ),
            routes.Route(
                method="GET",
                path=f"{one}/upcoming",
                name="listUpcoming",
                summary="The next times at which a job falls due, gaps and overlaps of its time zone marked.",
                role=view,
                right=routes.Right("get"),
                gives={200: resources.Upcoming},
                fails=(404,),
                query=(routes.Parameter("count", Count, "How many.", 10),),
                handle=self.upcoming,
            ),
            routes.Route(
                method="POST",
                path=f"{one}:pause",
                name="pauseJob",
                summary="Lets no slot of a job fall due until it is resumed.",
                role=edit,
                right=routes.Right("patch"),
                gives={200: resources.Job},
                fails=(404, 409),
                handle=self.pause,
            ),
            routes.Route(
                method="POST",
                path=f"{one}:resume",
                name="resumeJob",
                summary="Lets slots of a job fall due from now on, also after too many dead runs in a row.",
                role=edit,
                right=routes.Right("patch"),
                gives={200: resources.Job},
                fails=(404, 409),
                handle=self.resume,
            ),
        )

    async def list(self, call: routes.Call) -> routes.Answer:
        query = call.query
        wanted = asking.Filter(
            prefix=query["name"] or query["namePrefix"],
            handler=query["handler"],
            pool=query["pool"],
            standing=query["standing"],
            labels=_labels(query["label"]),
        )
        about = (call.owner, "jobs", [query[one.name] for one in _FILTERS if one.name not in ("limit", "cursor")])
        after = None
        if query["cursor"] is not None:
            after = _place(await self._cursors.read(about, query["cursor"]))
        # of those that begin like it, the one that is called so comes first
        size = 1 if query["name"] else query["limit"]
        page = await self._jobs.page(call.owner, wanted, after=after, size=size)
        if query["name"]:
            return routes.Answer(200, {"items": [item for item in page.items if item["name"] == query["name"]]})
        shown: dict[str, object] = {"items": page.items}
        if page.next is not None:
            place = page.next.job_id.bytes + page.next.name.encode()
            shown["next"] = await self._cursors.write(about, place)
        return routes.Answer(200, shown)

    async def create(self, call: routes.Call) -> routes.Answer:
        asker = await _asker(call, [call.sent])
        return routes.kept(await self._jobs.create(asker, call.sent, key=call.key))

    async def create_many(self, call: routes.Call) -> routes.Answer:
        if len(call.sent) > resources.MAX_BATCH:
            raise problems.Problem(413, f"a batch may have {resources.MAX_BATCH} jobs: send them in parts")
        asker = await _asker(call, [one for one in call.sent if isinstance(one, dict)])
        return routes.kept(await self._jobs.create_many(asker, call.sent, key=call.key))

    async def get(self, call: routes.Call) -> routes.Answer:
        shown = await self._jobs.get(call.owner, _id(call))
        answer = _shown(shown)
        tags = call.headers.get("If-None-Match")
        if tags is not None and (tags.strip() == "*" or answer.headers["ETag"] in _tags(tags, weak=True)):
            return routes.Answer(304, headers=answer.headers)
        return answer

    async def replace(self, call: routes.Call) -> routes.Answer:
        asker = await _asker(call, [call.sent])
        return _shown(await self._jobs.replace(asker, _id(call), call.sent, match=_match(call)))

    async def patch(self, call: routes.Call) -> routes.Answer:
        asker = await _asker(call, [await self._whole_run(call)])
        return _shown(await self._jobs.patch(asker, _id(call), call.sent, match=_match(call)))

    async def _whole_run(self, call: routes.Call) -> Mapping[str, Any]:
        """A patch that names the class which the run that it changes will be of."""
        sent: Mapping[str, Any] = call.sent
        run = sent.get("run")
        if not isinstance(run, dict) or "class" in run:
            return sent
        shown = await self._jobs.get(call.owner, _id(call))
        return {**sent, "run": shown.document.get("run")}

    async def delete(self, call: routes.Call) -> routes.Answer:
        asker = await _asker(call)
        await self._jobs.delete(asker, _id(call), runs=call.query["runs"], match=_match(call))
        return routes.Answer(204)

    async def pause(self, call: routes.Call) -> routes.Answer:
        return routes.kept(await self._jobs.pause(await _asker(call), _id(call), key=call.key))

    async def resume(self, call: routes.Call) -> routes.Answer:
        return routes.kept(await self._jobs.resume(await _asker(call), _id(call), key=call.key))

    async def upcoming(self, call: routes.Call) -> routes.Answer:
        shown = await self._jobs.get(call.owner, _id(call))
        job = msgspec.convert(shown.document, resources.Job)
        if job.status.standing is not resources.Standing.ACTIVE:
            return routes.Answer(200, resources.Upcoming(items=()))
        async with self._db.transaction() as connection:
            now = await database.now(connection)
        slots = upcoming.after(job, times.Origin(job.id, job.created_at), start=now, count=call.query["count"])
        return routes.Answer(200, resources.Upcoming(items=[_slot(slot) for slot in slots]))


_FILTERS = (
    routes.Parameter("name", Text | None, "The job of this name."),
    routes.Parameter("namePrefix", Text | None, "Jobs whose names begin like this."),
    routes.Parameter("handler", Text | None, "Jobs of this handler."),
    routes.Parameter("pool", Text | None, "Jobs of this pool, as they name it."),
    routes.Parameter("standing", resources.Standing | None, "Jobs that stand like this."),
    routes.Parameter("label", tuple[Text, ...], "A label that they have, as key=value; of several each.", ()),
    routes.Parameter("limit", resources.Limit, "How many at most.", resources.PAGE),
    routes.Parameter("cursor", str | None, "The `next` of the page before, with the same filters."),
)


async def _asker(call: routes.Call, sent: Sequence[Mapping[str, Any]] = ()) -> asking.Asker:
    """Who asks, and what he may of what these jobs take: create pods, use a class."""
    templates = any(one.get("template") is not None for one in sent) and await call.may(rights.CREATE_PODS)
    names = {
        name for one in sent if isinstance(run := one.get("run"), dict) and isinstance(name := run.get("class"), str)
    }
    if len(names) > _MOST_CLASSES:
        raise problems.Problem(413, f"a batch may name {_MOST_CLASSES} classes: send it in parts")
    classes = [name for name in sorted(names) if await call.may(rights.use_class(name))]
    return asking.Asker(call.owner, call.actor, templates=templates, classes=classes)


def _id(call: routes.Call) -> uuid.UUID:
    return routes.id_of(call, "job")


def _place(place: bytes) -> asking.Place:
    return asking.Place(place[_ID_BYTES:].decode(), uuid.UUID(bytes=place[:_ID_BYTES]))


def _shown(shown: asking.Shown) -> routes.Answer:
    body = msgspec.json.encode(shown.document)
    return routes.Answer(200, msgspec.Raw(body), {"ETag": routes.etag(shown.version, body)})


def _match(call: routes.Call) -> Collection[int] | None:
    """The versions that If-Match names; None: any."""
    tags = call.headers.get("If-Match")
    return None if tags is None or tags.strip() == "*" else _versions(_tags(tags, weak=False))


def _versions(tags: Iterable[str]) -> Collection[int]:
    """Those of our ETags; what is none of ours matches no job."""
    found = (_OURS.fullmatch(tag) for tag in tags)
    return {int(one["version"]) for one in found if one is not None}


def _tags(listed: str, *, weak: bool) -> Collection[str]:
    """The ETags that a header lists, without the mark of those that are weak."""
    return {f'"{tag["opaque"]}"' for tag in _ETAG.finditer(listed) if weak or not tag["weak"]}


def _labels(pairs: Sequence[str]) -> Mapping[str, str] | None:
    labels = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise problems.wrong_parameter("label", "is no label: write key=value")
        labels[name] = value
    return labels or None


def _slot(slot: upcoming.Slot) -> resources.Slot:
    local = slot.instant.astimezone(timezone(slot.offset))
    return resources.Slot(at=slot.instant, local=local.isoformat(), note=slot.mark or None, runs=slot.runs)
