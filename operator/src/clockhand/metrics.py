"""Every metric of the product, by Prometheus' conventions: one place, so that names and units stay consistent.

Labels come from bounded sets alone; the names of jobs and owners are never among them.
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

_LATENESS = (0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 30, 60, 300, 1800)

OLDEST_DUE = Gauge("clockhand_oldest_due_seconds", "How long the oldest due slot of the held shards has been waiting")
SHARDS_HELD = Gauge("clockhand_shards_held", "Shards that this replica holds")
RUNS_FIRED = Counter("clockhand_runs_fired_total", "Runs made from due slots")
RUNS_BACKFILLED = Counter("clockhand_runs_backfilled_total", "Runs made from past slots by backfills")
SLOTS_SKIPPED = Counter("clockhand_slots_skipped_total", "Slots that did not run", ("reason",))
RUNS_CLAIMED = Counter("clockhand_runs_claimed_total", "Attempts claimed")
RUNS_ENDED = Counter("clockhand_runs_ended_total", "Runs that are over", ("state",))
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
OBJECTS_EXPIRED = Counter("clockhand_objects_expired_total", "Objects of one-shots deleted when their time was over")
CLOCK_PAUSED = Gauge("clockhand_clock_paused", "1 while the database's clock has jumped and firing waits, else 0")
CLOCK_STEP = Gauge("clockhand_clock_step_seconds", "By how much the database's clock has jumped, until that is settled")
LIMITS_STALE = Gauge(
    "clockhand_limits_stale", "1 while the file of limits cannot be used and older limits hold, else 0"
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
