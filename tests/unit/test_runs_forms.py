"""Forms, tables, documents and certificates of the runs API, without a server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clockhand.api.runs import certificates, discovery, listener, negotiate, openapi, status, table, writes

NOW = datetime(2026, 11, 29, tzinfo=UTC)
HOSTS = certificates.host_names("clockhand-runs", "clockhand-system")
KUBECTL = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", negotiate.Form.OBJECT),
        ("*/*", negotiate.Form.OBJECT),
        ("application/json", negotiate.Form.OBJECT),
        ("application/vnd.kubernetes.protobuf,application/json", negotiate.Form.OBJECT),
        (KUBECTL, negotiate.Form.TABLE),
        ("application/json;as=Table;v=v2;g=meta.k8s.io,application/json", negotiate.Form.OBJECT),
        ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", negotiate.Form.METADATA),
        (
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,"
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
            negotiate.Form.METADATA,
        ),
    ],
)
def test_the_first_form_that_can_be_given(accept: str, form: negotiate.Form) -> None:
    assert negotiate.shape_of(accept, None).form is form


def test_the_old_table_version_is_answered_in_kind() -> None:
    shape = negotiate.shape_of("application/json;as=Table;v=v1beta1;g=meta.k8s.io", None)
    assert table.table([], shape, version=1, now=NOW)["apiVersion"] == "meta.k8s.io/v1beta1"


def test_no_form_at_all() -> None:
    with pytest.raises(status.Failure) as caught:
        negotiate.shape_of("application/yaml", None)
    assert caught.value.code == 406


def test_delete_is_never_advertised_beside_list_and_watch() -> None:
    verbs = {tuple(resource["verbs"]) for resource in discovery.RESOURCES["resources"] if "/" not in resource["name"]}
    assert verbs == {("create", "get", "list", "watch")}
    [resource] = discovery.DOCUMENT["items"][0]["versions"][0]["resources"]
    assert resource["verbs"] == ["create", "get", "list", "watch"]
    for found in (*discovery.RESOURCES["resources"], resource):
        assert not found.get("categories")
        assert not found.get("shortNames")


def test_every_reference_of_the_openapi_document_leads_somewhere() -> None:
    schemas = openapi.V3["components"]["schemas"]
    found = list(references(openapi.V3))
    assert found
    assert {reference.removeprefix("#/components/schemas/") for reference in found} <= set(schemas)


def test_every_field_of_the_schema_is_described() -> None:
    for name, schema in openapi.V3["components"]["schemas"].items():
        for path, part in properties(schema, name):
            assert part.get("description"), path


def test_a_new_certificate_is_good_for_its_names() -> None:
    serving, _ = certificates.issue(HOSTS, NOW)
    assert certificates.is_good(serving, HOSTS, NOW)
    assert "clockhand-runs.clockhand-system.svc" in HOSTS
    assert not certificates.is_good(serving, [*HOSTS, "other.example"], NOW)
    assert listener.tls_context(serving, serving.ca.decode())


def test_a_certificate_is_renewed_a_month_before_its_end() -> None:
    serving, _ = certificates.issue(HOSTS, NOW)
    assert certificates.is_good(serving, HOSTS, NOW + timedelta(days=59))
    assert not certificates.is_good(serving, HOSTS, NOW + timedelta(days=61))


def test_a_new_leaf_keeps_the_authority_while_that_lasts() -> None:
    first, key = certificates.issue(HOSTS, NOW)
    later = NOW + timedelta(days=3_000)
    second, _ = certificates.issue(HOSTS, later, ca=first.ca, ca_key=key)
    assert second.ca == first.ca
    assert certificates.is_good(second, HOSTS, later)
    last = NOW + timedelta(days=3_400)
    third, _ = certificates.issue(HOSTS, last, ca=first.ca, ca_key=key)
    assert third.ca != first.ca
    assert certificates.is_good(third, HOSTS, last)


def test_parts_of_different_certificates_are_no_certificate() -> None:
    one, key = certificates.issue(HOSTS, NOW)
    other, _ = certificates.issue(HOSTS, NOW)
    assert not certificates.is_good(certificates.Serving(one.certificate, other.key, one.ca), HOSTS, NOW)
    assert not certificates.is_good(certificates.Serving(one.certificate, one.key, other.ca), HOSTS, NOW)
    assert not certificates.is_good(certificates.Serving(b"", b"", b""), HOSTS, NOW)
    mended, _ = certificates.issue(HOSTS, NOW, ca=other.ca, ca_key=key)
    assert certificates.is_good(mended, HOSTS, NOW)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_object(body: bytes) -> None:
    with pytest.raises(status.Failure) as caught:
        writes.order_of(body, namespace="team-a", validation="", kept_days=30)
    assert caught.value.code == 400


def references(part: Any) -> Any:
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for value in part.values():
            yield from references(value)
    elif isinstance(part, list):
        for value in part:
            yield from references(value)


def properties(schema: Any, path: str) -> Any:
    for name, part in schema.get("properties", {}).items():
        yield f"{path}.{name}", part
        yield from properties(part, f"{path}.{name}")
        yield from properties(part.get("items", {}), f"{path}.{name}[]")
