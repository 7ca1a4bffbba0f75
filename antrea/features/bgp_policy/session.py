"""Sessions of this Node: the BGP speaker, its neighbors, and routers that watch the Node by BFD alone.

A peer whose entry cannot be made is left out, and named with the reason: it is never contacted without its password.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.facts.fact import Fact
from antrea.facts.family import is_ipv6
from antrea.facts.node import ThisNode
from antrea.facts.router import RouterSession
from antrea.features.bgp_policy.network import imports_of, missing_pools, sent_networks
from antrea.features.bgp_policy.password import PeerPassword, peer_key
from antrea.features.bgp_policy.router_id import router_id
from antrea.features.framework.address import canonical
from antrea.host.bgp import BfdOnlySession, BfdTimers, BgpNeighbor, BgpSpeaker, Password

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from antrea.apis.crd.bgp import BfdTimerSettings, BgpPeer
    from antrea.engine import Facts
    from antrea.features.bgp_policy.policy import EffectivePolicy

ONE_HOP, SEVERAL_HOPS = 3784, 4784
"""UDP ports of BFD (RFC 5881, RFC 5883)."""
MAX_HALF, MAX_TEXT = 65535, 40
HOLD, CONNECT_RETRY, IDLE_HOLD = 90, 10, 5
"""Seconds, for a peer that does not name them; the first is upstream's."""


class UnusablePeer(Fact, frozen=True):
    """A peer of the policy that this Node has no session with; derived."""

    peer: str
    """Address, and AS number if it has one."""
    why: str

    @property
    def key(self) -> str:
        return self.peer


class IgnoredSetting(Fact, frozen=True):
    """A setting of a peer that has no effect on this Node; derived."""

    peer: str
    why: str

    @property
    def key(self) -> str:
        return f"{self.peer} {self.why}"


def ignored_settings(facts: Facts, effective: EffectivePolicy) -> Iterator[IgnoredSetting]:
    """Yield settings of peers that have no effect."""
    for peer in effective.policy.peers:
        name = f"{peer.address}-{peer.asn}"
        for pool in missing_pools(facts, peer):
            yield IgnoredSetting(name, f"ExternalIPPool {pool[:MAX_TEXT]!r} does not exist")


def sessions(
    facts: Facts, effective: EffectivePolicy
) -> Iterator[BgpSpeaker | BgpNeighbor | BfdOnlySession | RouterSession | UnusablePeer]:
    """Yield all sessions of the policy that this Node follows; no speaker without a BGP peer."""
    policy, node = effective.policy, facts.need(ThisNode)
    neighbors: dict[str, BgpNeighbor] = {}
    for peer in policy.peers:
        row = neighbor(facts, node, peer)
        if isinstance(row, BgpNeighbor) and row.address in neighbors:
            row = UnusablePeer(peer_key(peer.address, peer.asn), "another peer of the policy has its address")
        if isinstance(row, BgpNeighbor):
            neighbors[row.address] = row
        yield row
    if neighbors:
        times = [peer.graceful_restart_time_seconds for peer in policy.peers]
        identifier = router_id(facts, node)
        yield BgpSpeaker(
            policy.asn, identifier, policy.listen_port, policy.confederation, policy.members, max(times)
        )
    watched = dict(_bfd_sessions(effective, node, neighbors))
    yield from watched.values()
    yield from _router_sessions(policy.listen_port, neighbors, watched)


def _router_sessions(
    listen_port: int,
    neighbors: Mapping[str, BgpNeighbor],
    watched: Mapping[str, BfdOnlySession | UnusablePeer],
) -> Iterator[RouterSession]:
    """Yield the traffic that sessions need."""
    hops = {address: row.hops for address, row in watched.items() if isinstance(row, BfdOnlySession)}
    hops |= {address: row.ttl for address, row in neighbors.items() if row.bfd}
    for address in sorted(neighbors.keys() | hops.keys()):
        bgp = neighbors.get(address)
        bfd_port = (SEVERAL_HOPS if hops[address] > 1 else ONE_HOP) if address in hops else 0
        yield RouterSession(address, listen_port if bgp else 0, bgp.port if bgp else 0, bfd_port)


def neighbor(facts: Facts, node: ThisNode, peer: BgpPeer) -> BgpNeighbor | UnusablePeer:
    """Make the session with a peer, or the reason why there is none."""
    address, key = canonical(peer.address), peer_key(peer.address, peer.asn)
    if why := address_fault(node, address):
        return UnusablePeer(f"{peer.address}-{peer.asn}", why)
    secret = facts.get(PeerPassword, key)
    if secret is not None and secret.why_not:
        return UnusablePeer(
            key, f"its password in Secret antrea-bgp-passwords cannot be used: {secret.why_not}"
        )
    try:
        communities = parsed_communities(peer.communities)
    except ValueError as error:
        return UnusablePeer(
            key, f"community {str(error)[:MAX_TEXT]!r} is not two numbers up to {MAX_HALF}, such as 64512:100"
        )
    try:
        networks, imports = sent_networks(facts, peer, address), imports_of(peer.imported_routes, address)
    except ValueError as error:
        return UnusablePeer(key, str(error))
    hold = peer.hold_time_seconds or HOLD
    watched = peer.bfd is not None and peer.bfd.enabled
    return BgpNeighbor(
        address=address,
        asn=peer.asn,
        port=peer.port,
        ttl=peer.multihop_ttl,
        password=secret.password if secret else Password(""),
        graceful_restart=(not watched)
        if peer.graceful_restart_enabled is None
        else peer.graceful_restart_enabled,
        hold=hold,
        keepalive=min(peer.keepalive_interval_seconds or hold, hold // 3),
        connect_retry=peer.connect_retry_seconds or CONNECT_RETRY,
        idle_hold=peer.idle_hold_time_after_reset_seconds or IDLE_HOLD,
        bfd=timers(peer.bfd) if watched and peer.bfd else None,
        communities=communities,
        local_preference=peer.local_preference,
        networks=networks,
        imports=imports,
    )


def parsed_communities(texts: Iterable[str]) -> tuple[tuple[int, int], ...]:
    """Parse communities such as 64512:100, sorted. Raises ValueError for a text that is not two numbers of 16 bits."""
    communities = set()
    for text in texts:
        high, _, low = text.partition(":")
        if not (high.isdecimal() and low.isdecimal() and max(int(high), int(low)) <= MAX_HALF):
            raise ValueError(text)
        communities.add((int(high), int(low)))
    return tuple(sorted(communities))


def timers(settings: BfdTimerSettings) -> BfdTimers:
    """Return the timers of a peer."""
    return BfdTimers(
        settings.transmit_interval_milliseconds,
        settings.receive_interval_milliseconds,
        settings.detection_multiplier,
    )


def address_fault(node: ThisNode, address: str) -> str:
    """Return why there can be no session with this address; empty if there can."""
    if not address:
        return "its address is invalid"
    if is_ipv6(address) not in {is_ipv6(ip) for ip in node.node_ips}:
        return f"this Node has no IPv{6 if is_ipv6(address) else 4} address"
    if address in (*node.node_ips, *node.transport_ips):
        return "its address is that of this Node"
    return ""


def _bfd_sessions(
    effective: EffectivePolicy, node: ThisNode, neighbors: Mapping[str, BgpNeighbor]
) -> Iterator[tuple[str, BfdOnlySession | UnusablePeer]]:
    """Yield routers that watch by BFD alone, by address; one that has no session by its name."""
    seen = {row.address for row in neighbors.values() if row.bfd}
    for peer in effective.policy.bfd_peers:
        address = canonical(peer.address)
        why = address_fault(node, address)
        if not why and address in seen:
            why = "another peer of the policy with BFD has its address"
        if why:
            name = f"{peer.address} (BFD)"
            yield name, UnusablePeer(name, why)
            continue
        seen.add(address)
        several = peer.multihop_ttl > 1
        yield (
            address,
            BfdOnlySession(
                address=address,
                local=next(ip for ip in node.node_ips if is_ipv6(ip) == is_ipv6(address)) if several else "",
                hops=peer.multihop_ttl,
                timers=timers(peer),
                shutdown=effective.is_draining,
            ),
        )
