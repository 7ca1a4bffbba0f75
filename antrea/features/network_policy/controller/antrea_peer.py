"""Whom rules of Antrea's own policies are for, and their peers: the groups and networks that these are sent as.

parity: pkg/controller/networkpolicy/crd_utils.go toAntreaPeerForCRD, toAntreaServicesForCRD, processClusterAppliedTo
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from antrea.apis import controlplane as cp
from antrea.apis.crd.part import LabelSelector
from antrea.facts.fact import Fact
from antrea.facts.group import PublishedGroup
from antrea.features.framework.label import is_object_name
from antrea.features.grouping.member import ADDRESS, APPLIED
from antrea.features.grouping.publication import GroupHead, head
from antrea.features.grouping.selector import account_selector, group_selector
from antrea.features.network_policy.controller.group import GroupUse, WholeGroup, group_key
from antrea.features.network_policy.controller.peer import ALL, has_named_port, read_block, uuid_of
from antrea.features.network_policy.internal_policy import PORTION

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from antrea.apis.crd.network_policy import (
        AppliedTo,
        HttpProtocol,
        Peer,
        PeerService,
        Rule,
        TlsProtocol,
    )
    from antrea.engine import Facts
    from antrea.facts.group import GroupSelector

STRETCHED = "ClusterSet"


Row = Fact | GroupHead


class ChosenGroup(msgspec.Struct, frozen=True):
    """A group by its name, and the rows that make it; it is sent to agents."""

    name: str
    rows: tuple[Row, ...]


class RulePeers(msgspec.Struct, frozen=True):
    """The peers of a rule as sent to agents, and their groups."""

    peer: cp.NetworkPolicyPeer
    groups: tuple[ChosenGroup, ...] = ()


def by_selector(resource: str, selector: GroupSelector | None) -> ChosenGroup:
    """Named after the selector, which all policies share that have the same one; None has no member."""
    name = uuid_of(selector.name if selector else "")
    if selector is None:
        return ChosenGroup(name, (GroupHead(resource, name, name),))
    group = PublishedGroup(resource, name, name)
    return ChosenGroup(name, (selector.with_parts((group,)), head(group)))


def by_service(namespace: str, name: str) -> ChosenGroup:
    """All clients of a Service's NodePorts, at every Node; none by names that no Service can have."""
    if not (is_object_name(namespace) and is_object_name(name)):
        return by_selector(APPLIED, None)
    uid = uuid_of(f"{namespace}/{name}")
    group = PublishedGroup(APPLIED, uid, uid, service=(namespace, name))
    return ChosenGroup(uid, (group, head(group)))


def targets(facts: Facts, namespace: str, applied: Iterable[AppliedTo]) -> tuple[ChosenGroup, ...]:
    """What a policy of `namespace` ("" for one of the cluster), or one of its rules, is for."""
    found = (_target(facts, namespace, one) for one in applied)
    return tuple(one for one in found if one is not None)


def _target(facts: Facts, namespace: str, applied: AppliedTo) -> ChosenGroup | None:
    if applied.group:
        key = group_key(namespace, applied.group)
        group = facts.get(WholeGroup, key)
        return ChosenGroup(key, (GroupUse(APPLIED, key),)) if group and group.applies else None
    if applied.service:
        own = applied.service
        return by_selector(APPLIED, None) if namespace else by_service(own.namespace, own.name)
    if (account := applied.service_account) is not None:
        return by_selector(APPLIED, account_selector(account.namespace, account.name))
    return by_selector(
        APPLIED,
        group_selector(
            "" if applied.node_selector else namespace,
            applied.pod_selector,
            applied.namespace_selector,
            entities=applied.external_entity_selector,
            nodes=applied.node_selector,
        ),
    )


def side(
    facts: Facts, namespace: str, rule: Rule, peers: Sequence[Peer], direction: str
) -> Generator[Row | None, None, RulePeers]:
    """Of the `peers` of a rule that mean the same wherever it applies; none of them stands for everybody.

    Yields what makes the groups as they come, and None at places for a pause.
    """
    if direction == "Out" and rule.to_services:
        return RulePeers(cp.NetworkPolicyPeer(to_services=tuple(_services(namespace, rule.to_services))))
    if not peers:
        if direction == "In" or not has_named_port(rule.ports):
            return RulePeers(ALL)
        # each Pod may give the port another number
        everybody = by_selector(ADDRESS, group_selector(namespaces=LabelSelector()))
        yield from everybody.rows
        return RulePeers(msgspec.structs.replace(ALL, address_groups=(everybody.name,)), (everybody,))
    groups: dict[str, ChosenGroup] = {}
    networks: list[cp.IPBlock] = []
    for count, one in enumerate(peers, 1):
        if one.ip_block is not None:
            with contextlib.suppress(ValueError):  # nobody, as upstream's; other peers are not concerned
                networks.append((yield from read_block(one.ip_block)))
            chosen: list[ChosenGroup] = []
        else:
            chosen, inside = _named(facts, namespace, one)
            networks += inside
        for group in chosen:
            if group.name not in groups:
                groups[group.name] = group
                yield from group.rows
        if count % PORTION == 0:
            yield None
    found = cp.NetworkPolicyPeer(
        address_groups=tuple(groups),
        ip_blocks=tuple(networks),
        fqdns=tuple(one.fqdn for one in peers if one.fqdn and not one.ip_block and not one.group),
    )
    return RulePeers(found, tuple(groups.values()))


def _peer_selector(namespace: str, peer: Peer) -> GroupSelector | None:
    if (account := peer.service_account) is not None:
        return account_selector(account.namespace, account.name)
    if peer.node_selector is not None:
        return group_selector(nodes=peer.node_selector)
    return group_selector(
        namespace, peer.pod_selector, peer.namespace_selector, entities=peer.external_entity_selector
    )


def _named(facts: Facts, namespace: str, peer: Peer) -> tuple[list[ChosenGroup], tuple[cp.IPBlock, ...]]:
    """Groups and blocks of a peer that is no block."""
    if peer.group:
        return _group(facts, group_key(namespace, peer.group))
    return ([] if peer.fqdn else [by_selector(ADDRESS, _peer_selector(namespace, peer))]), ()


def _group(facts: Facts, key: str) -> tuple[list[ChosenGroup], tuple[cp.IPBlock, ...]]:
    """Its members as a group, if it can have some, and its blocks."""
    found = facts.get(WholeGroup, key)
    if found is None:
        return [], ()
    return [ChosenGroup(key, (GroupUse(ADDRESS, key),))] if found.selects else [], found.blocks


def _services(namespace: str, wanted: Iterable[PeerService]) -> Iterator[cp.ServiceReference]:
    for one in wanted:
        if one.scope != STRETCHED:
            yield cp.ServiceReference(name=one.name, namespace=one.namespace or namespace)


def services(rule: Rule) -> tuple[cp.Service, ...]:
    """Ports, then protocols without ports; none of them stands for all."""
    found = [
        cp.Service(
            protocol=one.protocol or "TCP",
            port=one.port,
            end_port=one.end_port,
            src_port=one.source_port,
            src_end_port=one.source_end_port,
        )
        for one in rule.ports
    ]
    for protocol in rule.protocols:
        if (icmp := protocol.icmp) is not None:
            found.append(cp.Service(protocol="ICMP", icmp_type=icmp.icmp_type, icmp_code=icmp.icmp_code))
        if (igmp := protocol.igmp) is not None:
            address = igmp.group_address
            found.append(cp.Service(protocol="IGMP", igmp_type=igmp.igmp_type, group_address=address))
    return tuple(found)


def applications(rule: Rule) -> tuple[cp.L7Protocol, ...]:
    """Application protocols of a rule."""
    return tuple(cp.L7Protocol(http=_http(one.http), tls=_tls(one.tls)) for one in rule.l7_protocols)


def _http(found: HttpProtocol | None) -> cp.HTTPProtocol | None:
    return (
        None
        if found is None
        else cp.HTTPProtocol(host=found.host, method=found.method or "", path=found.path)
    )


def _tls(found: TlsProtocol | None) -> cp.TLSProtocol | None:
    return None if found is None else cp.TLSProtocol(sni=found.sni)
