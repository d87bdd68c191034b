"""Every metric of the product, by Prometheus' conventions: one place, so that names and units stay consistent.

Labels come from bounded sets alone; the names of jobs and owners are never among them.
"""

from __future__ import annotations

import functools
import importlib.metadata
import math

from prometheus_client import Counter, Gauge, Histogram

from clockhand.domain import states

_LATENESS = (0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 30, 60, 300, 1800)
_RUN = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14_400, 86_400)
_CALL = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)
_OTHER = "Other"
UNKNOWN = math.nan
"""Of a gauge that only one replica at a time measures, in all others: it alarms nobody and changes no maximum."""

BUILD_INFO = Gauge(
    "clockhand_build_info", "Always 1: which process this is, and of which release", ("process", "version")
)
OLDEST_DUE = Gauge(
    "clockhand_oldest_due_seconds",
    "How long the oldest due slot of the held shards has been waiting; it grows while nobody can look",
)
SHARDS_HELD = Gauge("clockhand_shards_held", "Shards that this replica holds, and may act on", ("role",))
RUNS_FIRED = Counter("clockhand_runs_fired_total", "Runs made from due slots")
RUNS_BACKFILLED = Counter("clockhand_runs_backfilled_total", "Runs made from past slots by backfills")
SLOTS_SKIPPED = Counter("clockhand_slots_skipped_total", "Slots that did not run", ("reason",))
RUNS_CLAIMED = Counter("clockhand_runs_claimed_total", "Attempts claimed")
RUNS_ENDED = Counter("clockhand_runs_ended_total", "Runs that are over", ("state", "reason"))
RUN_SECONDS = Histogram(
    "clockhand_run_duration_seconds",
    "From the start of a run's last attempt to its end; of runs that ended with an attempt",
    ("state",),
    buckets=_RUN,
)
LIVE_RUNS = Gauge(
    "clockhand_live_runs",
    "Runs that are not over and not Blocked, for pods and for pools; 10,000 stands for that many or more. Of one operator",
    ("state", "mode"),
)
BLOCKED_RUNS = Gauge(
    "clockhand_blocked_runs", "Runs that wait for a place, by whose limit; counted as those above", ("reason",)
)
OLDEST_QUEUED = Gauge(
    "clockhand_oldest_queued_seconds",
    "How long the oldest Queued run has been ready, of the runs looked at, 10,000 at most. Of one operator",
    ("mode",),
)
LATENESS = Histogram(
    "clockhand_lateness_seconds",
    "From a run's scheduled instant to the acceptance of its first pod, or until a worker is given it",
    buckets=_LATENESS,
)
STALE_WRITES = Counter("clockhand_stale_writes_total", "Writes refused since a newer token or shard holder exists")
LEASES_LAPSED = Counter("clockhand_leases_lapsed_total", "Attempts ended since their worker fell silent")
RESCUES_PUT_OFF = Counter(
    "clockhand_rescues_put_off_total", "Times that most workers of a pool fell silent at once: can they reach the API?"
)
HISTORY_CONFLICTS = Counter("clockhand_history_conflicts_total", "Ended runs that history already had: look into it")
JOBS_PAUSED = Counter("clockhand_jobs_paused_total", "Jobs paused after as many Dead runs in a row as they allow")
EVENTS_POSTED = Counter("clockhand_events_posted_total", "Events made on objects")
EVENTS_DROPPED = Counter(
    "clockhand_events_dropped_total", "News that no event tells: too many, or the API server refused", ("reason",)
)
OBJECTS_EXPIRED = Counter("clockhand_objects_expired_total", "Objects of one-shots deleted when their time was over")
CLOCK_PAUSED = Gauge("clockhand_clock_paused", "1 while the database's clock has jumped and firing waits, else 0")
CLOCK_STEP = Gauge("clockhand_clock_step_seconds", "By how much the database's clock has jumped, until that is settled")
LIMITS_STALE = Gauge(
    "clockhand_limits_stale", "1 while the file of limits cannot be used and older limits hold, else 0"
)
WATCH_AGE = Gauge(
    "clockhand_watch_age_seconds",
    "Since a watch of the cluster last brought an event, a bookmark or a list",
    ("watch",),
)
KUBE_REQUESTS = Counter(
    "clockhand_kube_requests_total",
    "Calls of the cluster's API server; 429 are those that it throttled, `none` those without an answer",
    ("verb", "code"),
)
KUBE_WRITES = Gauge("clockhand_kube_writes_in_flight", "Writes to the API server that are under way")
KUBE_WRITE_LIMIT = Gauge(
    "clockhand_kube_write_limit", "Writes that may be under way at once: it falls where the API server is overloaded"
)
KUBE_WRITE_WAIT = Histogram(
    "clockhand_kube_write_wait_seconds", "How long writes to the API server waited for that limit", buckets=_CALL
)
DATABASE_CONNECTIONS = Gauge(
    "clockhand_database_connections", "Connections to the database, in use and idle", ("pool", "state")
)
DATABASE_MOST = Gauge("clockhand_database_connections_max", "Connections that a pool may have at most", ("pool",))
DATABASE_WAITING = Gauge("clockhand_database_waiting", "Who waits for a connection at this moment", ("pool",))
DATABASE_WAIT = Histogram(
    "clockhand_database_wait_seconds", "How long it took to get a connection", ("pool",), buckets=_CALL
)
DATABASE_ERRORS = Counter(
    "clockhand_database_errors_total",
    "What the database could not do: NoConnection in time, ReadOnly, TooLong, Lost, Uncertain where COMMIT was lost",
    ("kind",),
)
QUERY_SECONDS = Histogram(
    "clockhand_query_seconds",
    "From sending a statement to its answer, by the statement's name",
    ("query",),
    buckets=_CALL,
)
OLDEST_TRANSACTION = Gauge(
    "clockhand_database_oldest_transaction_seconds",
    "Age of the oldest transaction that keeps dead rows from being cleared away. Of one operator",
)
HORIZON_LAG = Gauge(
    "clockhand_database_horizon_lag_transactions",
    "Transactions since the oldest one whose dead rows have to be kept, by whomever. Of one operator",
)
PARTITIONS_AHEAD = Gauge(
    "clockhand_partitions_ahead_seconds", "How far into the future there are partitions for what ends. Of one operator"
)
RETENTION_OVERDUE = Gauge(
    "clockhand_retention_overdue_seconds", "For how long the oldest partition should have been dropped. Of one operator"
)
LOOP_ERRORS = Counter("clockhand_loop_errors_total", "Loop steps that failed and will be tried again", ("loop",))
PODS_CREATED = Counter("clockhand_pods_created_total", "Pods that the API server accepted")
PODS_ADOPTED = Counter("clockhand_pods_adopted_total", "Pods found under their name and taken over")
API_REQUESTS = Counter("clockhand_api_requests_total", "Calls of the API, of workers and REST", ("call", "code"))
API_WAITING = Gauge("clockhand_api_waiting_claims", "Claims of workers that wait in this process")
REST_SHED = Counter(
    "clockhand_rest_shed_total", "Requests for the REST API told to come again, since there was no room"
)
REST_ABANDONED = Counter(
    "clockhand_rest_abandoned_total", "Answers of the REST API that their clients did not take in time"
)
RUNS_REQUESTS = Counter("clockhand_runs_api_requests_total", "Calls of the runs API", ("method", "code"))
RUNS_WATCHES = Gauge("clockhand_runs_api_watches", "Watches of runs that are open")
RUNS_WATCHES_CUT = Counter(
    "clockhand_runs_api_watches_cut_total", "Watches told to list anew: too slow, or the log was cut"
)
KAFKA_MESSAGES = Counter(
    "clockhand_kafka_messages_total", "Runs sent out as messages: acknowledged by the brokers, or failed", ("outcome",)
)
WORKER_ATTEMPTS = Counter("clockhand_worker_attempts_total", "Attempts that this worker reports", ("outcome",))
WORKER_RUNNING = Gauge("clockhand_worker_running", "Attempts that run in this worker")
WORKER_LOST = Counter("clockhand_worker_leases_lost_total", "Attempts ended since their leases could not be renewed")
WORKER_MESSAGES = Counter(
    "clockhand_worker_messages_total", "Messages by what became of them: started, refused, unreadable", ("outcome",)
)

_ENDS = {
    states.RunState.SUCCEEDED: ("",),
    states.RunState.DEAD: (
        states.Reason.ATTEMPTS_USED,
        states.Reason.FAIL_RULE,
        states.Reason.DISRUPTED,
        states.Reason.POD_REFUSED,
        states.Reason.RUN_TIMEOUT,
    ),
    states.RunState.CANCELLED: (states.Reason.CANCELLED,),
    states.RunState.UNKNOWN: (states.Reason.OUTCOME_UNSEEN,),
}
_REASONS = frozenset(states.Reason)


def begin(process: str) -> None:
    """Says which process this is.

    Counters of what every installation may meet begin at zero here: one that appears with its first event hides it from
    `rate` and `increase`.
    """
    BUILD_INFO.labels(process=process, version=importlib.metadata.version("clockhand")).set(1)
    for state, reasons in _ENDS.items():
        for reason in reasons:
            RUNS_ENDED.labels(state=state.value, reason=str(reason))
    for skipped in states.SkipReason:
        SLOTS_SKIPPED.labels(reason=skipped.value)
    for kind in ("NoConnection", "ReadOnly", "TooLong", "Lost", "Uncertain"):
        DATABASE_ERRORS.labels(kind=kind)


def count_end(state: str, reason: str | None, count: int = 1) -> None:
    """Counts runs that are over. A reason that is none of ours, such as the kubelet's word, is one of many."""
    known = not reason or reason in _REASONS
    RUNS_ENDED.labels(state=state, reason=(reason or "") if known else _OTHER).inc(count)


@functools.cache
def query_seconds(query: str) -> Histogram:
    """Where the time of a statement goes, found once."""
    return QUERY_SECONDS.labels(query=query)


@functools.cache
def run_seconds(state: str) -> Histogram:
    """Where the duration of runs goes that ended in a state, found once."""
    return RUN_SECONDS.labels(state=state)


for _unmeasured in (OLDEST_TRANSACTION, HORIZON_LAG, PARTITIONS_AHEAD, RETENTION_OVERDUE):
    _unmeasured.set(UNKNOWN)
# a second name of the last one would be a second row in its reference
del _unmeasured
