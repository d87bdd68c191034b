"""What states and moves of a run mean, in sentences for people: the texts behind docs/state-machine.md.

They stand apart from the table of moves, which decides; whoever adds a move there is made to explain it here.
"""

from __future__ import annotations

from collections.abc import Mapping

from clockhand.domain.states import Reason, RunState, SkipReason

_S = RunState

STATES: Mapping[RunState, str] = {
    _S.BLOCKED: "Waits for a place: the job's limit, its group's, a run that is to be replaced, or the order of a catch-up.",
    _S.QUEUED: "Has its place and waits for a replica, or a worker of its pool, to claim it.",
    _S.CLAIMED: "An attempt is open, with a number and a token: its pod has not started yet, or a worker has it.",
    _S.RUNNING: "The attempt's main container was seen to run, or its worker has said that it has it still.",
    _S.STOPPING: "The attempt was asked to stop. The run keeps its place until its pod is gone or its worker has let go.",
    _S.RETRYING: "The last attempt did not end well; the next one waits for the end of its back-off.",
    _S.SUCCEEDED: "The main container ended with exit code 0, or the handler returned.",
    _S.DEAD: "Given up. The reason says why.",
    _S.CANCELLED: "Ended on purpose: asked for, replaced, or its job or namespace is gone.",
    _S.UNKNOWN: "`delivery: AtMostOnce`, and the outcome of the attempt was not seen: nobody tries again.",
}

_REDRIVEN = "A retry was asked for: the same run id, the next attempt, counters at zero."
_REDRIVEN_AT_ONCE = "The same where it has its place at once; made as Blocked, then Queued, in one transaction."

MOVES: Mapping[tuple[RunState | None, RunState], str] = {
    (None, _S.QUEUED): "A slot fired, or somebody asked for a run, and there was a place.",
    (None, _S.BLOCKED): "A slot fired, or somebody asked for a run, and there was no place.",
    (
        None,
        _S.CLAIMED,
    ): "Fired straight to a waiting worker of its pool.",
    (_S.BLOCKED, _S.QUEUED): "A place became free and it is this run's turn.",
    (_S.BLOCKED, _S.CANCELLED): "Cancelled, replaced, or its job was deleted.",
    (_S.BLOCKED, _S.DEAD): "`runTimeoutSeconds` is over.",
    (
        _S.QUEUED,
        _S.CLAIMED,
    ): "A replica that holds the shard or a worker of the pool took it; the attempt number rises by one.",
    (_S.QUEUED, _S.CANCELLED): "Cancelled, replaced, or its job was deleted.",
    (_S.QUEUED, _S.DEAD): "`runTimeoutSeconds` is over.",
    (_S.RETRYING, _S.QUEUED): "The back-off is over, or somebody asked for a retry, and there is a place.",
    (_S.RETRYING, _S.BLOCKED): "The back-off is over, and the run waits for a place of its concurrency group.",
    (_S.RETRYING, _S.CANCELLED): "Cancelled, replaced, or its job was deleted.",
    (_S.RETRYING, _S.DEAD): "`runTimeoutSeconds` is over.",
    (_S.CLAIMED, _S.RUNNING): "The main container was seen to run, or the worker says that it has begun.",
    (
        _S.CLAIMED,
        _S.QUEUED,
    ): "Handed back: the API server could not answer this replica for several tries, or the worker did not start it.",
    (_S.CLAIMED, _S.SUCCEEDED): "The pod, or the worker, was done before it was seen to run.",
    (_S.CLAIMED, _S.RETRYING): "The attempt failed or was disrupted, and another one is left.",
    (_S.CLAIMED, _S.DEAD): "The attempt failed, and none is left; or the API server will never take this pod.",
    (_S.CLAIMED, _S.UNKNOWN): "At most once, and it is not known whether the attempt ran, or its worker fell silent.",
    (_S.CLAIMED, _S.STOPPING): "Cancelled, replaced, `onDelete: Cancel`, or past a deadline.",
    (_S.CLAIMED, _S.CANCELLED): "Its namespace is going away.",
    (_S.RUNNING, _S.SUCCEEDED): "Exit code 0, or the handler returned.",
    (_S.RUNNING, _S.RETRYING): "The attempt failed, was disrupted or lost its worker, and another one is left.",
    (_S.RUNNING, _S.DEAD): "The attempt failed, and none is left, or a Fail rule matched or the handler gave up.",
    (_S.RUNNING, _S.UNKNOWN): "At most once, and the outcome was not seen.",
    (_S.RUNNING, _S.STOPPING): "Cancelled, replaced, `onDelete: Cancel`, or past a deadline.",
    (_S.RUNNING, _S.CANCELLED): "Its namespace is going away.",
    (_S.STOPPING, _S.CANCELLED): "The pod is gone or the worker has let go, and the stop was a cancellation.",
    (
        _S.STOPPING,
        _S.RETRYING,
    ): "The pod is gone or the worker has let go, the stop was a time-out of the attempt, and another one is left.",
    (
        _S.STOPPING,
        _S.DEAD,
    ): "The pod is gone or the worker has let go, and the stop was a time-out that leaves no further attempt.",
    (_S.STOPPING, _S.UNKNOWN): "At most once, and the pod or the worker went without an outcome.",
    (_S.STOPPING, _S.SUCCEEDED): "It had finished before the stop reached it.",
    (_S.DEAD, _S.QUEUED): _REDRIVEN_AT_ONCE,
    (_S.DEAD, _S.BLOCKED): _REDRIVEN,
    (_S.UNKNOWN, _S.QUEUED): _REDRIVEN_AT_ONCE,
    (_S.UNKNOWN, _S.BLOCKED): _REDRIVEN,
    (_S.CANCELLED, _S.QUEUED): _REDRIVEN_AT_ONCE,
    (_S.CANCELLED, _S.BLOCKED): _REDRIVEN,
}

SKIPS: Mapping[SkipReason, str] = {
    SkipReason.CATCH_UP: "Missed, and `catchUp` keeps only newer ones.",
    SkipReason.DEADLINE: "Fired later than `startingDeadlineSeconds` after its instant.",
    SkipReason.FORBID: "`concurrencyPolicy: Forbid`, and a run was live.",
    SkipReason.QUEUE_FULL: "`queueLimit` runs were waiting already.",
    SkipReason.SUSPENDED: "The job was suspended.",
    SkipReason.PAUSED: "The job was paused after too many dead runs in a row.",
    SkipReason.EDITED: "The job could not fire under a spec that an edit has replaced since, "
    "or new zone data moved the slot into the past before it was due.",
}

REASONS: Mapping[Reason, str] = {
    Reason.CANCELLED: "Somebody cancelled the run.",
    Reason.REPLACED: "`concurrencyPolicy: Replace`, and a later slot fell due.",
    Reason.JOB_DELETED: "The job was deleted, so that there is no further attempt.",
    Reason.NAMESPACE_DELETED: "The namespace was going away or gone.",
    Reason.ATTEMPT_TIMEOUT: "The attempt ran for longer than `attemptTimeoutSeconds`.",
    Reason.PENDING_TIMEOUT: "The pod had not started after `pendingTimeoutSeconds`.",
    Reason.RUN_TIMEOUT: "`runTimeoutSeconds` was over, all attempts included.",
    Reason.ATTEMPTS_USED: "`retry.maxAttempts` attempts failed.",
    Reason.FAIL_RULE: "The exit code or the error matched a rule with `action: Fail`.",
    Reason.DISRUPTED: "More than `retry.maxDisruptions` attempts were lost to the cluster, or with their workers.",
    Reason.POD_NAME_TAKEN: "A pod that is not of this attempt has its name; that pod was left alone.",
    Reason.POD_LOST: "The pod is not there, and its outcome was not seen.",
    Reason.POD_REFUSED: "The API server will not take this pod, however often it is asked.",
    Reason.OUTCOME_UNSEEN: "At most once, and whether the attempt did its work is not known.",
    Reason.JOB_LIMIT: "Waits for a place of its job.",
    Reason.WAITS_FOR_STOP: "Waits until the run that it replaces is gone.",
    Reason.IN_ORDER: "Waits until every earlier run of its catch-up has ended.",
    Reason.GROUP_LIMIT: "Waits for a place of its `concurrencyGroup`.",
    Reason.HANDLER_FAILED: "The handler said that trying again will not help.",
    Reason.LEASE_LOST: "The worker fell silent for longer than its lease.",
    Reason.WORKER_STOPPED: "The worker was stopped before the handler was done.",
}
