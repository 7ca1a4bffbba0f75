"""nftables of NodePortLocal: packets to a port of this Node, from wherever, go to the Pod that has it.

Two maps give the Pod by protocol and port; a Pod that asks for its own port of the Node gets there, too, by the Node's address.
parity: pkg/agent/nodeportlocal/rules/iptable_rule.go initRules, buildRuleForPod
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.config.agent import AgentConfig
from antrea.features.node_port_local.row import HeldPort
from antrea.features.proxy.host import CHAINS
from antrea.host.nft import NftChain, NftElement, NftRule, NftSet
from antrea.rank import Rank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.node import ThisNode
    from antrea.features.node_port_local.row import PortRequest

PORTS = ("node-port-local", "node-port-local6")
"""Maps, in IPv4 and IPv6: a protocol and a port of the Node lead to an address and a port of a Pod."""
OWN = ("node-port-local-own", "node-port-local-own6")
"""Sets, in IPv4 and IPv6: each Pod that has a port as source and destination."""


def port_local_tables(facts: Facts, node: ThisNode) -> Iterator[NftChain | NftSet | NftRule]:
    """Yield chains, sets and rules, whichever ports are allocated."""
    config = facts.need(AgentConfig)
    if not config.node_port_local.enable:
        return
    for name, hook in CHAINS.items():
        yield NftChain(name=name, hook=hook)
    for ipv6 in sorted(node.families):
        ip, kind = ("ip6", "ipv6_addr") if ipv6 else ("ip", "ipv4_addr")
        data = f"{kind} . inet_service"
        yield NftSet(name=PORTS[ipv6], type="inet_proto . inet_service", data=data)
        yield NftSet(name=OWN[ipv6], type=f"{kind} . {kind}")
        text = (
            f"meta nfproto ipv{6 if ipv6 else 4} fib daddr type local"
            f" dnat {ip} to meta l4proto . th dport map @{PORTS[ipv6]}"
        )
        for chain in CHAINS:
            yield NftRule(chain=chain, name=f"NodePortLocal, {ip}", text=text)
        masquerade = (
            f'oifname "{config.host_gateway}" ct status dnat {ip} saddr . {ip} daddr @{OWN[ipv6]} masquerade'
        )
        yield NftRule(chain="postrouting", name=f"own NodePortLocal, {ip}", text=masquerade)


def port_local_elements(facts: Facts, request: PortRequest) -> Iterator[NftElement]:
    """The way to the Pod, as long as it has a port."""
    held = facts.need(HeldPort, request.key)
    if not held.node_port:
        return
    yield NftElement(
        set=PORTS[request.ipv6],
        value=f"{request.protocol} . {held.node_port}",
        data=f"{request.ip} . {request.port}",
        rank=Rank.SENDS,
    )
    value = f"{request.ip} . {request.ip}"
    yield NftElement(set=OWN[request.ipv6], value=value, rank=Rank.RECEIVES)
