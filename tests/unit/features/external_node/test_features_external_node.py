"""ExternalEntities of ExternalNodes: one for each interface, named as upstream names them."""

from __future__ import annotations

from typing import Any

import msgspec

from antrea.apis.crd import external
from antrea.apis.generated_entity import GeneratedEntity
from antrea.engine import Engine, Facts
from antrea.features.external_node.controller import FEATURE
from antrea.features.external_node.machine import entity_name, external_node_row

META = {"name": "vm1", "namespace": "vms", "uid": "u1", "labels": {"role": "db"}}


def entities(*interfaces: dict[str, Any], **metadata: Any) -> dict[str, GeneratedEntity]:
    found = {"metadata": {**META, **metadata}, "spec": {"interfaces": interfaces}}
    facts = Facts()
    facts.put(external_node_row(msgspec.convert(found, external.ExternalNode)))
    plan = Engine(facts, list(FEATURE.units)).plan()
    return {entry.key: entry for entry in plan.put if isinstance(entry, GeneratedEntity)}


def test_an_interface_without_a_name_gives_the_entity_the_name_of_its_node() -> None:
    assert entities({"ips": ["192.0.2.7", "fd00::7"]}) == {
        "vms/vm1": GeneratedEntity(
            namespace="vms",
            name="vm1",
            owner="vm1",
            uid="u1",
            labels=(("role", "db"),),
            endpoints=(("192.0.2.7", ""), ("fd00::7", "")),
        )
    }


def test_the_name_of_an_interface_is_in_the_name_by_its_hash() -> None:
    """Five digits of SHA-1, as upstream: echo -n eth0 | sha1sum."""
    assert entity_name("vm1", "eth0") == "vm1-3e616"
    (found,) = entities({"name": "eth0", "ips": ["192.0.2.7"]}).values()
    assert (found.name, found.endpoints) == (entity_name("vm1", "eth0"), (("192.0.2.7", "eth0"),))


def test_several_interfaces_have_an_entity_each() -> None:
    two = ({"name": "eth0", "ips": ["192.0.2.7"]}, {"name": "eth1", "ips": ["198.51.100.7"]})
    assert {one.endpoints[0] for one in entities(*two).values()} == {
        ("192.0.2.7", "eth0"),
        ("198.51.100.7", "eth1"),
    }


def test_nodes_of_one_name_in_two_namespaces_have_entities_of_their_own() -> None:
    one, other = entities({"ips": ["192.0.2.7"]}), entities({"ips": ["192.0.2.8"]}, namespace="others")
    assert [*one, *other] == ["vms/vm1", "others/vm1"]


def test_an_address_that_cannot_be_read_is_none() -> None:
    (found,) = entities({"ips": ["010.0.0.1", "fd00:0::7"]}).values()
    assert found.endpoints == (("fd00::7", ""),)
