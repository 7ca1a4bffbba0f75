"""Sessions with routers pass policies on Nodes, from and to these routers alone."""

from __future__ import annotations

from antrea.config.agent import AgentConfig
from antrea.engine import Facts
from antrea.facts.router import RouterSession
from antrea.features.node_policy.guard import BOTH, IN, OUT, ROUTERS, Kept, guarded_routers, kept
from antrea.host.nft import NftElement


def test_the_guard_keeps_bgp_and_bfd_with_routers_of_the_node() -> None:
    facts = Facts()
    facts.put(AgentConfig())
    assert [item for item in kept(facts, "n1") if item.peers == ROUTERS] == []
    facts.put(RouterSession("192.0.2.9", 179, 1790, 3784))
    facts.put(RouterSession("2001:db8::9", bfd_port=4784))
    assert [item for item in kept(facts, "n1") if item.peers == ROUTERS] == [
        Kept("BGP", IN, ("tcp",), (179,), ROUTERS),
        Kept("BGP", OUT, ("tcp",), (1790,), ROUTERS),
        Kept("BFD", BOTH, ("udp",), (3784, 4784), ROUTERS),
    ]
    assert list(guarded_routers(facts, RouterSession("2001:db8::9"))) == [
        NftElement(set="node-guard-routers-6", value="2001:db8::9")
    ]
