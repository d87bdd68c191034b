"""The definition of WorkerPool, with the rules that say on apply what the parser would say later."""

from __future__ import annotations

from collections.abc import Iterator

from clockhand.domain import cel, definition, forms, workerpool, workerpool_fields

KIND = "WorkerPool"
PLURAL = "workerpools"
_FORMS = {
    "handlers[]": (forms.HANDLER,),
    "allowedNamespaces[]": (forms.NAMESPACE,),
    "http.allowedHosts[]": (forms.HOST,),
    "http.allowedNetworks[]": (forms.NETWORK,),
    "http.secretName": (forms.SECRET,),
    "image": (forms.IMAGE,),
}


def _together() -> Iterator[cel.Rule]:
    for name in workerpool.NOT_OF_EXTERNAL:
        yield cel.demand(f"!self.external || !has(self.{name})", f"spec.{name} {workerpool.NOT_EXTERNAL}", at=name)
    yield cel.demand(
        "!has(self.image) || !has(self.template)", f"spec.image {workerpool.IMAGE_OR_TEMPLATE}", at="image"
    )
    yield cel.demand(
        "!has(self.replicas) || !has(self.maxReplicas)", f"spec.replicas {workerpool.FIXED_OR_SCALED}", at="replicas"
    )
    yield cel.demand(
        "!has(self.minReplicas) || has(self.maxReplicas)",
        f"spec.minReplicas {workerpool.ONLY_SCALED}",
        at="minReplicas",
    )
    yield cel.demand(
        "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
        f"spec.maxReplicas {workerpool.LESS_THAN_MIN}",
        at="maxReplicas",
    )
    yield cel.demand(
        "self.heartbeatSeconds * 2 < self.leaseSeconds",
        f"spec.heartbeatSeconds {workerpool.TOO_SELDOM}",
        at="heartbeatSeconds",
    )


RESOURCE = definition.Resource(
    kind=KIND,
    plural=PLURAL,
    short_name="wpool",
    text="A pool of workers: warm processes that take the runs of jobs with a handler.",
    spec_text="Which workers, how many, and for whom.",
    table=workerpool_fields.TABLE,
    columns=(
        ("READY", "integer", ".status.readyReplicas", "Workers that are ready"),
        ("WANTED", "integer", ".status.replicas", "Workers that there should be"),
        ("BACKLOG", "integer", ".status.backlog", "Runs that wait for a worker"),
        ("OLDEST", "integer", ".status.oldestWaitingSeconds", "Seconds for which one of them has waited"),
        ("AGE", "date", ".metadata.creationTimestamp", "Age of the object"),
    ),
    wide_columns=(
        ("RUNNING", "integer", ".status.running", "Runs that workers have"),
        ("DISPATCH", "string", ".spec.dispatch", "How runs reach the workers"),
        ("HANDLERS", "string", ".spec.handlers", "What the workers can do"),
    ),
    status={
        "replicas": {**definition.INT64, "description": "Workers that there should be."},
        "readyReplicas": {**definition.INT64, "description": "Workers that are ready."},
        "backlog": {**definition.INT64, "description": "Runs that wait for a worker; counted to 5,000."},
        "oldestWaitingSeconds": {**definition.INT64, "description": "For how long one of them has waited."},
        "running": {**definition.INT64, "description": "Runs that workers have; counted to 5,000."},
        "selector": {"type": "string", "description": "The labels of the pods, as a selector."},
        "observedGeneration": {**definition.INT64, "description": "The generation that the rest speaks of."},
    },
    of_spec=lambda: list(_together()),
    of_field=cel.by_form(_FORMS),
    restart_policy="Always",
    needed_of_containers=("name",),
    subresources={
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    },
    of_object=(cel.demand("!self.metadata.name.contains('.')", f"metadata.name {workerpool.NO_DOTS}"),),
)
