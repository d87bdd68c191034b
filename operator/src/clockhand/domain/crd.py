"""The definition of ScheduledJob. Its fields are in `fields`, the rules between them in `cel`."""

from __future__ import annotations

from clockhand.domain import cel, definition, fields

GROUP = definition.GROUP
VERSION = definition.VERSION
KIND = "ScheduledJob"
PLURAL = "scheduledjobs"
MAX_NAME = definition.MAX_NAME

RESOURCE = definition.Resource(
    kind=KIND,
    plural=PLURAL,
    short_name="sjob",
    text="A job on a schedule: each slot makes one run, with a stable id and a history.",
    spec_text="What to run, and when.",
    table=fields.TABLE,
    columns=(
        ("SCHEDULE", "string", ".spec.schedule", "When it falls due"),
        ("TIME ZONE", "string", ".spec.timeZone", "The zone of the schedule"),
        ("SUSPEND", "boolean", ".spec.suspend", "Whether it is suspended"),
        ("ACTIVE", "integer", ".status.active", "Live runs"),
        ("LAST", "date", ".status.lastScheduledTime", "Age of the newest slot that fell due"),
        ("NEXT", "string", ".status.nextRunTime", "When the next run starts"),
        ("AGE", "date", ".metadata.creationTimestamp", "Age of the object"),
    ),
    wide_columns=(
        ("EVERY", "string", ".spec.every", "Its interval, where it has one"),
        ("AT", "string", ".spec.at", "Its one instant, where it has one"),
    ),
    status={
        "nextRunTime": {
            **definition.TIME,
            "description": "When the next run starts: the next slot, later by the jitter of the job.",
        },
        "lastScheduledTime": {**definition.TIME, "description": "The newest slot that fell due."},
        "lastSuccessfulTime": {**definition.TIME, "description": "When a run last succeeded."},
        "active": {**definition.INT64, "description": "Live runs."},
        "consecutiveFailures": {**definition.INT64, "description": "Dead runs since the last one that succeeded."},
        "observedGeneration": {**definition.INT64, "description": "The generation that the rest speaks of."},
    },
    of_spec=cel.of_spec,
    of_field=cel.of_field,
    restart_policy="Never",
    needed_of_containers=("name", "image"),
)
