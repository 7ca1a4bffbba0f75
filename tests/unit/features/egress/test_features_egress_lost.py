"""Which Egress IPs of a Node end TCP connections that their gateway does not know."""

from __future__ import annotations

import msgspec

from antrea.config.agent import AgentConfig
from antrea.engine import Engine, Facts
from antrea.facts.egress import Egress
from antrea.facts.node import LocalAddress, ThisNode
from antrea.features.egress.agent.feature import FEATURE
from antrea.host.nft import NftElement, NftRule, NftSet

IP = "203.0.113.1"


def elements(*egresses: Egress, of: str = "egress-reset", node_ip: str = "192.0.2.1") -> set[object]:
    facts = Facts()
    node = ThisNode("n1", ("10.10.0.0/24",), (node_ip,), (node_ip,))
    for row in (AgentConfig(), node, LocalAddress(IP, "eth0"), *egresses):
        facts.put(row)
    engine = Engine(facts, FEATURE.units)
    engine.plan()
    assert NftSet(name="egress-reset", type="mark", category=4) in engine.standing().values()
    (rule,) = (
        one for one in engine.standing().values() if isinstance(one, NftRule) and "@egress-reset" in one.text
    )
    # before Pods' packets are accepted
    assert (rule.chain, rule.order < NftRule(chain="forward", name="", text="").order) == ("forward", True)
    found = (one for one in engine.standing().values() if isinstance(one, NftElement))
    return {(one.value, one.data) for one in found if one.set == of}


def test_an_address_ends_lost_connections_where_its_egress_says_so() -> None:
    assert elements(Egress("a", "u", IP, resets=True)) == {("0x00000001", "")}
    assert elements(Egress("a", "u", IP)) == set()


def test_of_egresses_that_share_an_address_the_oldest_one_says_what_becomes_of_lost_connections() -> None:
    old, new = Egress("z", "u1", IP, created="1", resets=True), Egress("a", "u2", IP, created="2")
    assert elements(old, new) == {("0x00000001", "")}
    assert (
        elements(Egress("z", "u1", IP, created="1"), Egress("a", "u2", IP, created="2", resets=True)) == set()
    )


def test_segments_of_unknown_connections_are_dropped_for_addresses_that_do_not_reset_and_are_not_the_nodes() -> (
    None
):
    kept = Egress("a", "u", IP)
    assert elements(kept, of="egress-unanswered") == {(IP, "")}
    assert elements(msgspec.structs.replace(kept, resets=True), of="egress-unanswered") == set()
    assert elements(kept, of="egress-unanswered", node_ip=IP) == set()
