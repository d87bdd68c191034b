"""Alerts, runbooks, the table of what to watch and the dashboard speak of the same things, and of metrics that there are."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from tests.support import generated

from clockhand import metrics
from clockhand.domain import workloads

CHART = generated.ROOT / "charts/scheduler"
RULES = {
    rule["alert"]: rule
    for group in yaml.safe_load((CHART / "alerts/clockhand.yaml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
}
PANELS = json.loads((CHART / "dashboards/clockhand.json").read_text(encoding="utf-8"))["panels"]
RUNBOOKS = (generated.ROOT / "docs/runbooks.md").read_text(encoding="utf-8")
WATCHED = (generated.ROOT / "docs/operations.md").read_text(encoding="utf-8")
PARTS = ("It means", "Users notice", "Look", "Do")
_NAME = re.compile(r"\bclockhand_[a-z_]+[a-z]\b")
_LABELS = re.compile(r"(?P<name>clockhand_[a-z_]+)\{(?P<labels>[^}]*)\}")


def served() -> dict[str, set[str]]:
    """Every name that Prometheus sees, with its labels."""
    found: dict[str, set[str]] = {}
    for family, labels in generated.families(metrics):
        tails = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        for tail in tails:
            found[family.name + tail] = {*labels, *(("le",) if tail == "_bucket" else ())}
    return found


def expressions() -> list[str]:
    drawn = [target["expr"] for panel in PANELS for target in panel.get("targets", ())]
    return [*(rule["expr"] for rule in RULES.values()), *drawn]


def section(alert: str) -> str:
    [_, rest] = RUNBOOKS.split(f"\n### {alert}\n")
    return re.split(r"\n##+ ", rest)[0]


@pytest.mark.parametrize("alert", RULES)
def test_an_alert_says_what_is_wrong_and_leads_to_what_to_do(alert: str) -> None:
    rule = RULES[alert]
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert {"summary", "description"} <= set(rule["annotations"])
    assert rule["annotations"]["runbook_url"] == f"docs/runbooks.md#{alert.lower()}"
    assert "namespace" in rule["expr"]
    told = section(alert).replace("Look and do:", "Look: Do:")
    assert [part for part in PARTS if f"{part}:" not in told] == []


def test_there_is_no_runbook_of_what_cannot_fire() -> None:
    assert re.findall(r"^### (\w+)$", RUNBOOKS, re.MULTILINE) == list(RULES)


def test_the_table_of_what_to_watch_has_every_alert() -> None:
    rows = re.findall(r"^\| \[(\w+)\]\(runbooks\.md#(\w+)\) ", WATCHED, re.MULTILINE)
    assert {name for name, _ in rows} == set(RULES)
    assert all(anchor == name.lower() for name, anchor in rows)


@pytest.mark.parametrize("expression", expressions())
def test_what_is_asked_for_is_measured(expression: str) -> None:
    known = served()
    assert set(_NAME.findall(expression)) <= set(known)
    for found in _LABELS.finditer(expression):
        asked = set(re.findall(r"(\w+)\s*(?:=~|!=|=)", found["labels"]))
        assert asked <= known[found["name"]] | {"namespace"}, expression


def test_a_panel_has_a_place_of_its_own_and_says_what_it_shows() -> None:
    def corner(panel: dict[str, Any]) -> tuple[int, int]:
        return panel["gridPos"]["x"], panel["gridPos"]["y"]

    assert len({corner(panel) for panel in PANELS}) == len(PANELS)
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    assert all(panel["description"] for panel in PANELS if panel["type"] != "row")


def test_a_single_event_is_not_missed_though_it_came_before_the_first_scrape() -> None:
    for name, rule in RULES.items():
        if "increase(" in rule["expr"] and re.search(r"> 0$", rule["expr"]) and "for" not in rule:
            [counter] = set(re.findall(r"increase\((clockhand_.+)\[15m\]\)", rule["expr"]))
            assert f"({counter} unless last_over_time({counter}[1h] offset 15m))" in rule["expr"], name


def test_workers_are_drawn_wherever_they_are() -> None:
    """They are in the namespaces of their pools, which are not that of the installation."""
    drawn = [target["expr"] for panel in PANELS for target in panel.get("targets", ())]
    assert [query for query in drawn if "clockhand_worker_" in query and "$namespace" in query] == []


def test_the_monitor_of_workers_that_the_page_shows_finds_them() -> None:
    [shown] = re.findall(r"```yaml\n(apiVersion: monitoring.*?)```", WATCHED, re.DOTALL)
    spec = yaml.safe_load(shown)["spec"]
    assert spec["selector"]["matchLabels"].items() <= workloads._LABELS.items()
    assert spec["podTargetLabels"] == [workloads.POOL_LABEL]
    assert spec["podMetricsEndpoints"] == [{"port": "health"}]
