"""Chains of node policies: two base chains, a chain for each Tier and priority, and their rules in order. The base chain of a
direction accepts established connections and what the Node requires, and evaluates the policies then. A rule that passes
leads to those of the baseline Tier; the end of these is the end of the direction.

While a rule of a direction is audited there is a second base chain behind the first, which gets what that accepts. It has all
rules, also the enforced ones, and none of them drops: a denial by an audited one is counted, logged and accepted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis import controlplane as cp
from antrea.config.agent import AgentConfig
from antrea.facts.api_server import ApiServerEndpoint
from antrea.facts.family import is_ipv6
from antrea.features.network_policy.agent.match import address_text
from antrea.features.network_policy.agent.rule import resolved
from antrea.features.network_policy.agent.verdict import DENIES, PASS, REJECT
from antrea.features.node_policy.match import (
    ADDRESS_TYPES,
    PortMatch,
    block_elements,
    block_set,
    blocks,
    group_set,
    named_port_sources,
    port_matches,
    port_set,
    service_sources,
    sources,
)
from antrea.features.node_policy.rule import AuditedDirection, NodePeerGroup, NodePeerPort
from antrea.host.nft import NftChain, NftCounter, NftElement, NftRule, NftSet
from antrea.openflow.cookie import Category

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from ipaddress import IPv4Network, IPv6Network

    from antrea.engine import Facts
    from antrea.facts.node import ThisNode
    from antrea.features.network_policy.agent.received import SentAddressMember
    from antrea.features.node_policy.rule import NodeRule

HOOKS = {"ingress": "input", "egress": "output"}
"""Hook where the packets of a direction are judged."""
ACCEPTED, LOOPBACK, NEIGHBOURS, GUARD, POLICIES, BASELINE = 0, 10, 20, 30, 100, 200
"""Order of the rules of a base chain."""
NEIGHBOUR_TYPES = "nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert"
"""ICMPv6 messages without which a Node has no neighbors and no router."""
LAST = 1_000_000
LOG_GROUP, LOG_BYTES = 10350, 256
"""Number under which the kernel hands over logged packets, and how many bytes of each: all headers."""
NAME_LENGTH = 100
"""Maximum number of bytes of a rule's name in nftables."""


def base_entries(facts: Facts, _node: ThisNode) -> Iterator[NftChain | NftRule]:
    """Yield entries of a Node while the gate is on, whatever policies there are.

    Policies are matched once the Node has the address of an API server, from which they do not cut it off then.
    """
    for direction in HOOKS:
        yield _chain(guard_chain(direction))
        yield from _base_chain(facts, direction, audit=False)


def audit_entries(facts: Facts, row: AuditedDirection) -> Iterator[NftChain | NftRule]:
    """Yield further entries of a Node while rules of a direction are audited."""
    yield from _base_chain(facts, row.direction, audit=True)


def guard_chain(direction: str) -> str:
    """Return the chain of what a Node keeps whatever policies there are."""
    return f"node-{direction}-guard"


def _base(direction: str, *, audit: bool) -> str:
    return f"node-{direction}-audit" if audit else f"node-{direction}"


def _base_chain(facts: Facts, direction: str, *, audit: bool) -> Iterator[NftChain | NftRule]:
    base, hook = _base(direction, audit=audit), HOOKS[direction]
    yield _chain(base, f"type filter hook {hook} priority filter{' + 1' if audit else ''}; policy accept;")
    yield _chain(f"{base}-rules")
    yield _chain(f"{base}-baseline")
    device = "iifname" if hook == "input" else "oifname"
    yield _rule(base, "established connections", "ct state established,related accept", ACCEPTED)
    yield _rule(base, "the Node to itself", f'{device} "lo" accept', LOOPBACK)
    neighbours = f"icmpv6 type {{ {NEIGHBOUR_TYPES} }} accept"
    yield _rule(base, "neighbour discovery", neighbours, NEIGHBOURS)
    yield _rule(base, "the guard", f"jump {guard_chain(direction)}", GUARD)
    if facts.all(ApiServerEndpoint):
        yield _rule(base, "policies", f"jump {base}-rules", POLICIES)
        yield _rule(base, "policies of the baseline Tier", f"jump {base}-baseline", BASELINE)
    yield _rule(f"{base}-baseline", "the end, also of what has been passed", "accept", LAST)


def rule_entries(
    facts: Facts, rule: NodeRule
) -> Iterator[NftChain | NftRule | NftSet | NftElement | NftCounter]:
    """A rule in the chain of its Tier and priority, with its networks and its counter."""
    if rule.exceeds:
        return
    yield NftCounter(name=counter_name(rule))
    yield from _network_sets(rule)
    if not rule.audit:
        yield from _placed(facts, rule, audit=False)
    if facts.get(AuditedDirection, rule.direction) is not None:
        yield from _placed(facts, rule, audit=True)


def _placed(facts: Facts, rule: NodeRule, *, audit: bool) -> Iterator[NftChain | NftRule]:
    base = _base(rule.direction, audit=audit)
    chain = f"{base}-{rule.order.tier}-{rule.order.policy!r}".removesuffix(".0")
    yield _chain(chain)
    place = f"Tier {rule.order.tier} priority {rule.order.policy:020.14f}"
    above = f"{base}-{'baseline' if rule.baseline else 'rules'}"
    yield _rule(above, place, f"jump {chain}", rule.order.tier)
    for number, text in enumerate(_texts(facts, rule, audit=audit)):
        line = f"{rule.number:05}.{number:05}"
        name = f"{rule.order.created} {rule.policy} {line} {rule.policy_name}"[:NAME_LENGTH]
        yield _rule(chain, name, text.lstrip(), rule.order.rule)


def group_sets(_: Facts, group: NodePeerGroup) -> Iterator[NftSet]:
    """Yield a set for each family of a peer group, which all rules share that name the group."""
    for ipv6, kind in ADDRESS_TYPES.items():
        yield NftSet(name=group_set(group.group, ipv6=ipv6), type=kind)


def group_elements(facts: Facts, row: SentAddressMember) -> Iterator[NftElement]:
    """Yield the addresses of a member of a group that a rule names."""
    if facts.get(NodePeerGroup, row.group) is not None:
        for text in map(address_text, row.member.ips):
            name = group_set(row.group, ipv6=is_ipv6(text))
            yield NftElement(set=name, value=text)


def port_sets(_: Facts, port: NodePeerPort) -> Iterator[NftSet]:
    """A set for each family of a group of peers with the numbers that they give to a port by name."""
    for ipv6, kind in ADDRESS_TYPES.items():
        name = port_set(port.group, port.name, port.protocol, ipv6=ipv6)
        yield NftSet(name=name, type=f"{kind} . inet_service")


def port_elements(facts: Facts, row: SentAddressMember) -> Iterator[NftElement]:
    """The addresses of a member with the numbers that it gives to ports by name."""
    for port in facts.by(NodePeerPort, "group", row.group):
        wanted = cp.Service(protocol=port.protocol, port=port.name)
        for service in resolved((wanted,), row.member.ports) or ():
            for text in map(address_text, row.member.ips):
                name = port_set(port.group, port.name, port.protocol, ipv6=is_ipv6(text))
                yield NftElement(set=name, value=f"{text} . {service.port}")


def counter_name(rule: NodeRule) -> str:
    """The counter of a rule, which counts what all its lines match."""
    return f"np-{rule.policy}-{rule.number}"


def _texts(facts: Facts, rule: NodeRule, *, audit: bool) -> Iterator[str]:
    """Yield texts of a rule that log, limited to what the agent takes, before the verdict."""
    config, name = facts.get(AgentConfig), counter_name(rule)
    denies = rule.audit and rule.action in DENIES
    counted = f'counter name "{name}" ' if denies or not audit else ""
    logged = denies or (rule.rule.enable_logging and not audit)
    for match, verdict in _lines(facts, rule, audit=audit):
        if logged and config is not None:
            group = f'log prefix "{name}" group {LOG_GROUP} snaplen {LOG_BYTES}'
            yield f"{match} limit rate {config.packet_in_rate}/second {group}"
        yield f"{match} {counted}{verdict}"


def _lines(facts: Facts, rule: NodeRule, *, audit: bool) -> Iterator[tuple[str, str]]:
    """Yield match and verdict of each line of the rule."""
    for by_port, protocol in named_port_sources(rule):
        yield by_port.text, _verdict(rule, PortMatch("", protocol), audit=audit)
    ports = list(port_matches(rule.rule.services))
    if not audit:
        ports = [part for port in ports for part in _split(rule, port)]
    for source in (*sources(rule), *service_sources(facts, rule)):
        for port in ports:
            if None in (source.ipv6, port.ipv6) or source.ipv6 == port.ipv6:
                yield " ".join(filter(None, (source.text, port.text))), _verdict(rule, port, audit=audit)


def _split(rule: NodeRule, port: PortMatch) -> tuple[PortMatch, ...]:
    """Split off TCP, which is rejected in its own way."""
    if rule.action != REJECT or port.text:
        return (port,)
    return PortMatch("meta l4proto tcp", "TCP"), PortMatch("meta l4proto != tcp", "")


def _verdict(rule: NodeRule, port: PortMatch, *, audit: bool) -> str:
    if rule.action == PASS:
        return f"goto {_base(rule.direction, audit=audit)}-baseline"
    if audit or rule.action not in DENIES:
        return "accept"
    if rule.action == REJECT:
        return "reject with tcp reset" if port.protocol == "TCP" else "reject with icmpx admin-prohibited"
    return "drop"


def _network_sets(rule: NodeRule) -> Iterator[NftSet | NftElement]:
    by_family: tuple[Sequence[IPv4Network | IPv6Network], ...] = blocks(rule.peer)
    for ipv6, networks_of_family in zip((False, True), by_family, strict=True):
        name = block_set(rule, ipv6=ipv6)
        elements = list(block_elements(networks_of_family))
        if elements:
            yield NftSet(name=name, type=ADDRESS_TYPES[ipv6], flags=("interval",))
        for value in elements:
            yield NftElement(set=name, value=value)


def _chain(name: str, hook: str = "") -> NftChain:
    return NftChain(name=name, hook=hook, category=int(Category.NETWORK_POLICY))


def _rule(chain: str, name: str, text: str, order: int) -> NftRule:
    return NftRule(chain=chain, name=name, text=text, order=order)
