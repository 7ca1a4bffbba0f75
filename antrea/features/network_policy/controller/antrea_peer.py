"""Targets and peers of rules of Antrea's own policies, as the groups and networks that are sent to agents.

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
    """Group by its name, and the rows that make it; it is sent to agents."""

    name: str
    rows: tuple[Row, ...]


class RulePeers(msgspec.Struct, frozen=True):
    """Peers of a rule as sent to agents, and their groups."""

    peer: cp.NetworkPolicyPeer
    groups: tuple[ChosenGroup, ...] = ()


def by_selector(resource: str, selector: GroupSelector | None) -> ChosenGroup:
    """Make the group of a selector, named after it and shared by all policies that have the same one; None has no member."""
    name = uuid_of(selector.name if selector else "")
    if selector is None:
        return ChosenGroup(name, (GroupHead(resource, name, name),))
    group = PublishedGroup(resource, name, name)
    return ChosenGroup(name, (selector.with_parts((group,)), head(group)))


def by_service(namespace: str, name: str) -> ChosenGroup:
    """Make the group of all clients of a Service's NodePorts, at every Node; empty for invalid names."""
    if not (is_object_name(namespace) and is_object_name(name)):
        return by_selector(APPLIED, None)
    uid = uuid_of(f"{namespace}/{name}")
    group = PublishedGroup(APPLIED, uid, uid, service=(namespace, name))
    return ChosenGroup(uid, (group, head(group)))


def targets(facts: Facts, namespace: str, applied: Iterable[AppliedTo]) -> tuple[ChosenGroup, ...]:
    """Return the targets of a policy of `namespace` ("" for one of the cluster), or of one of its rules."""
    groups = (_target(facts, namespace, target) for target in applied)
    return tuple(group for group in groups if group is not None)


def _target(facts: Facts, namespace: str, applied: AppliedTo) -> ChosenGroup | None:
    if applied.group:
        key = group_key(namespace, applied.group)
        group = facts.get(WholeGroup, key)
        return ChosenGroup(key, (GroupUse(APPLIED, key),)) if group and group.applies else None
    if applied.service:
        service = applied.service
        return by_selector(APPLIED, None) if namespace else by_service(service.namespace, service.name)
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


def rule_peers(
    facts: Facts, namespace: str, rule: Rule, peers: Sequence[Peer], direction: str
) -> Generator[Row | None, None, RulePeers]:
    """Make the peers of a rule that mean the same wherever it applies; no peers stand for everybody.

    Yields the rows of the groups, and None where it may pause.
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
    for count, peer_spec in enumerate(peers, 1):
        if peer_spec.ip_block is not None:
            with contextlib.suppress(ValueError):  # nobody, as upstream's; other peers are not concerned
                networks.append((yield from read_block(peer_spec.ip_block)))
            chosen: list[ChosenGroup] = []
        else:
            chosen, inside = _named(facts, namespace, peer_spec)
            networks += inside
        for group in chosen:
            if group.name not in groups:
                groups[group.name] = group
                yield from group.rows
        if count % PORTION == 0:
            yield None
    peer = cp.NetworkPolicyPeer(
        address_groups=tuple(groups),
        ip_blocks=tuple(networks),
        fqdns=tuple(
            crd_peer.fqdn
            for crd_peer in peers
            if crd_peer.fqdn and not crd_peer.ip_block and not crd_peer.group
        ),
    )
    return RulePeers(peer, tuple(groups.values()))


def _peer_selector(namespace: str, peer: Peer) -> GroupSelector | None:
    if (account := peer.service_account) is not None:
        return account_selector(account.namespace, account.name)
    if peer.node_selector is not None:
        return group_selector(nodes=peer.node_selector)
    return group_selector(
        namespace, peer.pod_selector, peer.namespace_selector, entities=peer.external_entity_selector
    )


def _named(facts: Facts, namespace: str, peer: Peer) -> tuple[list[ChosenGroup], tuple[cp.IPBlock, ...]]:
    """Return groups and blocks of a peer other than a block."""
    if peer.group:
        return _group(facts, group_key(namespace, peer.group))
    return ([] if peer.fqdn else [by_selector(ADDRESS, _peer_selector(namespace, peer))]), ()


def _group(facts: Facts, key: str) -> tuple[list[ChosenGroup], tuple[cp.IPBlock, ...]]:
    """Return the members as a group, if it can have some, and its blocks."""
    whole = facts.get(WholeGroup, key)
    if whole is None:
        return [], ()
    return [ChosenGroup(key, (GroupUse(ADDRESS, key),))] if whole.selects else [], whole.blocks


def _services(namespace: str, wanted: Iterable[PeerService]) -> Iterator[cp.ServiceReference]:
    for reference in wanted:
        if reference.scope != STRETCHED:
            yield cp.ServiceReference(name=reference.name, namespace=reference.namespace or namespace)


def services(rule: Rule) -> tuple[cp.Service, ...]:
    """Return ports, then protocols without ports; none of them stands for all."""
    ports = [
        cp.Service(
            protocol=port.protocol or "TCP",
            port=port.port,
            end_port=port.end_port,
            src_port=port.source_port,
            src_end_port=port.source_end_port,
        )
        for port in rule.ports
    ]
    for protocol in rule.protocols:
        if (icmp := protocol.icmp) is not None:
            ports.append(cp.Service(protocol="ICMP", icmp_type=icmp.icmp_type, icmp_code=icmp.icmp_code))
        if (igmp := protocol.igmp) is not None:
            address = igmp.group_address
            ports.append(cp.Service(protocol="IGMP", igmp_type=igmp.igmp_type, group_address=address))
    return tuple(ports)


def applications(rule: Rule) -> tuple[cp.L7Protocol, ...]:
    """Return the application protocols of a rule."""
    return tuple(
        cp.L7Protocol(http=_http(protocol.http), tls=_tls(protocol.tls)) for protocol in rule.l7_protocols
    )


def _http(http: HttpProtocol | None) -> cp.HTTPProtocol | None:
    return None if http is None else cp.HTTPProtocol(host=http.host, method=http.method or "", path=http.path)


def _tls(tls: TlsProtocol | None) -> cp.TLSProtocol | None:
    return None if tls is None else cp.TLSProtocol(sni=tls.sni)
