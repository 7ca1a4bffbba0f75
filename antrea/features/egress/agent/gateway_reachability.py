"""Reachability of the gateways of pools' subnets: if the Node's cable is cut, or its switch port drops the tag of the VLAN,
none answers, and neighbors do not receive the Node's answers either.

The Node with an address of a pool probes the pool's gateway and reports in the Egress; the controller reports in the pool. All
agents give addresses of the subnet to other Nodes as long as there are any (antrea/features/external_ip_pool/silence.py). The
device stays for the time, so that it sees when the gateway answers. Subnets without VLAN are probed if this Node answers for
Services in them. Upstream does not notice lost frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis.crd.part import Condition
from antrea.engine import Act
from antrea.facts.egress import Egress, EgressGateway
from antrea.facts.external_ip import ExternalIPOwner
from antrea.facts.member import AgentNode, PoolSelector, SilenceReport, SilentNetwork
from antrea.facts.node import LocalAddress, OnLink, ThisNode, Transport
from antrea.features.egress.agent.subnet import Subnet, are_apart, device_of, vlan_device
from antrea.features.egress.spec import ANSWERS
from antrea.features.external_ip_pool.silence import silent_networks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.host.link import Link, Vlan
    from antrea.host.ovs_port import Port
    from antrea.host.sysctl import Sysctl

DEVICES: Final = "antrea-ext."
"""Prefix of the names of devices in VLANs."""


READS: Final = (
    Egress,
    ExternalIPOwner,
    LocalAddress,
    PoolSelector,
    AgentNode,
    OnLink,
    SilenceReport,
    Transport,
)
"""Kinds on which the gateways to probe depend."""


class RecordSilentGateway(Act, frozen=True):
    """Event of this Node that the gateway of a pool does not answer it."""

    message: str


def gateway_of(facts: Facts, egress: Egress) -> EgressGateway | None:
    """Return the gateway of an address on a device of a VLAN here, presumed to answer."""
    here = facts.get(LocalAddress, egress.ip) if egress.ip and egress.pool else None
    pool = facts.get(PoolSelector, egress.pool) if here and here.dev.startswith(DEVICES) else None
    return EgressGateway(here.dev, pool.gateway, answers=True) if here and pool and pool.gateway else None


def wanted_gateways(facts: Facts) -> set[EgressGateway]:
    """Return the gateways of all addresses of this Node, and of subnets that it reported as silent."""
    this = facts.get(ThisNode)
    this_agent = facts.get(AgentNode, this.name) if this else None
    named = {row.pool for row in facts.all(ExternalIPOwner) if this and row.node == this.name}
    silent = silent_networks(facts, this_agent) if this_agent else ()
    pools = [pool for pool in facts.all(PoolSelector) if pool.pool in named or pool.subnet in silent]
    gateways = {gateway for pool in pools if are_apart(facts) and (gateway := _gateway(facts, pool))}
    return gateways | {used for egress in facts.all(Egress) if (used := gateway_of(facts, egress))}


def _gateway(facts: Facts, pool: PoolSelector) -> EgressGateway | None:
    """Return the gateway, presumed to answer; None if its pool has no subnet, or the Node's interfaces are not known yet."""
    link = facts.get(Transport)
    if link is None or not pool.subnet:
        return None
    return EgressGateway(device_of(facts, _subnet(pool), link), pool.gateway, answers=True)


def _subnet(pool: PoolSelector) -> Subnet:
    return Subnet("", pool.prefix, pool.gateway, pool.vlan)


def is_silent(facts: Facts, pool: PoolSelector, agent_node: AgentNode) -> bool:
    """Whether the gateway is silent; the last report counts until a probe has a result."""
    gateway = _gateway(facts, pool)
    probed = facts.get(EgressGateway, gateway.key) if gateway else None
    return not probed.answers if probed else pool.subnet in silent_networks(facts, agent_node)


def silent_subnets(
    facts: Facts, node: ThisNode
) -> Iterator[SilentNetwork | Port | Vlan | Link | Sysctl | RecordSilentGateway]:
    """Yield the subnets that this Node reports, and the devices by which it continues to probe."""
    agent_node = facts.get(AgentNode, node.name)
    if agent_node is None:
        return
    pools = {pool.subnet: pool for pool in facts.all(PoolSelector) if pool.subnet and are_apart(facts)}
    silent = [pool for _, pool in sorted(pools.items()) if is_silent(facts, pool, agent_node)]
    for pool in silent:
        yield SilentNetwork(pool.subnet)
        if pool.vlan:
            yield from vlan_device(facts, _subnet(pool))
        gateway = _gateway(facts, pool)
        sentence = (
            _sentence(gateway, node.name)
            if gateway
            else f"gateway {pool.gateway} does not answer Node {node.name}"
        )
        message = (
            f"{sentence}; as long as other Nodes can, they have the addresses of ExternalIPPool {pool.pool}"
        )
        yield RecordSilentGateway(pool.subnet, True, message=message)


def silence(facts: Facts, egress: Egress, node: str) -> str:
    """Return what the Node that has the address reports of its gateway; empty if nothing, or it answers."""
    gateway = gateway_of(facts, egress)
    probed = facts.get(EgressGateway, gateway.key) if gateway else None
    if probed is None or probed.answers:
        return ""
    return _sentence(probed, node)


def _sentence(gateway: EgressGateway, node: str) -> str:
    vlan = gateway.dev.removeprefix(DEVICES)
    has_to = (
        f"has to carry VLAN {vlan}, tagged" if vlan != gateway.dev else "has to have a cable that leads to it"
    )
    return f"gateway {gateway.ip} does not answer Node {node} on {gateway.dev}: the switch port of the Node {has_to}"


def gateway_conditions(facts: Facts, egress: Egress, node: str) -> tuple[Condition, ...]:
    """Return the condition of an Egress of one address, by the Node that has it."""
    if message := silence(facts, egress, node):
        return (Condition(ANSWERS, "False", reason="NoAnswer", message=message),)
    return (Condition(ANSWERS),) if egress.unanswered else ()
