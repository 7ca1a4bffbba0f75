"""BFD between Nodes that may hold Egress IPs: dedicated tunnels, in which OVS monitors the other end.

Each pair has a Geneve port with a VNI of its own beside the one that carries the Pods' packets (`remote_ip=flow`), of which it
takes none. So that a large pool needs no mesh, a candidate has sessions only with its neighbors on a ring. Upstream has only
gossip. Source: RFC 5880; ovs-vswitchd.conf.db(5), column bfd of Interface
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from antrea.config.agent import AgentConfig
from antrea.engine import Unit
from antrea.facts.family import is_ipv6
from antrea.facts.member import AgentNode, BfdPartner, EgressCandidate, PoolSelector
from antrea.facts.node import ThisNode
from antrea.features.grouping.selector import meets
from antrea.host.ovs_port import BFD, NODE_KEY, TYPE_KEY, Port
from antrea.openflow.cookie import Category

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from antrea.engine import Facts

INTERVAL_MS = 60
"""BFD interval; with three of them and Timing.answer of gossip, addresses of a Node without power move within 0.6 s in the
median.
"""
NEAR = 4
"""Number of neighbors on each side of the ring."""
FEW = 3
"""Number of candidates below which there is no majority, so that a session is slower to go down."""
MULTIPLIER, PATIENT = 3, 5


def candidate(facts: Facts, node: AgentNode) -> Iterator[EgressCandidate]:
    """Yield a candidate if any pool may have addresses at the Node."""
    this, config = facts.get(ThisNode), facts.get(AgentConfig)
    if this is None or not this.transport_ips or (config and not config.has_tunnel):
        return
    same = [ip for ip in node.transport_ips if is_ipv6(ip) == is_ipv6(this.transport_ips[0])]
    labels = dict(node.labels)
    if node.gossips and same and any(meets(labels, pool.nodes) for pool in facts.all(PoolSelector)):
        yield EgressCandidate(node.name, same[0])


def partners(facts: Facts, this: ThisNode) -> Iterator[BfdPartner]:
    """Yield the neighbors of this Node on the ring of candidates, if it is one."""
    if facts.get(EgressCandidate, this.name) is None:
        return
    ring = sorted(facts.all(EgressCandidate), key=lambda member: _place(member.node))
    multiplier = PATIENT if len(ring) < FEW else MULTIPLIER
    for near in neighbours([candidate.node for candidate in ring], this.name):
        yield BfdPartner(ring[near].node, ring[near].address, multiplier)


def neighbours(ring: Sequence[str], name: str) -> list[int]:
    """Return the indexes of those within NEAR of `name`, each once; the relation is symmetric."""
    here = ring.index(name)
    steps = [step for near in range(1, NEAR + 1) for step in (near, -near)]
    return sorted({(here + step) % len(ring) for step in steps} - {here})


def bfd_port(facts: Facts, partner: BfdPartner) -> Iterator[Port]:
    """Yield the tunnel to a partner; both ends give it the same VNI."""
    config, this = facts.get(AgentConfig), facts.get(ThisNode)
    if config is None or this is None:
        return
    options = {"remote_ip": partner.address, "key": str(vni(this.name, partner.node))}
    if config.tunnel_port and config.tunnel_port_number:
        options["dst_port"] = str(config.tunnel_port)
    bfd = {"enable": "true", "min_rx": INTERVAL_MS, "min_tx": INTERVAL_MS, "mult": partner.multiplier}
    yield Port(
        name=f"{BFD}-{_place(partner.node).hex()[:11]}",
        type=config.tunnel_type,
        options=tuple(options.items()),
        external_ids=((TYPE_KEY, BFD), (NODE_KEY, partner.node)),
        no_flood=True,
        category=int(Category.EGRESS),
        bfd=tuple((key, str(value)) for key, value in bfd.items()),
    )


def vni(node: str, other: str) -> int:
    """Return the VNI of a pair of Nodes: 1 to 2^24-1. Two pairs may share one, since their addresses differ."""
    content = "/".join(sorted((node, other))).encode()
    return int.from_bytes(blake2b(content, digest_size=3).digest()) or 1


def _place(node: str) -> bytes:
    return blake2b(node.encode(), digest_size=8).digest()


UNITS = (
    Unit(AgentNode, candidate, yields=(EgressCandidate,)),
    Unit(ThisNode, partners, yields=(BfdPartner,)),
    Unit(BfdPartner, bfd_port),
)
