"""ServiceExternalIP in the agent: one Node answers neighbors for each external IP, and announces it, once packets to it are
forwarded.

No device has the address, as upstream: kube-proxy or AntreaProxy forward packets to it to an Endpoint.
parity: pkg/agent/controller/serviceexternalip/controller.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.engine import Act, Unit
from antrea.facts.external_ip import AnsweredAddress, ExternalIPOwner, OwnClaims, PoolAddressNodes
from antrea.facts.member import GossipMember, PoolSelector, SilentNetwork
from antrea.facts.node import ThisNode, Transport
from antrea.facts.service import Service, ServiceEndpoint
from antrea.features.external_ip_pool.duplicate import ProbeAddress, is_free, other_host, sentence, strangers
from antrea.features.external_ip_pool.link import neighbours_of
from antrea.features.framework.agent_feature import AgentFeature
from antrea.features.proxy.host import proxies_all
from antrea.features.proxy.service import ENDPOINT_SLICE_WATCH, SERVICE_WATCH
from antrea.features.service_external_ip.failback import RecordFailbackWaits, claim_annotation, failback_waits
from antrea.features.service_external_ip.network import unheard_networks
from antrea.features.service_external_ip.owner import endpoint_node, external_ip_owner
from antrea.features.service_external_ip.relay import accepted_connections, relayed_connections
from antrea.features.service_external_ip.subnet import has_subnets, owner_subnet, subnet_entries, subnet_rules
from antrea.features.service_external_ip.unanswered import RecordUnanswered, unanswered
from antrea.host.neighbour_response import NeighbourResponse
from antrea.openflow.cookie import Category

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Entry, Facts


GATE = "ServiceExternalIP"
NOT_TAKEN = "does not answer for it until that host has gone"
TAKEN = "answers for it, too, as it is in use"


class AnnounceExternalIP(Act, frozen=True):
    """Announce to the neighbours on the link of `dev` that `ip`, of Service `service`, is at this Node."""

    holder: str
    """Key of the ExternalIPOwner row."""
    service: str
    """namespace/name"""
    uid: str
    pool: str
    ip: str
    dev: str
    mac: str = ""
    """MAC address; empty for that of `dev`."""


class RecordAnswered(Act, frozen=True):
    """Record that another Node answers for the external IP: this one may take it over without asking neighbours first."""

    holder: str
    """Key of the ExternalIPOwner row."""
    ip: str
    node: str


class RecordSubnetIgnored(Act, frozen=True):
    """Report in an Event of the Service that its external IP is not in the subnet that its pool names."""

    service: str
    uid: str
    message: str


class RecordExternalIPConflict(Act, frozen=True):
    """Report in an Event of the Service that another host has its external IP."""

    service: str
    uid: str
    message: str


def answered_address(
    facts: Facts, owner: ExternalIPOwner
) -> Iterator[
    Entry
    | AnnounceExternalIP
    | ProbeAddress
    | RecordAnswered
    | RecordExternalIPConflict
    | RecordFailbackWaits
    | RecordSubnetIgnored
    | RecordUnanswered
]:
    """On the Node that is to answer; after the flows of the same pass, and withdrawn before them.

    An address for which no Node has answered waits until its neighbours were asked whether another host has it.
    """
    node, link, service = facts.get(ThisNode), facts.get(Transport), facts.get(Service, owner.service)
    if node is None or link is None or service is None:
        return
    if owner.node != node.name:
        if owner.node:
            yield RecordAnswered(
                owner.key, (owner.ip, owner.node), holder=owner.key, ip=owner.ip, node=owner.node
            )
            yield from _answers_of_earlier(facts, owner, link)
        yield from unanswered(facts, owner, service, node.name)
        return
    subnet = owner_subnet(facts, owner)
    dev = (subnet and subnet.device) or neighbours_of(facts, owner.ip, link)
    answered = facts.get(AnsweredAddress, owner.key)
    is_new = answered is None or answered.ip != owner.ip
    yield ProbeAddress(
        owner.key, (owner.ip, dev), holder=owner.key, dev=dev, ip=owner.ip, before=is_new,
        strangers=strangers(facts, owner.ip, dev, subnet.network if subnet else ""),
    )  # fmt: skip
    if mac := other_host(facts, owner.key, owner.ip):
        yield RecordExternalIPConflict(
            owner.key, (owner.ip, mac), service=owner.service, uid=service.uid,
            message=f"{sentence(owner.ip, mac)}; Node {node.name} {NOT_TAKEN if is_new else TAKEN}",
        )  # fmt: skip
    if subnet:
        yield from subnet_entries(facts, owner, subnet, link)
    if is_new and not is_free(facts, owner.key, owner.ip):
        return
    yield from _subnet_ignored(facts, owner, service, dev)
    yield from failback_waits(facts, owner, service)
    yield NeighbourResponse(dev=dev, ip=owner.ip)
    yield AnnounceExternalIP(
        (owner.key, owner.ip), dev, holder=owner.key, service=owner.service, uid=service.uid, pool=owner.pool, ip=owner.ip, dev=dev
    )  # fmt: skip


def _answers_of_earlier(facts: Facts, owner: ExternalIPOwner, link: Transport) -> Iterator[Entry]:
    """Yield the return path for connections that began here and are relayed to this Node."""
    row, subnet = facts.get(AnsweredAddress, owner.key), owner_subnet(facts, owner)
    if row and row.ip == owner.ip and row.here and subnet and proxies_all(facts):
        yield from subnet_entries(facts, owner, subnet, link)


def _subnet_ignored(
    facts: Facts, owner: ExternalIPOwner, service: Service, dev: str
) -> Iterator[RecordSubnetIgnored]:
    """Yield ignored subnets: without the gates of VLANs neighbors of a Service are those of the Node, as upstream."""
    pool = facts.get(PoolSelector, owner.pool)
    if pool and pool.vlan and not has_subnets(facts):
        yield RecordSubnetIgnored(
            owner.key, (owner.ip, pool.vlan, dev), service=owner.service, uid=service.uid,
            message=f"{owner.ip} is announced on {dev}, not in VLAN {pool.vlan} of ExternalIPPool {owner.pool}:"
            " gates Egress and EgressSeparateSubnet are to be on for that",
        )  # fmt: skip


FEATURE = AgentFeature(
    name="ServiceExternalIP",
    gate=GATE,
    watched=(SERVICE_WATCH, ENDPOINT_SLICE_WATCH),
    units=(
        Unit(ServiceEndpoint, endpoint_node, yields=(PoolAddressNodes,)),
        Unit(Service, external_ip_owner, yields=(ExternalIPOwner,)),
        Unit(ExternalIPOwner, answered_address),
        Unit(ExternalIPOwner, relayed_connections),
        Unit(ExternalIPOwner, accepted_connections),
        Unit(ThisNode, subnet_rules),
        Unit(ThisNode, unheard_networks, yields=(SilentNetwork,)),
        Unit(OwnClaims, claim_annotation),
    ),
    category=Category.EGRESS,
    sweep_after=(Service, ServiceEndpoint, PoolSelector, GossipMember),
)
SHOWN = AgentFeature(name="ServiceExternalIPView")
"""Feature that is always on, so that /serviceexternalip explains why it has nothing to show."""
FEATURES = (FEATURE, SHOWN)
