"""Entries of two features that want the same state are one, whatever their category and rank: every kind that there is."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from all_gates import FEATURES, GATES_ON, HERE

import antrea.apis
import antrea.features
import antrea.host
import antrea.openflow
from antrea.config.agent import AgentConfig
from antrea.config.agent_sections import AntreaProxy
from antrea.engine import Engine, Entry, Facts, Unit
from antrea.facts.egress import Egress, EgressMark
from antrea.facts.fact import Fact
from antrea.facts.node import LocalAddress
from antrea.features.framework.gate import EnabledGates
from antrea.host.sysctl import Sysctl

if TYPE_CHECKING:
    from collections.abc import Iterator


def entry_kinds() -> Iterator[type]:
    """All classes of entries with bookkeeping of their own."""
    for package in (antrea.host, antrea.openflow, antrea.apis, antrea.features):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for kind in vars(importlib.import_module(found.name)).values():
                if (
                    isinstance(kind, type)
                    and issubclass(kind, msgspec.Struct)
                    and kind.__module__ == found.name
                    and {"category", "rank"} & set(kind.__struct_fields__)
                    and all(hasattr(kind, name) for name in ("key", "rank", "category"))
                ):
                    yield kind


KINDS = sorted(entry_kinds(), key=lambda kind: (kind.__module__, kind.__name__))


def sample(kind: type, **given: Any) -> Any:
    """An entry with something in each field."""
    fields: dict[str, Any] = {}
    described: Any = msgspec.inspect.type_info(kind)
    for field in described.fields:
        match field.type:
            case msgspec.inspect.StrType():
                fields[field.name] = "192.0.2.1"
            case msgspec.inspect.IntType():
                fields[field.name] = 6
            case msgspec.inspect.LiteralType(values=values):
                fields[field.name] = values[0]
            case msgspec.inspect.EnumType(cls=cls):
                fields[field.name] = next(iter(cls))
            case _ if field.required:
                fields[field.name] = ()
    return kind(**{**fields, **given})


class Feature(Fact, frozen=True):
    name: str

    @property
    def key(self) -> str:
        return self.name


def wanted(kind: type, *more: dict[str, Any]) -> Engine:
    """What stands if each of several features wants one, with these fields of its own."""
    facts = Facts()
    for number in range(len(more)):
        facts.put(Feature(str(number)))
    engine = Engine(facts, [Unit(Feature, lambda _, row: [sample(kind, **more[int(row.name)])])])
    engine.plan()
    return engine


def test_the_kinds_that_features_share_are_among_them() -> None:
    names = {kind.__name__ for kind in KINDS}
    assert {
        "Sysctl",
        "Route",
        "Address",
        "Link",
        "NftElement",
        "NftRule",
        "Port",
        "Meter",
        "Group",
        "Flow",
    } <= names


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_two_features_that_want_the_same_state_share_it(kind: type) -> None:
    names = {"category", "rank"} & set(kind.__struct_fields__)  # type: ignore[attr-defined]
    one, other = dict.fromkeys(names, 3), dict.fromkeys(names, 2)
    assert isinstance(sample(kind), Entry)
    for order in ((one, other), (other, one)):
        engine = wanted(kind, *order)
        assert list(engine.standing().values()) == [sample(kind, **other)]
        assert engine.errors.counts == {}


def test_a_sysctl_with_two_values_is_a_clash() -> None:
    engine = wanted(Sysctl, {"value": "1"}, {"value": "2"})
    assert engine.errors.counts == {"clash Sysctl": 1}


def test_the_way_back_of_an_egress_ip_and_of_direct_node_ports_is_one_setting() -> None:
    """With proxyAll, LoadBalancerModeDSR and an Egress IP of a pool."""
    config = AgentConfig(antrea_proxy=AntreaProxy(proxy_all=True))
    facts, ip = Facts(), "203.0.113.1"
    for pool, low, high in (bounds for feature in FEATURES for bounds in feature.ranks):
        facts.ids.between(pool, low, high)
    for row in (
        *HERE,
        config,
        EnabledGates("agent", GATES_ON),
        LocalAddress(ip, "eth0"),
        Egress("out", "u", ip, pool="p"),
    ):
        facts.put(row)
    engine = Engine(facts, [unit for feature in FEATURES for unit in feature.units])
    engine.plan()
    assert facts.get(EgressMark, ip) is not None
    settings = {entry.path: entry.value for entry in engine.standing().values() if isinstance(entry, Sysctl)}
    assert settings["net/ipv4/conf/antrea-gw0/rp_filter"] == "2"
    assert {name: count for name, count in engine.errors.counts.items() if name.startswith("clash")} == {}
