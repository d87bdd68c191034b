"""Files that are made from the code and committed, so that a reader needs no tool and a review shows what changed.

`python -m tests.support.generated` writes them; with `--check` it writes nothing, names those that are stale and exits 1.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import click
import msgspec
from prometheus_client import Metric
from prometheus_client.metrics import MetricWrapperBase
from tests.support import chart_values, manifests, meanings, schema_dump

from clockhand import config, errors, metrics
from clockhand.client import config as clients
from clockhand.domain import (
    crd,
    definition,
    fields,
    jobclass_crd,
    jobclass_fields,
    states,
    table,
    workerpool_crd,
    workerpool_fields,
)
from clockhand.worker import config as workers

ROOT = Path(__file__).parents[2]
_NOT_A_VALUE = "?"
_SENTENCE = re.compile(r"is (?:not (?P<form>.+)|neither (?P<either>.+) nor (?P<other>.+)|none of (?P<choices>.+))")


def main(check: bool) -> int:
    """Writes every generated file, or compares them; returns the exit code."""
    stale = []
    for name, make in {**FILES, **FROM_A_SERVER}.items():
        path, text = ROOT / name, make()
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not check:
            path.write_text(text, encoding="utf-8")
    for name in stale:
        click.echo(f"{name} is stale: run `make generate`" if check else f"wrote {name}", err=check)
    return 1 if check and stale else 0


def state_machine() -> str:
    """The states of a run and their moves, as a diagram and as tables."""
    if missing := _moves().symmetric_difference(meanings.MOVES):
        raise LookupError(f"tests/support/meanings.py and domain/states.py differ in {sorted(map(str, missing))}")
    lines = [
        *_heading("The states of a run", "operator/src/clockhand/domain/states.py"),
        "A run that is not over is a row of `live_runs`; the transaction that ends it moves its row to `run_history`.",
        "A move that is not in this table is refused by the `WHERE` of the statement that would make it.",
        "",
        "```mermaid",
        "stateDiagram-v2",
        *_diagram(),
        "```",
        "",
        *_table(("State", "Over", "Holds a place", "Meaning"), map(_state_row, states.RunState)),
        "A place counts against the job's limit, see [semantics](semantics.md#concurrency).",
        "",
        "## Moves",
        "",
        *_table(("From", "To", "When"), _move_rows()),
        "## Reasons",
        "",
        "`Running`, `Succeeded` and most other states need none. An attempt's own record also holds what the kubelet or the",
        "API server called it, such as `OOMKilled`, `Evicted` or `QuotaExceeded`.",
        "",
        *_table(("Reason", "Meaning"), ((f"`{reason}`", meanings.REASONS[reason]) for reason in states.Reason)),
        "## Slots without a run",
        "",
        "They are rows of `skips`, one for any number of slots with the same reason; lists show them with state `Skipped`.",
        "",
        *_table(("Reason", "Meaning"), ((f"`{reason}`", meanings.SKIPS[reason]) for reason in states.SkipReason)),
    ]
    return _text(lines)


def field_reference() -> str:
    """Every field of a spec."""
    columns = ("Field", "Type", "Default", "Bounds", "Meaning")
    lines = [
        *_heading("Fields", "fields.py, workerpool_fields.py and jobclass_fields.py of operator/src/clockhand/domain/"),
        "## ScheduledJob.spec",
        "",
        f"Exactly one of {_listed(fields.ONE_OF_WHEN)} and exactly one of {_listed(fields.ONE_OF_WHAT)} is set. What the",
        "fields mean together is told in [semantics](semantics.md).",
        "",
        *_table(columns, map(_field_row, fields.TABLE)),
        "## WorkerPool.spec",
        "",
        "At most one of `image` and `template` is set, and `replicas` or `maxReplicas`. What Clockhand makes of it is told",
        "in [worker pools](workerpools.md).",
        "",
        *_table(columns, map(_field_row, workerpool_fields.TABLE)),
        "## JobClass.spec",
        "",
        "What comes of it for jobs with `run` is told in [job classes](jobclasses.md).",
        "",
        *_table(columns, map(_field_row, jobclass_fields.TABLE)),
    ]
    return _text(lines)


def settings() -> str:
    """Every environment variable of a Clockhand process."""
    lines = [
        *_heading("Settings", "operator/src/clockhand/config.py"),
        "Read once at the start, from the environment. Every mistake is reported at the same time, with exit code 2.",
        "Durations are in seconds; an empty variable counts as absent.",
        "",
        *_table(("Variable", "Value", "Default", "Meaning"), _setting_rows(config.Settings, _server_settings)),
        "## Of a worker",
        "",
        "`clockhand worker` and scripts with `Worker.run()` read these; [workers](workers.md) tells what they are for.",
        "",
        *_table(("Variable", "Value", "Default", "Meaning"), _setting_rows(workers.Settings, _worker_settings)),
        "## Of a client",
        "",
        "The [commands for people](cli.md) and the [Python client](python-client.md) read these. Where they are not set, a",
        "`clockhand dev` on the same machine is asked, if there is one.",
        "",
        *_table(("Variable", "Value", "Default", "Meaning"), _setting_rows(clients.Settings, _client_settings)),
    ]
    return _text(lines)


def metric_reference() -> str:
    """Every metric of the product."""
    lines = [
        *_heading("Metrics", "operator/src/clockhand/metrics.py"),
        "Served in Prometheus' text format at `/metrics` of the health port of each process, beside those of the Python",
        "runtime. What to alert on is told in [operations](operations.md#what-to-watch).",
        "",
        *_table(("Metric", "Type", "Labels", "Meaning"), _metric_rows()),
    ]
    return _text(lines)


FILES: Mapping[str, Callable[[], str]] = {
    "crds/scheduledjob.yaml": functools.partial(definition.text, crd.RESOURCE),
    "crds/workerpool.yaml": functools.partial(definition.text, workerpool_crd.RESOURCE),
    "crds/jobclass.yaml": functools.partial(definition.text, jobclass_crd.RESOURCE),
    "charts/scheduler/files/crds/jobclass.yaml": functools.partial(definition.text, jobclass_crd.RESOURCE),
    "charts/scheduler/files/crds/scheduledjob.yaml": functools.partial(definition.text, crd.RESOURCE),
    "charts/scheduler/files/crds/workerpool.yaml": functools.partial(definition.text, workerpool_crd.RESOURCE),
    "charts/scheduler/README.md": lambda: chart_values.readme(chart_values.current()),
    "charts/scheduler/values.schema.json": lambda: chart_values.schema(chart_values.current()),
    "deploy/clockhand.yaml": manifests.text,
    "docs/state-machine.md": state_machine,
    "docs/fields.md": field_reference,
    "docs/settings.md": settings,
    "docs/metrics.md": metric_reference,
}
FROM_A_SERVER: Mapping[str, Callable[[], str]] = {
    str(schema_dump.FILE.relative_to(ROOT)): schema_dump.current,
}
"""What needs a PostgreSQL to be made: some seconds more."""


def _moves() -> set[tuple[states.RunState | None, states.RunState]]:
    return {(old, new) for old, targets in states.TRANSITIONS.items() for new in targets}


def _diagram() -> Iterator[str]:
    for old, targets in states.TRANSITIONS.items():
        for new in _in_order(targets):
            yield f"    {old or '[*]'} --> {new}"


def _in_order(chosen: frozenset[states.RunState]) -> Sequence[states.RunState]:
    return [state for state in states.RunState if state in chosen]


def _state_row(state: states.RunState) -> Sequence[str]:
    places = "yes" if state in states.HOLDS_PLACE else "no"
    return (f"`{state}`", "yes" if state.is_over else "no", places, meanings.STATES[state])


def _move_rows() -> Iterator[Sequence[str]]:
    for old, targets in states.TRANSITIONS.items():
        for new in _in_order(targets):
            yield (f"`{old}`" if old else "new", f"`{new}`", meanings.MOVES[(old, new)])


def _field_row(row: table.Field) -> Sequence[str]:
    kind = " \\| ".join(f"`{name}`" for name in row.enum) if row.enum else row.kind.value
    return (f"`{row.path}`", kind, _default(row), _bounds(row), row.text)


def _default(row: table.Field) -> str:
    if row.required:
        return "required"
    if row.kind is table.Kind.OBJECT or row.default is None:
        return ""
    value = dict(row.default) if isinstance(row.default, Mapping) else row.default
    return f"`{msgspec.json.encode(value).decode()}`"


def _bounds(row: table.Field) -> str:
    if (row.low is None and row.high is None) or row.enum:
        return ""
    unit = {
        table.Kind.STRING: " characters",
        table.Kind.ARRAY: " items",
        table.Kind.LABELS: " entries",
        table.Kind.MAP: " entries",
    }.get(row.kind, "")
    if row.low is None:
        return f"at most {row.high:,.0f}{unit}"
    return f"{row.low:,.0f} to {row.high:,.0f}{unit}"


def _server_settings(wrong: str) -> None:
    config.from_environment({config.variable("database_url"): "any", config.variable(wrong): _NOT_A_VALUE})


def _worker_settings(wrong: str) -> None:
    workers.from_environment({"CLOCKHAND_TOKEN": "any", config.variable(wrong): _NOT_A_VALUE}, pool="team-a/mailers")


def _client_settings(wrong: str) -> None:
    clients.find({"HOME": "/nowhere", config.variable(wrong): _NOT_A_VALUE})


def _setting_rows(kind: type[msgspec.Struct], read: Callable[[str], None]) -> Iterator[Sequence[str]]:
    """Its own settings first, then those that it shares with others."""
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    texts: dict[str, str] = {}
    for one in kind.__mro__[: kind.__mro__.index(msgspec.Struct)]:
        texts |= _attribute_texts(one)
    assert texts.keys() == fields.keys()
    for name, text in texts.items():
        yield (f"`{config.variable(name)}`", _form(name, read), _setting_default(fields[name]), text)


def _setting_default(field: msgspec.structs.FieldInfo) -> str:
    if field.name in ("replica", "worker_name"):
        return "host name and a random tail"
    if field.required:
        return "required"
    if field.default in (None, ()):
        return ""
    value = str(field.default).lower() if isinstance(field.default, bool) else f"{field.default}"
    return f"`{value}`"


def _form(name: str, read: Callable[[str], None]) -> str:
    """What a setting accepts, as its own complaint about a wrong value says it."""
    try:
        read(name)
    except errors.InvalidInput as error:
        said = _SENTENCE.search(str(error)) if f"{_NOT_A_VALUE!r} is" in str(error) else None
        if said is not None:
            return said["form"] or said["choices"] or f"{said['either']} or {said['other']}"
    return "names, separated by commas" if name == "namespaces" else "text"


def _attribute_texts(kind: type) -> Mapping[str, str]:
    """The strings that stand under the attributes of a class."""
    [body] = ast.parse(inspect.getsource(kind)).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for line, following in zip(body.body, body.body[1:], strict=False):
        if isinstance(line, ast.AnnAssign) and isinstance(following, ast.Expr):
            assert isinstance(line.target, ast.Name)
            found[line.target.id] = str(ast.literal_eval(following.value))
    return found


def families(module: ModuleType) -> Iterator[tuple[Metric, Sequence[str]]]:
    """The metrics that a module defines, as they describe themselves, with their labels."""
    for metric in vars(module).values():
        if isinstance(metric, MetricWrapperBase):
            for family in metric.describe():
                yield family, metric._labelnames


def _metric_rows() -> Iterator[Sequence[str]]:
    for family, labels in families(metrics):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        yield (f"`{name}`", family.type, ", ".join(f"`{label}`" for label in labels), family.documentation)


def _heading(title: str, source: str) -> Sequence[str]:
    return (f"# {title}", "", f"<!-- Generated from {source} by `make generate`: edit that. -->", "")


def _table(head: Sequence[str], rows: Iterator[Sequence[str]] | map[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _text(lines: Sequence[str]) -> str:
    return "\n".join(lines).rstrip("\n") + "\n"


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; exit 1 where a file is stale.")
def _command(check: bool) -> None:
    """Write the files that are made from the code."""
    sys.exit(main(check))


if __name__ == "__main__":
    _command()
