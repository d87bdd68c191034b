"""The rules of the schema in CEL: what one value must look like, and what fields mean together.

They say on apply what the parser would say later. The parser stays the judge, since no rule reads a whole cron
expression and documents reach it by other ways too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from clockhand.domain import fields, forms, instants, spec, table

Rule = dict[str, object]
_FORMS = {
    "schedule": forms.CRON,
    "schedules[]": forms.CRON,
    "every": forms.INTERVAL,
    "at": (forms.INSTANT,),
    "startAt": (forms.INSTANT,),
    "endAt": (forms.INSTANT,),
    "handler": (forms.HANDLER,),
    "pool": (forms.POOL,),
    "run.class": (forms.CLASS,),
    "run.image": (forms.IMAGE,),
    "run.env[].name": (forms.VARIABLE,),
    "run.resources.requests[]": (forms.QUANTITY,),
    "run.resources.limits[]": (forms.QUANTITY,),
}


def of_spec() -> list[Rule]:
    """The rules on fields of the spec that depend on each other."""
    alternatives = ((_count(names) + " == 1", spec.one_of(names)) for names in (fields.ONE_OF_WHEN, fields.ONE_OF_WHAT))
    return [*(demand(*one) for one in alternatives), *_together()]


def of_field(row: table.Field) -> list[Rule]:
    """The rules on the value of one field."""
    found = by_form(_FORMS)(row)
    if row.path == "retry.backoff":
        sentence = f"spec.retry.backoff.maxSeconds {spec.LESS_THAN_INITIAL}"
        found.append(demand("self.maxSeconds >= self.initialSeconds", sentence, at="maxSeconds"))
    if row.path == "retry.rules[]":
        found.append(demand("has(self.onExitCodes) || has(self.onErrors)", f"spec.retry.rules {spec.NEEDS_MATCH}"))
    return found


def by_form(known: Mapping[str, Sequence[forms.Form]]) -> Callable[[table.Field], list[Rule]]:
    """The rules that a field's value has the forms that its path is known for."""
    return lambda row: [matching(row, form) for form in known.get(row.path, ())]


def matching(row: table.Field, form: forms.Form) -> Rule:
    """The value of a field has this form."""
    rule = f"{'' if form.wanted else '!'}self.matches({_raw(form.pattern)})"
    if form is forms.INSTANT:
        first, after = instants.rfc3339(instants.EPOCH), instants.rfc3339(instants.END)
        rule += f" && timestamp(self) >= timestamp('{first}') && timestamp(self) < timestamp('{after}')"
    return demand(rule, f"spec.{row.path.replace('[]', '')} {form.sentence}")


def demand(rule: str, message: str, *, at: str | None = None) -> Rule:
    """What must be true of the value, and what is said where it is not; `at` names the field that is blamed."""
    made: Rule = {"rule": rule, "message": message}
    return made if at is None else {**made, "fieldPath": f".{at}"}


def _together() -> Iterator[Rule]:
    zone, dst = fields.TABLE.default("timeZone", str), spec.Dst()
    for kind, sentence in spec.MEANINGLESS.items():
        yield demand(f"!has(self.{kind}) || self.timeZone == '{zone}'", f"spec.timeZone {sentence}", at="timeZone")
        usual = f"self.dst.gap == '{dst.gap}' && self.dst.overlap == '{dst.overlap}'"
        yield demand(f"!has(self.{kind}) || {usual}", f"spec.dst {sentence}", at="dst")
    for name in ("startAt", "endAt"):
        yield demand(f"!has(self.at) || !has(self.{name})", f"spec.{name} {spec.NOT_FOR_AT}", at=name)
    yield demand("has(self.handler) || !has(self.pool)", f"spec.pool {spec.ONLY_FOR_HANDLER}", at="pool")
    ttl = "ttlSecondsAfterFinished"
    yield demand(f"has(self.at) || !has(self.{ttl})", f"spec.{ttl} {spec.ONLY_FOR_AT}", at=ttl)
    absent = [f"!has(self.{name}) || !self.{name}.matches({_FORM})" for name in ("startAt", "endAt")]
    in_order = "timestamp(self.endAt) >= timestamp(self.startAt)"
    yield demand(" || ".join([*absent, in_order]), f"spec.endAt {spec.ENDS_BEFORE_START}", at="endAt")


def _count(names: tuple[str, ...]) -> str:
    return " + ".join(f"(has(self.{name}) ? 1 : 0)" for name in names)


def _raw(pattern: str) -> str:
    if "'" in pattern:
        raise ValueError(f"{pattern} would end the literal that it stands in")
    return f"r'{pattern}'"


_FORM = _raw(forms.INSTANT.pattern)
