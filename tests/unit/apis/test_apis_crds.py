"""Every kind of crd.antrea.io is declared once, in a way that its struct and the API server agree on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml
from build_program import load_build_program

from antrea.apis.crd.definition import GROUP, Crd, Version, manifest, schema
from antrea.apis.crd.network_policy import ClusterNetworkPolicy
from antrea.apis.crd.part import CrdStruct, json_name
from antrea.apis.schema import place, schema_of
from antrea.features.framework.gate import GATES
from antrea.features.registry.crds import ADMIN_CRDS, ALL_CRDS, CRDS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
VERSIONS = [(crd, version) for crd in ALL_CRDS for version in crd.versions]
LAST_APPLIED = 262144
"""Bytes that all annotations of an object may have; kubectl apply keeps the whole object in one."""


def named(crd: Crd) -> str:
    return crd.kind


def version_named(found: Any) -> str:
    return found.name if isinstance(found, Version) else found.kind


def walk(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema beneath `node`."""
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if name in node:
            yield from walk(node[name], path)


def test_the_generated_definitions_are_current() -> None:
    files = load_build_program("crds").generated()
    assert {file: file.read_text() for file in files} == files
    for folder, crds in (("crds", CRDS), ("network-policy-api", ADMIN_CRDS)):
        assert {file.name for file in (ROOT / "build/charts/antrea" / folder).iterdir()} == {
            crd.file for crd in crds
        }


def test_the_generated_definitions_read_back_as_they_were_declared() -> None:
    for name, crds in (("antrea-crds.yml", CRDS), ("network-policy-api-crds.yml", ADMIN_CRDS)):
        every = list(yaml.load_all((ROOT / "build/yamls" / name).read_text(), yaml.CSafeLoader))
        assert every == [manifest(crd) for crd in sorted(crds, key=lambda crd: crd.file)]


def test_names_are_written_as_kubernetes_does() -> None:
    names = [
        "egress_ip",
        "from_",
        "external_ip_pools",
        "api_ca_bundle",
        "allowed_vlans",
        "ip_ranges",
        "l7_protocols",
    ]
    assert [json_name(name) for name in names] == [
        "egressIP",
        "from",
        "externalIPPools",
        "apiCABundle",
        "allowedVLANs",
        "ipRanges",
        "l7Protocols",
    ]


@pytest.mark.parametrize("crd", ALL_CRDS, ids=named)
def test_one_version_is_stored_and_all_speak_of_the_same_kind(crd: Crd) -> None:
    assert [version.name for version in crd.versions if version.storage] == [crd.versions[-1].name]
    assert {version.kind.__name__ for version in crd.versions} == {crd.kind}
    assert bool(crd.conversion) == (len(crd.versions) > 1)
    assert ("served-by" in crd.labels) == bool(crd.conversion)
    assert set(crd.gates) <= {gate.name for gate in GATES}


@pytest.mark.parametrize("name", ["egressIPs", "externalIPPools"])
def test_both_versions_of_an_egress_want_an_entry_in_a_list_that_is_there(name: str) -> None:
    (egress,) = (crd for crd in CRDS if crd.kind == "Egress")
    fields = [place(schema(version), f"spec.{name}") for version in egress.versions]
    assert [field["minItems"] for field in fields] == [1, 1]


def test_no_two_kinds_share_a_name() -> None:
    names = [name for crd in CRDS for name in (crd.plural, crd.kind.lower(), *crd.short)]
    assert len(names) == len(set(names))
    assert {crd.name for crd in CRDS} == {f"{crd.plural}.{GROUP}" for crd in CRDS}


def test_kinds_of_kubernetes_say_where_their_api_was_approved() -> None:
    for crd in ADMIN_CRDS:
        found = manifest(crd)
        assert found["spec"]["group"] == "policy.networking.k8s.io"
        assert found["metadata"]["name"] == f"{crd.plural}.policy.networking.k8s.io"
        # without it the API server refuses a definition of such a group
        assert found["metadata"]["annotations"]["api-approved.kubernetes.io"].startswith("https://")


@pytest.mark.parametrize("crd", ALL_CRDS, ids=named)
def test_a_definition_fits_into_the_annotation_of_kubectl_apply(crd: Crd) -> None:
    assert len(json.dumps(manifest(crd))) < LAST_APPLIED / 4


@pytest.mark.parametrize(("crd", "version"), VERSIONS, ids=version_named)
def test_every_property_has_a_sentence_in_few_words(crd: Crd, version: Version) -> None:
    told = list(walk(schema(version)))
    described = {path for path, node in told if node.get("description", "").endswith(".")}
    assert {path for path, _ in told if not path.startswith(".metadata")} - described == set()
    assert max(len(node.get("description", "")) for _, node in told) <= 130


@pytest.mark.parametrize("kind", CrdStruct.__subclasses__(), ids=lambda kind: kind.__name__)
def test_what_the_api_server_fills_in_is_what_the_struct_fills_in(kind: type[CrdStruct]) -> None:
    properties = schema_of(kind).get("properties", {})
    assert {
        name: fills_in.default
        for fills_in in msgspec.structs.fields(kind)
        if "default" in properties[name := fills_in.encode_name] and not fills_in.required
    } == {
        name: told["default"]
        for name, told in properties.items()
        if "default" in told and name not in schema_of(kind).get("required", ())
    }


def test_a_policy_reads_and_writes_what_upstream_writes() -> None:
    text = (
        b'{"metadata":{"name":"p"},"spec":{"priority":5.5,"tier":"securityops","appliedTo":[{"namespaceSelector":{}}],'
        b'"egress":[{"action":"Reject","ports":[{"protocol":"TCP","port":"http"},{"port":80,"endPort":90}],'
        b'"to":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.1.0.0/16"]}},{"namespaces":{"match":"Self"}}]}]}}'
    )
    policy = msgspec.json.decode(text, type=ClusterNetworkPolicy)
    assert msgspec.json.decode(msgspec.json.encode(policy)) == msgspec.json.decode(text)
