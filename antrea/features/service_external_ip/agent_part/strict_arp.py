"""External IPs for which every Node's kernel answers: kube-proxy in mode ipvs has them on a device of each Node.

Upstream asks its users to set `strictARP` and does not check it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from antrea.facts.external_ip import ExternalIPOwner
from antrea.facts.family import is_ipv6
from antrea.facts.node import LocalAddress, Transport
from antrea.features.external_ip_pool.link import neighbours_of
from antrea.outside.neighbour.arp_ignore import answers_for_all_devices

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.features.framework.agent_part import AgentContext

CONDITION: Final = "StrictARPMissing"
DEVICE: Final = "kube-ipvs0"
LOOK_SECONDS: Final = 30.0
MAX_NAMED: Final = 5


def strict_arp_missing(facts: Facts) -> str:
    """Return which external IPs this Node's kernel answers for, whichever Node is to, and the repair; empty if none.

    For IPv6 the kernel only answers for addresses of the receiving device.
    """
    link = facts.get(Transport)
    if link is None:
        return ""
    held = (facts.get(LocalAddress, row.ip) for row in facts.all(ExternalIPOwner) if not is_ipv6(row.ip))
    ips = sorted({row.ip for row in held if row and row.dev == DEVICE})
    answered = [ip for ip in ips if answers_for_all_devices(neighbours_of(facts, ip, link))]
    if not answered:
        return ""
    more = f" and {len(answered) - MAX_NAMED} more" if len(answered) > MAX_NAMED else ""
    return (
        f"every Node answers ARP requests for external IPs of Services, as kube-proxy in mode ipvs has them on {DEVICE}: "
        f"{', '.join(answered[:MAX_NAMED])}{more}; set ipvs.strictARP: true in the configuration of kube-proxy and restart it"
    )


async def report_strict_arp(agent: AgentContext) -> None:
    """Record an Event of this Node each time that it begins, until cancelled."""
    before = False
    while True:
        message = strict_arp_missing(agent.facts)
        if message and not before:
            agent.record(CONDITION, message, warning=True)
        before = bool(message)
        await asyncio.sleep(LOOK_SECONDS)
