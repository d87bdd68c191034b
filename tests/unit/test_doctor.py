"""What the doctor asks for is what the manifests give, and its page tells of each check."""

from __future__ import annotations

from pathlib import Path

from tests.support import manifests

from clockhand.admin.doctor import cluster, table
from clockhand.domain import definition, rights

ROOT = Path(__file__).parents[2]


def test_the_operators_rights_are_those_that_the_manifests_give() -> None:
    [role] = [one for one in manifests.objects("ClusterRole") if one["metadata"]["name"] == "clockhand-operator"]
    given = {
        f"{group}/{resource}{_names(rule)}: {' '.join(sorted(rule['verbs']))}"
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert given == {str(right) for right in (*rights.NEEDED, *rights.FOR_THE_DOCTOR)}


def test_the_admission_policies_are_those_that_the_manifests_have() -> None:
    names = [one["metadata"]["name"] for one in manifests.objects(*manifests.POLICIES)]
    assert sorted(set(names)) == sorted(rights.POLICIES)
    [service] = manifests.objects("APIService")
    assert service["metadata"]["name"] == rights.API_SERVICE


def test_the_definitions_are_all_that_there_are() -> None:
    names = [f"{resource.plural}.{definition.GROUP}" for resource in cluster.RESOURCES]
    assert sorted(names) == sorted(rights.DEFINITIONS)
    assert sorted(f"{path.stem}.yaml" for path in (ROOT / "crds").iterdir()) == sorted(
        f"{resource.kind.lower()}.yaml" for resource in cluster.RESOURCES
    )


def test_the_page_has_every_check_in_its_order() -> None:
    page = (ROOT / "docs/doctor.md").read_text(encoding="utf-8").partition("## The checks")[2]
    mends = {check.name: check.remedy.does.capitalize() for check in table.CHECKS if check.remedy}
    meant = [f"| `{check.name}` | {check.text} | {mends.get(check.name, '')} |" for check in table.CHECKS]
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert rows == [row.replace("|  |", "| |") for row in meant]


def test_checks_come_after_those_that_they_need() -> None:
    seen: set[str] = set()
    for check in table.CHECKS:
        assert set(check.needs) <= seen
        assert check.text.endswith(".")
        seen.add(check.name)


def _names(rule: dict[str, list[str]]) -> str:
    return f"[{','.join(rule['resourceNames'])}]" if "resourceNames" in rule else ""
