"""The category of a feature on what its units yield."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.engine import Engine, Facts, Unit
from antrea.facts.node import ThisNode
from antrea.features.framework.agent_feature import AgentFeature
from antrea.host.nft import NftChain, NftRule, NftSet
from antrea.host.ovs_port import Port
from antrea.openflow.cookie import Category
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.priority import Priority
from antrea.openflow.tables import EGRESS_MARK

if TYPE_CHECKING:
    from collections.abc import Iterator

CHAIN = NftChain(name="forward", hook="")
DEFAULT = flows_of(Category.DEFAULT)(EGRESS_MARK, Priority.MISS, then=())


def entries(_: Facts, node: ThisNode) -> Iterator[NftChain | NftSet | NftRule | Port | Flow]:
    yield CHAIN
    yield NftSet(name=node.name, type="mark")
    yield NftRule(chain="forward", name="theirs", text="accept", category=int(Category.SERVICE))
    yield Port(name="p")
    yield DEFAULT


UNIT = Unit(ThisNode, entries)


def wanted(category: Category | None) -> set[object]:
    facts = Facts()
    facts.put(ThisNode("n1"))
    feature = AgentFeature(name="toy", units=(UNIT,), category=category)
    return set(Engine(facts, feature.units).plan().put)


def test_entries_without_a_category_have_that_of_their_feature_and_shared_chains_none() -> None:
    others = {
        CHAIN,
        NftRule(chain="forward", name="theirs", text="accept", category=int(Category.SERVICE)),
        Port(name="p"),
        DEFAULT,
    }
    own = NftSet(name="n1", type="mark", category=int(Category.EGRESS))
    assert wanted(Category.EGRESS) == {own, *others}
    assert wanted(None) == {NftSet(name="n1", type="mark"), *others}


def test_a_stamped_unit_keeps_its_name_by_which_refusals_are_found() -> None:
    (unit,) = AgentFeature(name="toy", units=(UNIT,), category=Category.EGRESS).units
    assert unit != UNIT
    assert unit.name == UNIT.name
