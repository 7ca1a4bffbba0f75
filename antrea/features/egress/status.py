"""What this Node says of Egresses: that it has their address.

parity: pkg/agent/controller/egress/egress_controller.go updateEgressStatus
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis.crd.part import Condition
from antrea.apis.status import Status
from antrea.facts.egress import EgressOwner
from antrea.facts.node import LocalAddress, ThisNode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.egress import Egress

EGRESSES: Final = "/apis/crd.antrea.io/v1beta1/egresses"
IP_ASSIGNED: Final = "IPAssigned"


def egress_status(facts: Facts, egress: Egress) -> Iterator[Status]:
    """Only of an address that is on this Node; with a pool, only if this Node is to hold it."""
    node = facts.get(ThisNode)
    if node is None or not egress.ip or facts.get(LocalAddress, egress.ip) is None:
        return
    conditions: tuple[Condition, ...] = ()
    if egress.pool:
        owner = facts.get(EgressOwner, egress.name)
        if owner is None or owner.node != node.name:
            return
        said = "EgressIP is successfully assigned to EgressNode"
        conditions = (Condition(IP_ASSIGNED, "True", reason="Assigned", message=said),)
    yield Status(
        path=f"{EGRESSES}/{egress.name}",
        kind="Egress",
        manager=f"antrea-agent-{node.name}",
        fields=(("egressNode", node.name), ("egressIP", egress.ip)),
        conditions=conditions,
    )
