"""Egress IPs that this Node is to hold: on antrea-egress0, answered for on their networks, and announced.

parity: pkg/agent/ipassigner/ip_assigner_linux.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.config.agent import AgentConfig
from antrea.engine import Act, Entry, Unit
from antrea.facts.egress import Egress
from antrea.facts.family import is_ipv6
from antrea.facts.node import LocalAddress, ThisNode, Transport
from antrea.features.egress.agent.duplicate_address import may_use, probes
from antrea.features.egress.agent.handover import (
    STILL_HELD,
    ConfirmAnnounced,
    HandoverState,
    assigned_here,
    previous_holder,
    release,
    state_of,
)
from antrea.features.egress.agent.subnet import (
    device_of,
    mac_of,
    placeholder_address,
    route_entries,
    subnet_of,
    vlan_device,
)
from antrea.features.egress.agent.takeover_event import RecordTakeover, took_over
from antrea.features.external_ip_pool.link import DEVICE, neighbours_of
from antrea.host import carrier
from antrea.host.address import Address
from antrea.host.route import ProxyNeighbour
from antrea.host.sysctl import Sysctl
from antrea.openflow.cookie import Category
from antrea.rank import Rank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.features.egress.agent.duplicate_address import RecordConflict
    from antrea.features.egress.agent.handover import ReleaseAddress
    from antrea.features.external_ip_pool.duplicate import ProbeAddress
    from antrea.host.link import Dummy, Link
    from antrea.host.ovs_port import Port


class AnnounceAddress(Act, frozen=True):
    """Announcement to the neighbors on the link of `dev` that `ip` is at this Node, whose MAC address there is `mac`."""

    dev: str
    mac: str
    """MAC address; empty for that of `dev`."""
    ip: str


class RecordAssigned(Act, frozen=True):
    """Event, once, that this Node holds the address of an Egress."""

    row: str
    """Key of the Egress row."""
    egress: str
    uid: str
    ip: str
    node: str
    recorded: bool
    """Whether there is such an Event from before this agent started."""


def node_device(facts: Facts, _node: ThisNode) -> Iterator[Dummy]:
    """Yield the kernel's device, which exists from the start, and is down as upstream's: its addresses are reached all the
    same.
    """
    config = facts.get(AgentConfig)
    if config is not None:
        yield from carrier.kernel_holder(config.ovs_datapath_type, DEVICE)


def egress_device(facts: Facts, egress: Egress) -> Iterator[Port | Link]:
    """Yield a port of OVS as soon as there is a pool, so that an address need not wait for it."""
    config, node = facts.get(AgentConfig), facts.get(ThisNode)
    subnet = subnet_of(facts, egress)
    if not egress.pool or config is None or node is None or (subnet and subnet.device):
        return
    yield from carrier.switch_holder(config.ovs_datapath_type, DEVICE, Category.EGRESS)


def held_address(
    facts: Facts, egress: Egress
) -> Iterator[Entry | ReleaseAddress | ProbeAddress | RecordConflict]:
    """Yield an address of a pool, if this Node is to hold it and no other host has it, or as long as it hands it over."""
    node, link = facts.get(ThisNode), facts.get(Transport)
    if node is None or link is None:
        return
    yield from release(facts, egress, node)
    ours, state = assigned_here(facts, egress, node), state_of(facts, egress, node)
    is_way_out = state is HandoverState.RELEASED
    if not ours and not is_way_out and state not in STILL_HELD:
        return
    subnet = subnet_of(facts, egress)
    device = subnet.device if subnet else ""
    if subnet and device:
        yield from vlan_device(facts, subnet)
    near = device or neighbours_of(facts, egress.ip, link)
    if ours:
        yield from probes(facts, egress, node, near)
        if not may_use(facts, egress):
            return
    if subnet:
        yield from route_entries(facts, subnet, device_of(facts, subnet, link))
    if is_way_out:
        if subnet and device and not is_ipv6(egress.ip):
            yield Address(device, f"{placeholder_address(subnet.vlan)}/32")
        return
    if subnet and device:
        yield Address(device, f"{egress.ip}/{subnet.prefix}")
    else:
        yield from plain_entries(egress, near)


def own_address(facts: Facts, egress: Egress) -> Iterator[ProbeAddress | RecordConflict]:
    """Yield probes for an address without a pool, which its user configured here, and which another host may have, too."""
    node, link = facts.get(ThisNode), facts.get(Transport)
    if node and link and not egress.pool and egress.ip and facts.get(LocalAddress, egress.ip):
        yield from probes(facts, egress, node, neighbours_of(facts, egress.ip, link))


def plain_entries(egress: Egress, device: str) -> Iterator[Entry]:
    """Yield the address on an unconnected device: neighbors reach it by `device`."""
    yield Address(DEVICE, f"{egress.ip}/{128 if is_ipv6(egress.ip) else 32}")
    if is_ipv6(egress.ip):
        # IPv4 answers on any interface; IPv6 only on that which has the address, or is told to
        yield Sysctl(f"net/ipv6/conf/{device}/proxy_ndp", "1")
        yield Sysctl(f"net/ipv6/neigh/{device}/proxy_delay", "0")
        yield ProxyNeighbour(dev=device, ip=egress.ip, rank=Rank.RECEIVES)


def taken_address(
    facts: Facts, egress: Egress
) -> Iterator[AnnounceAddress | RecordAssigned | ConfirmAnnounced | RecordTakeover]:
    """Yield acts for an address that is in place, with its flows and translations: an act waits for the entries of its pass.

    An address that another Node hands over is announced before Pods' packets are redirected here: answers to what still leaves
    there go back.
    """
    node, link = facts.get(ThisNode), facts.get(Transport)
    here = facts.get(LocalAddress, egress.ip) if egress.ip else None
    subnet = subnet_of(facts, egress)
    device = subnet.device if subnet else ""
    if node is None or link is None or here is None or here.dev != (device or DEVICE):
        return
    if not assigned_here(facts, egress, node):
        return
    yield from took_over(facts, egress, node)
    plain = (neighbours_of(facts, egress.ip, link), "")
    dev, mac = (device, mac_of(facts, node, link, device)) if device else plain
    yield AnnounceAddress(egress.ip, (dev, mac), dev=dev, mac=mac, ip=egress.ip)
    if not (before := previous_holder(facts, egress, node)):
        recorded = (egress.node, egress.held) == (node.name, egress.ip) and not egress.failed
        yield RecordAssigned(
            egress.key, egress.ip, row=egress.key, egress=egress.name, uid=egress.uid, ip=egress.ip,
            node=node.name, recorded=recorded,
        )  # fmt: skip
    elif state_of(facts, egress, node) is HandoverState.TAKING:
        yield ConfirmAnnounced(
            egress.key, (egress.ip, before), egress=egress.key, ip=egress.ip, before=before
        )


HELD_ADDRESSES = Unit(Egress, held_address)
