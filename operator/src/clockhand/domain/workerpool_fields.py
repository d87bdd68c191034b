"""The one table of the fields of `WorkerPool.spec`."""

from __future__ import annotations

import enum

from clockhand.domain.table import Field, Kind, Table, choice, integer, nested, string, template

_HOUR = 3_600
_DAY = 86_400
MOST_WORKERS = 1_000


class Dispatch(enum.StrEnum):
    """How runs reach the workers: they ask for them, or find them on Kafka topics."""

    POLL = "Poll"
    KAFKA = "Kafka"


_WHAT = (
    Field(
        path="handlers",
        kind=Kind.ARRAY,
        text="The handlers that the workers have; without it nobody is told that a job names one which they lack.",
        default=(),
        low=0,
        high=256,
    ),
    string("handlers[]", "A handler, such as email.send.", high=128),
    string("image", "The image of the workers, built on the worker image; that one itself if absent.", high=1_024),
    *template(
        "The pod of a worker, as in a PodTemplateSpec, in place of image.",
        of="the pods",
        spec="A PodSpec; its main container is the worker, and gets what a worker needs where it does not say otherwise.",
    ),
    Field(
        path="external",
        kind=Kind.BOOLEAN,
        text="The workers are run by somebody else, such as outside the cluster: none is started.",
        default=False,
    ),
)

_HOW_MANY = (
    integer("replicas", "How many workers; 1 if absent, where maxReplicas is absent too.", low=0, high=MOST_WORKERS),
    integer("minReplicas", "With maxReplicas, never fewer workers; 1 if absent.", low=0, high=MOST_WORKERS),
    integer("maxReplicas", "Scale the workers with the backlog, to this many at most.", low=1, high=MOST_WORKERS),
    integer(
        "scaleUpAfterSeconds",
        "With maxReplicas: more workers once a run has waited this long.",
        low=1,
        high=_DAY,
        default=10,
    ),
    integer(
        "scaleDownAfterSeconds",
        "With maxReplicas: fewer workers once some had nothing to do for this long.",
        low=10,
        high=_DAY,
        default=300,
    ),
    integer("concurrency", "Runs that one worker has at a time.", low=1, high=1_000, default=10),
    integer(
        "terminationGracePeriodSeconds",
        "How long a worker that is to end may take for the runs that it has.",
        low=10,
        high=_HOUR,
        default=60,
    ),
)

_DELIVERY = (
    choice(
        "dispatch",
        "Poll: workers ask the API for runs. Kafka: they find them on topics, and ask while no broker answers.",
        values=Dispatch,
        default=Dispatch.POLL,
    ),
    integer(
        "leaseSeconds",
        "A run whose worker has not been heard of for this long is taken from it.",
        low=10,
        high=_HOUR,
        default=90,
    ),
    integer(
        "heartbeatSeconds",
        "How often a worker says which runs it has; less than half of leaseSeconds.",
        low=1,
        high=_HOUR // 2,
        default=30,
    ),
    Field(
        path="allowedNamespaces",
        kind=Kind.ARRAY,
        text='Namespaces beside its own whose jobs may name the pool; "*" allows all.',
        default=(),
        low=0,
        high=1_000,
    ),
    string("allowedNamespaces[]", "A namespace.", high=63),
)

_BUILT_IN = (
    Field(
        path="execCommands",
        kind=Kind.MAP,
        text="The commands that the exec handler may run, by the name that a job's payload gives.",
        low=0,
        high=100,
    ),
    Field(path="execCommands[]", kind=Kind.ARRAY, text="The program and its arguments.", low=1, high=100),
    string("execCommands[][]", "The program, or an argument.", high=4_096),
    nested("http", "What the http handler may do."),
    Field(
        path="http.allowedHosts",
        kind=Kind.ARRAY,
        text="The hosts that it may call, by https unless they say http://; without any there is no http handler.",
        default=(),
        low=0,
        high=1_000,
    ),
    string("http.allowedHosts[]", "A host, such as api.example.org, *.example.org or http://hooks:8080.", high=270),
    Field(
        path="http.allowedNetworks",
        kind=Kind.ARRAY,
        text="Networks that are not public and where such hosts may be all the same, such as 10.1.0.0/16.",
        default=(),
        low=0,
        high=100,
    ),
    string("http.allowedNetworks[]", "A network.", high=43),
    string(
        "http.secretName",
        "A Secret of the pool's namespace, with a key to sign by in each entry; the entry's name is the key's id.",
        high=253,
    ),
)

TABLE = Table((*_WHAT, *_HOW_MANY, *_DELIVERY, *_BUILT_IN))
