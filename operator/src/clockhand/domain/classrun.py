"""What a job says of its pods that are of a JobClass: the class, and what that leaves to its users."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from clockhand.domain import fields, forms


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """A variable of the environment."""

    name: str
    value: str = fields.TABLE.default("run.env[].value", str)


class Resources(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a pod needs, by the names that Kubernetes has for resources."""

    requests: dict[str, str] = msgspec.field(default_factory=dict)
    limits: dict[str, str] = msgspec.field(default_factory=dict)


class Run(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A pod as a JobClass has it. None stands for what the class says."""

    class_name: str = msgspec.field(name="class")
    image: str | None = None
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None
    env: tuple[Variable, ...] = ()
    resources: Resources = Resources()

    def texts(self) -> Iterator[tuple[str, str | None, forms.Form]]:
        """Those that have a form, each with the path of its field."""
        yield "run.class", self.class_name, forms.CLASS
        yield "run.image", self.image, forms.IMAGE
        yield from ((f"run.env[{number}].name", one.name, forms.VARIABLE) for number, one in enumerate(self.env))
        for kind, given in (("requests", self.resources.requests), ("limits", self.resources.limits)):
            yield from ((f"run.resources.{kind}.{name}", text, forms.QUANTITY) for name, text in given.items())
