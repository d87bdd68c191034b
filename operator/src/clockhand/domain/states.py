"""The states of a run and the moves between them.

One table, so that the SQL, the docs and the tests cannot disagree about what may follow what. A transition that is not
listed here is refused by the guard in the `WHERE` of the statement that would make it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping


class RunState(enum.StrEnum):
    """Where a run is. Live states are rows of `live_runs`, ended ones rows of `run_history`."""

    BLOCKED = "Blocked"  # waits for a place: job limit, Queue, Replace, catch-up order
    QUEUED = "Queued"  # ready, waits for a replica or a worker to claim it
    CLAIMED = "Claimed"  # an attempt has a token; its pod is being made or has not started, or a worker has it
    RUNNING = "Running"  # the attempt was seen to run
    STOPPING = "Stopping"  # asked to stop; keeps its place until its pod is gone or its worker has let go
    RETRYING = "Retrying"  # the last attempt did not end well; waits for its back-off
    SUCCEEDED = "Succeeded"
    DEAD = "Dead"  # gave up; the reason says why
    CANCELLED = "Cancelled"
    UNKNOWN = "Unknown"  # at most once, and the outcome was not seen

    @property
    def is_over(self) -> bool:
        return self in OVER


OVER = frozenset({RunState.SUCCEEDED, RunState.DEAD, RunState.CANCELLED, RunState.UNKNOWN})
LIVE = frozenset(RunState) - OVER
HOLDS_PLACE = frozenset({RunState.QUEUED, RunState.CLAIMED, RunState.RUNNING, RunState.STOPPING})
ATTEMPT_OPEN = frozenset({RunState.CLAIMED, RunState.RUNNING, RunState.STOPPING})
WAITING = frozenset({RunState.BLOCKED, RunState.QUEUED, RunState.RETRYING})


class RunKind(enum.StrEnum):
    """Why a run exists."""

    SLOT = "Slot"  # a due instant of the schedule; key is empty
    MANUAL = "Manual"  # somebody asked; key is the Idempotency-Key or the object's name
    BACKFILL = "Backfill"  # a past slot, asked for; key is the backfill's id


class SkipReason(enum.StrEnum):
    """Why a slot has no run."""

    CATCH_UP = "CatchUp"  # missed, and the catch-up policy keeps only newer ones
    DEADLINE = "Deadline"  # later than startingDeadlineSeconds
    FORBID = "Forbid"  # concurrencyPolicy Forbid, and a run was live
    QUEUE_FULL = "QueueFull"  # more than queueLimit runs wait already
    SUSPENDED = "Suspended"
    PAUSED = "Paused"  # after pauseAfterFailures dead runs in a row
    EDITED = "Edited"  # due under a spec that an edit replaced


class Reason(enum.StrEnum):
    """Why a run is in its state, beyond the state's own name."""

    CANCELLED = "Cancelled"  # somebody asked for it
    REPLACED = "Replaced"  # concurrencyPolicy Replace
    JOB_DELETED = "JobDeleted"
    NAMESPACE_DELETED = "NamespaceDeleted"
    ATTEMPT_TIMEOUT = "AttemptTimeout"
    PENDING_TIMEOUT = "PendingTimeout"
    RUN_TIMEOUT = "RunTimeout"
    ATTEMPTS_USED = "AttemptsUsed"
    FAIL_RULE = "FailRule"
    DISRUPTED = "Disrupted"
    POD_NAME_TAKEN = "PodNameTaken"
    POD_LOST = "PodLost"
    POD_REFUSED = "PodRefused"
    OUTCOME_UNSEEN = "OutcomeUnseen"
    JOB_LIMIT = "JobLimit"
    WAITS_FOR_STOP = "WaitsForStop"
    IN_ORDER = "InOrder"
    GROUP_LIMIT = "GroupLimit"  # of its concurrencyGroup
    HANDLER_FAILED = "HandlerFailed"
    LEASE_LOST = "LeaseLost"  # its worker fell silent
    WORKER_STOPPED = "WorkerStopped"  # before the handler was done


_S = RunState

TRANSITIONS: Mapping[RunState | None, frozenset[RunState]] = {
    None: frozenset({_S.QUEUED, _S.BLOCKED, _S.CLAIMED}),
    _S.BLOCKED: frozenset({_S.QUEUED, _S.CANCELLED, _S.DEAD}),
    _S.QUEUED: frozenset({_S.CLAIMED, _S.CANCELLED, _S.DEAD}),
    _S.RETRYING: frozenset({_S.QUEUED, _S.BLOCKED, _S.CANCELLED, _S.DEAD}),
    _S.CLAIMED: frozenset(
        {_S.RUNNING, _S.QUEUED, _S.SUCCEEDED, _S.RETRYING, _S.DEAD, _S.UNKNOWN, _S.STOPPING, _S.CANCELLED}
    ),
    _S.RUNNING: frozenset({_S.SUCCEEDED, _S.RETRYING, _S.DEAD, _S.UNKNOWN, _S.STOPPING, _S.CANCELLED}),
    _S.STOPPING: frozenset({_S.CANCELLED, _S.RETRYING, _S.DEAD, _S.UNKNOWN, _S.SUCCEEDED}),
    # a redrive moves the row back under the same run id; a Succeeded run is never run again
    _S.DEAD: frozenset({_S.QUEUED, _S.BLOCKED}),
    _S.UNKNOWN: frozenset({_S.QUEUED, _S.BLOCKED}),
    _S.CANCELLED: frozenset({_S.QUEUED, _S.BLOCKED}),
    _S.SUCCEEDED: frozenset(),
}


def may_become(old: RunState | None, new: RunState) -> bool:
    """Whether a run in state `old` (None: it does not exist yet) may move to `new`."""
    return new in TRANSITIONS[old]
