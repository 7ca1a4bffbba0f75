"""Whether the router of a VLAN answers where Egress IPs of the VLAN are: if the Node's switch port drops its tag, none does.

The Node with an address of a pool probes the pool's gateway and reports in the Egress; the controller reports in the pool.
Beyond upstream, where tagged frames that get lost leave no trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis.crd.part import Condition
from antrea.apis.status import Status
from antrea.engine import Unit
from antrea.facts.egress import Egress, EgressGateway, EgressRow
from antrea.facts.external_ip import FencedLeadership
from antrea.facts.member import PoolSelector
from antrea.facts.node import LocalAddress
from antrea.features.external_ip_pool.pool import POOLS, PoolRow

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from antrea.engine import Facts

ANSWERS: Final = "GatewayAnswers"
"""Type of a condition of ours, of Egresses and pools: there while it does not."""
MANAGER: Final = "antrea-controller-gateway"
DEVICES: Final = "antrea-ext."
"""What names of devices in VLANs begin with."""


READS: Final = (Egress, LocalAddress, PoolSelector)
"""Kinds on which the gateways to ask depend."""


def gateway_of(facts: Facts, egress: Egress) -> EgressGateway | None:
    """That of an address which is on a device of a VLAN here, as if it answered."""
    here = facts.get(LocalAddress, egress.ip) if egress.ip and egress.pool else None
    pool = facts.get(PoolSelector, egress.pool) if here and here.dev.startswith(DEVICES) else None
    return EgressGateway(here.dev, pool.gateway, answers=True) if here and pool and pool.gateway else None


def wanted_gateways(facts: Facts) -> set[EgressGateway]:
    """Of all addresses of this Node."""
    return {found for egress in facts.all(Egress) if (found := gateway_of(facts, egress))}


def silence(facts: Facts, egress: Egress, node: str) -> str:
    """What the Node that has the address reports of its gateway; empty: nothing, or that it answers."""
    asked = gateway_of(facts, egress)
    found = facts.get(EgressGateway, asked.key) if asked else None
    if found is None or found.answers:
        return ""
    vlan = found.dev.removeprefix(DEVICES)
    return (
        f"gateway {found.ip} does not answer Node {node} on {found.dev}:"
        f" the switch port of the Node has to carry VLAN {vlan}, tagged"
    )


def gateway_conditions(facts: Facts, egress: Egress, node: str) -> tuple[Condition, ...]:
    """Of an Egress of one address, by the Node that has it."""
    if message := silence(facts, egress, node):
        return (Condition(ANSWERS, "False", reason="NoAnswer", message=message),)
    return (Condition(ANSWERS),) if egress.unanswered else ()


def unanswered(conditions: Collection[Condition]) -> str:
    """The gateway without an answer that a status names; empty: none."""
    return next((one.message for one in conditions if one.type == ANSWERS and one.status == "False"), "")


def pool_gateway(facts: Facts, pool: PoolRow) -> Iterator[Status]:
    """What its Egresses report; of several Nodes the first Egress by name."""
    if facts.get(FencedLeadership) is None:
        return
    told = facts.by(EgressRow, "unanswered", pool.name)
    if told:
        condition = Condition(ANSWERS, "False", reason="NoAnswer", message=told[0].unanswered)
    elif pool.unanswered:
        condition = Condition(ANSWERS)
    else:
        return
    yield Status(path=f"{POOLS}/{pool.name}", kind="ExternalIPPool", manager=MANAGER, conditions=(condition,))


UNITS = (Unit(PoolRow, pool_gateway),)
"""In the controller."""
