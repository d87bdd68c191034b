"""The file of limits: every field does something, and what cannot be used is refused by its name."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
import yaml

from clockhand import errors
from clockhand.domain import limits

ROOT = Path(__file__).parents[2]

WHOLE = """
owners:
  "*": {maxConcurrentRuns: 200, weight: 2}
  k8s/team-a: {maxConcurrentRuns: 50}
  rest/acme: {weight: 5}
groups:
  exports: {maxConcurrentRuns: 3}
  anything: {}
pools:
  k8s/team-a/mailers: {maxConcurrentRuns: 100}
  rest/acme/jobs: {leaseSeconds: 60, heartbeatSeconds: 20, allowedOwners: [rest/other, "*"]}
"""


def test_every_field_is_read() -> None:
    found = limits.parse(WHOLE)
    assert [found.owner_cap(owner) for owner in ("k8s/team-a", "rest/acme", "k8s/other")] == [50, 200, 200]
    assert [found.weight(owner) for owner in ("k8s/team-a", "rest/acme", "k8s/other")] == [2, 5, 2]
    assert [found.group_cap(group) for group in ("exports", "anything", "unknown")] == [3, None, 0]
    assert [found.pool_cap(pool) for pool in ("k8s/team-a/mailers", "rest/acme/jobs", "k8s/b/c")] == [100, None, None]
    assert found.pool_settings("rest/acme/jobs") == limits.PoolLimits(None, 60, 20, ("rest/other", "*"))


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "owners:\n", "{}"])
def test_a_file_may_say_nothing(text: str) -> None:
    found = limits.parse(text)
    assert found == limits.NONE
    assert (found.owner_cap("k8s/a"), found.pool_cap("k8s/a/b"), found.weight("k8s/a")) == (None, None, 1)
    assert found.group_cap("exports") == 0


@pytest.mark.parametrize(
    ("text", "field", "part"),
    [
        ("owner: {}", "owner", "did you mean owners?"),
        ("limits: {}", "limits", "write owners, groups, pools"),
        ("- owners", "", "must be a mapping"),
        ("owners: [k8s/a]", "owners", "must be a mapping"),
        ("owners: {team-a: {}}", 'owners["team-a"]', "k8s/team-a"),
        ("owners: {k8s/a: 5}", 'owners["k8s/a"]', "must be a mapping"),
        (
            "owners: {k8s/a: {maxConcurrentRun: 5}}",
            'owners["k8s/a"].maxConcurrentRun',
            "did you mean maxConcurrentRuns?",
        ),
        ("owners: {k8s/a: {maxConcurrentRuns: -1}}", 'owners["k8s/a"].maxConcurrentRuns', "from 0 to 100000"),
        ("owners: {k8s/a: {maxConcurrentRuns: true}}", 'owners["k8s/a"].maxConcurrentRuns', "whole number"),
        ("owners: {k8s/a: {maxConcurrentRuns: 1.5}}", 'owners["k8s/a"].maxConcurrentRuns', "whole number"),
        ("owners: {k8s/a: {maxConcurrentRuns: null}}", 'owners["k8s/a"].maxConcurrentRuns', "whole number"),
        ("owners: {k8s/a: {weight: 0}}", 'owners["k8s/a"].weight', "from 1 to 100"),
        ("owners: {k8s/a: {colour: 60}}", 'owners["k8s/a"].colour', "write maxConcurrentRuns, weight"),
        ("groups: {exports: {weight: 1}}", 'groups["exports"].weight', "write maxConcurrentRuns"),
        ("groups: {1: {}}", "groups", "put it in quotes"),
        ("pools: {mailers: {}}", 'pools["mailers"]', "k8s/team-a/mailers"),
        ("pools: {k8s/a/b: {leaseSeconds: 60}}", 'pools["k8s/a/b"]', "WorkerPool object"),
        ("pools: {rest/a/b: {leaseSeconds: 30}}", 'pools["rest/a/b"].heartbeatSeconds', "half of leaseSeconds"),
        ("pools: {rest/a/b: {allowedOwners: rest/c}}", 'pools["rest/a/b"].allowedOwners', "a list of owners"),
        ("pools: {rest/a/b: {allowedOwners: [c]}}", 'pools["rest/a/b"].allowedOwners[0]', "rest/acme"),
        ("groups: {a: {}, a: {}}", "a", "twice, again in line 1"),
        ("owners: {", "", "is not YAML"),
        ("owners: !!python/object:os.system {}", "", "is not YAML"),
        ("a: &a [*a]", "", "is not a known field"),
        ("groups: {? [a] : {}}", "", "is not YAML"),
    ],
)
def test_what_cannot_be_used_is_refused_by_its_name(text: str, field: str, part: str) -> None:
    with pytest.raises(errors.InvalidInput) as refused:
        limits.parse(text)
    assert part in refused.value.sentence
    if field:
        assert refused.value.field == field


PAGE = (ROOT / "docs/limits.md").read_text(encoding="utf-8")
_EXAMPLE = re.compile(r"^```yaml\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| `(?P<field>\w+)` \| (?P<of>[a-z ]+) \| (?P<low>\d+) to (?P<high>\d+)?", re.MULTILINE)


def test_the_examples_of_the_page_are_limits() -> None:
    examples = [limits.parse(match["text"]) for match in _EXAMPLE.finditer(PAGE)]
    assert examples
    for found in examples:
        assert all((found.owners, found.groups, found.pools))


def test_what_is_deployed_is_a_file_of_limits_once_its_example_is_no_comment() -> None:
    manifest = yaml.safe_load((ROOT / "deploy/limits.yaml").read_text(encoding="utf-8"))
    text = manifest["data"]["limits.yaml"]
    assert limits.parse(text) == limits.NONE
    found = limits.parse(text.replace("# ", ""))
    assert all((found.owners, found.groups, found.pools))


@pytest.mark.parametrize("row", list(_ROW.finditer(PAGE)), ids=lambda row: f"{row['of']} {row['field']}")
def test_the_page_tells_the_bounds_of_each_field(row: re.Match[str]) -> None:
    section = row["of"].split()[0]
    key = {"owners": "k8s/team-a", "groups": "exports", "pools": "rest/acme/jobs"}[section]

    def parsed(value: int) -> limits.Limits:
        lease = {"leaseSeconds": 86_400} if row["field"] == "heartbeatSeconds" else {}
        entry = {"heartbeatSeconds": 1, **lease} if section == "pools" else {}
        return limits.parse(yaml.safe_dump({section: {key: {**entry, row["field"]: value}}}))

    low, high = int(row["low"]), int(row["high"] or 43_200)
    assert parsed(low) != parsed(high)
    for beyond in (low - 1, high + 1):
        with pytest.raises(errors.InvalidInput):
            parsed(beyond)


def test_the_page_names_every_field() -> None:
    for kind in (limits.OwnerLimits, limits.GroupLimits, limits.PoolLimits):
        assert all(f"`{field.encode_name}`" in PAGE for field in msgspec.structs.fields(kind))
