"""The one table of the fields of `JobClass.spec`."""

from __future__ import annotations

import enum

from clockhand.domain.table import Field, Kind, Table, string, template


class Allowed(enum.StrEnum):
    """What a class may leave to its users."""

    COMMAND = "Command"
    ARGS = "Args"
    ENV = "Env"


TABLE = Table(
    (
        Field(
            path="namespaces",
            kind=Kind.ARRAY,
            text='The namespaces whose jobs may be of the class; "*" is all. Who may use it there is a matter of RBAC.',
            low=1,
            high=1_000,
            required=True,
        ),
        string("namespaces[]", "A namespace.", high=63),
        *template(
            "The pod of each attempt, as in a PodTemplateSpec: image, service account and all that users do not set.",
            of="the pod",
            spec="A PodSpec; what users set is that of its main container.",
            required=True,
        ),
        Field(
            path="allow",
            kind=Kind.ARRAY,
            text="What users may set: Command, Args, Env; nothing if absent.",
            default=(),
            low=0,
            high=len(Allowed),
        ),
        Field(
            path="allow[]",
            kind=Kind.STRING,
            text="Command: the program. Args: its arguments. Env: variables beside those of the template.",
            enum=tuple(one.value for one in Allowed),
        ),
        Field(
            path="images",
            kind=Kind.ARRAY,
            text="Images of which users may choose one, * for any text; that of the template alone if absent.",
            default=(),
            low=0,
            high=100,
        ),
        string(
            "images[]",
            "An image with its registry, such as registry.example.org/reports:* for all of its tags.",
            high=1_024,
        ),
        Field(
            path="maxResources",
            kind=Kind.MAP,
            text="The resources of which users may say how much a pod needs, and the most of each; none if absent.",
            low=0,
            high=8,
        ),
        string("maxResources[]", "A quantity, such as 500m, 2 or 1Gi.", high=32),
    )
)
