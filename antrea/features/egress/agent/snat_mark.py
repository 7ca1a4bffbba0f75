"""Source translation on the host of packets that carry the mark of an Egress IP.

TCP connections whose gateway is lost are taken over by the next one, or reset. Taken over, a connection continues where the
other end finds it under the same address and port; a firewall on the way may drop it silently. So its Pod may have it reset
immediately instead, with the first packet that it sends.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from antrea.apis.annotation import LOST_CONNECTIONS
from antrea.config.agent import AgentConfig
from antrea.facts.egress import Egress, EgressMark
from antrea.facts.family import is_ipv6
from antrea.features.egress.agent.allocated import unallocated_reason
from antrea.features.egress.preference import RESET
from antrea.features.framework.agent_feature import NumberPattern
from antrea.host import carrier
from antrea.host.nft import NftChain, NftElement, NftRule, NftSet
from antrea.openflow.fields import SNAT_PKT_MARK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from antrea.engine import Facts
    from antrea.facts.egress import ReleasedAddress
    from antrea.facts.node import LocalAddress, ThisNode

POOL: Final = "egress-mark"
MARK: Final = f"meta mark & {SNAT_PKT_MARK.mask:#010x}"
"""The mark of a packet's Egress IP in a rule of nft."""
MAX_AS: Final = carrier.MAX_MARKS
"""Maximum number of addresses: as many as the field has marks, 0 being none."""
MAPS: Final = {False: "egress-snat", True: "egress-snat6"}
_MAC = re.escape(carrier.mark_mac(0)[:-2])
NUMBERS: Final = (
    # what packet_mark.marked does on each datapath: a bit range of pkt_mark, or the source MAC
    NumberPattern(
        POOL,
        re.compile(r"(0x[0-9a-f]+)(?:/0x[0-9a-f]+)?->(?:pkt_mark|NXM_NX_PKT_MARK)\b"),
        base=16,
        mask=MAX_AS,
    ),
    NumberPattern(
        POOL, re.compile(rf"\b{_MAC}([0-9a-f]{{2}})->eth_src|\bmod_dl_src:{_MAC}([0-9a-f]{{2}})\b"), base=16
    ),
)
BEFORE_MASQUERADE: Final = 50
SET: Final = "egress-reset"
BEFORE_FORWARD: Final = 50


def address_mark(facts: Facts, address: LocalAddress) -> Iterator[EgressMark]:
    """Yield the number of an address of this Node that Egresses have, which all of these share."""
    if facts.by(Egress, "ip", address.ip):
        yield EgressMark(address.ip, facts.id(POOL, address.ip))


def released_mark(facts: Facts, row: ReleasedAddress) -> Iterator[EgressMark]:
    """Yield the number of an address that another Node has taken over: late packets are translated without it."""
    yield EgressMark(row.ip, facts.id(POOL, row.ip))


def host_rules(facts: Facts, node: ThisNode) -> Iterator[NftChain | NftSet | NftRule]:
    """Yield one rule per family, whatever Egress IPs there are; packets without a mark fall through to the Node's address."""
    config = facts.get(AgentConfig)
    if config is None:
        return
    yield from carrier.reading_entries(config.ovs_datapath_type, config.host_gateway)
    fully = config.egress.snat_fully_random_ports
    random = " fully-random" if (config.snat_fully_random_ports if fully is None else fully) else ""
    # whose Egress IP was here a moment ago does not leave with the Node's address
    yield NftRule(
        chain="postrouting",
        name="no Pods to outside without the Egress IP asked for",
        text=f'iifname "{config.host_gateway}" oifname != "{config.host_gateway}" meta mark & {SNAT_PKT_MARK.mask:#010x} != 0x00000000 drop',
        order=BEFORE_MASQUERADE + 1,
    )
    # what connection tracking calls invalid, such as the end of a connection of another gateway, passes no chain of type nat
    yield NftRule(
        chain="forward",
        name="nothing to outside without the Egress IP asked for",
        text=f'iifname "{config.host_gateway}" oifname != "{config.host_gateway}" ct state invalid {MARK} != 0x00000000 drop',
        order=BEFORE_FORWARD + 1,
    )
    for version6 in sorted(node.families):
        name, nat, proto = MAPS[version6], "ip6" if version6 else "ip", "ipv6" if version6 else "ipv4"
        yield NftSet(name=name, type="mark", data=f"{proto}_addr")
        yield NftRule(
            chain="postrouting",
            name=f"Pods to outside with an Egress IP, {nat}",
            text=(
                f'oifname != "{config.host_gateway}" meta nfproto {proto}'
                f" snat {nat} to meta mark & {SNAT_PKT_MARK.mask:#010x} map @{name}{random}"
            ),
            order=BEFORE_MASQUERADE,
        )


def mark_elements(facts: Facts, mark: EgressMark) -> Iterator[NftElement]:
    """Yield elements that must be in the kernel before any flow sends."""
    config = facts.get(AgentConfig)
    if config is None:
        return
    number = facts.id(POOL, mark.ip)
    yield NftElement(set=MAPS[is_ipv6(mark.ip)], value=f"{number:#010x}", data=mark.ip)
    yield from carrier.mark_entry(config.ovs_datapath_type, number)


def resets(annotations: Mapping[str, str]) -> bool:
    """Whether connections that this gateway does not know are ended."""
    return annotations.get(LOST_CONNECTIONS, "").strip() == RESET


def oldest_of(facts: Facts, ip: str) -> Egress | None:
    """Return the row of the Egress that decides for all that share an address: the oldest, then the first by name."""
    rows = (row for row in facts.by(Egress, "ip", ip) if not unallocated_reason(facts, row))
    return min(rows, key=lambda row: row.precedence, default=None)


def lost_rule(facts: Facts, _node: ThisNode) -> Iterator[NftSet | NftRule]:
    """Yield a rule that resets a packet from the middle of a connection that is new to this host."""
    config = facts.get(AgentConfig)
    if config is None:
        return
    gateway, mask = f'"{config.host_gateway}"', f"{SNAT_PKT_MARK.mask:#010x}"
    yield NftSet(name=SET, type="mark")
    yield NftRule(
        chain="forward",
        name="an end to connections through a lost gateway",
        text=(
            f"iifname {gateway} oifname != {gateway} ct state new tcp flags & (syn | rst) == 0x0"
            f" meta mark & {mask} @{SET} reject with tcp reset"
        ),
        order=BEFORE_FORWARD,
    )


def lost_elements(facts: Facts, mark: EgressMark) -> Iterator[NftElement]:
    """Yield the marks of addresses whose oldest Egress, then the first by name, resets."""
    oldest = oldest_of(facts, mark.ip)
    if oldest and oldest.resets:
        yield NftElement(set=SET, value=f"{facts.id(POOL, mark.ip):#010x}")
