"""What the documents point at exists: a page that names a setting, a metric or a file of last month misleads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import generated, meanings

from clockhand import config, metrics
from clockhand.client import config as clients
from clockhand.domain import pods, states
from clockhand.worker import config as workers

ROOT = generated.ROOT
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/*.md")])
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#+ (?P<title>.+)$", re.MULTILINE)
_SETTING = re.compile(r"\bCLOCKHAND_[A-Z_]*[A-Z]\b")
_METRIC = re.compile(r"\bclockhand_[a-z_]+[a-z]\b")
_SOURCE = re.compile(r"`(?P<path>(?:domain|engine|store|kube|controller|api|worker)/[a-z_/]+\.(?:py|sql))`")
_OUTSIDE = ("https://", "http://", "mailto:")


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_somewhere(page: Path) -> None:
    broken = [target for target in links(page) if not leads_somewhere(page, target)]
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_settings_exist(page: Path) -> None:
    told = [name for kind in (config, workers, clients) for name in kind.Settings.__struct_fields__]
    known = {config.variable(field) for field in told}
    known |= {f"CLOCKHAND_{name}" for name in pods._RUN_ENVIRONMENT}
    assert set(_SETTING.findall(page.read_text(encoding="utf-8"))) <= known


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_metrics_exist(page: Path) -> None:
    known = {name for family, _ in generated.families(metrics) for name in (family.name, f"{family.name}_total")}
    assert set(_METRIC.findall(page.read_text(encoding="utf-8"))) <= known


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_sources_exist(page: Path) -> None:
    package = ROOT / "operator/src/clockhand"
    named = [match["path"] for match in _SOURCE.finditer(page.read_text(encoding="utf-8"))]
    assert [path for path in named if not (package / path).is_file()] == []


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs/adr"
    written = {path.name for path in folder.glob("0*.md")}
    assert written == {target for target in links(folder / "README.md") if target.startswith("0")}


def test_every_state_move_and_reason_is_explained() -> None:
    moves = {(old, new) for old, targets in states.TRANSITIONS.items() for new in targets}
    assert set(meanings.MOVES) == moves
    assert set(meanings.STATES) == set(states.RunState)
    assert set(meanings.REASONS) == set(states.Reason)
    assert set(meanings.SKIPS) == set(states.SkipReason)


@pytest.mark.parametrize("name", generated.FILES)
def test_generated_files_are_fresh(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8") == generated.FILES[name]()


def links(page: Path) -> Iterator[str]:
    for match in _LINK.finditer(page.read_text(encoding="utf-8")):
        if not match["target"].startswith(_OUTSIDE):
            yield match["target"]


def leads_somewhere(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    there = (page.parent / path).resolve() if path else page
    if not there.exists():
        return False
    return not anchor or anchor in {slug(title) for title in _HEADING.findall(there.read_text(encoding="utf-8"))}


def slug(title: str) -> str:
    """As the common renderers make anchors of headings."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
