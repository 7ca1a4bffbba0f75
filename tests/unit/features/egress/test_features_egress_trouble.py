"""What is wrong with one of several addresses: its Node says it in the address's entry, and one Node for all in conditions."""

from __future__ import annotations

from typing import Any

import msgspec
from wide_pool import wide_pool

from antrea.apis.crd.egress import Egress as EgressObject
from antrea.apis.crd.part import Condition
from antrea.apis.crd.pool import ExternalIPPool
from antrea.apis.status import Status
from antrea.config.agent import AgentConfig
from antrea.engine import Engine, Facts
from antrea.facts.egress import EgressGateway, EgressMark, EgressOwner, ProbedAddress
from antrea.facts.external_ip import FencedLeadership
from antrea.facts.member import GossipMember, Quorum
from antrea.facts.node import LocalAddress, ThisNode
from antrea.features.egress.agent.feature import egress_rows
from antrea.features.egress.agent.status import egress_status
from antrea.features.egress.controller import feature as controller
from antrea.features.egress.controller import pool_gateway
from antrea.features.external_ip_pool.pool import PoolRow, pool_row

IPS = ("203.0.113.1", "198.51.100.1")
DEV, ROUTER, MAC = "antrea-ext.181", "203.0.113.254", "0a:00:00:00:00:99"
SILENT = (
    f"gateway {ROUTER} does not answer Node n1 on {DEV}:"
    " the switch port of the Node has to carry VLAN 181, tagged"
)
OTHER = f"another host of the network has {IPS[0]}: MAC address {MAC} answers for it"
TELLS = Condition("GatewayAnswers", "False", reason="NoAnswer", message=SILENT)


def listed(*conditions: str, **first: str) -> dict[str, Any]:
    """The Egress of two addresses as the API has it; `first` is in the entry of the first one."""
    found = [{"type": one, "status": "True"} for one in conditions]
    entries = [{"egressIP": IPS[0], "egressNode": "n1"} | first, {"egressIP": IPS[1], "egressNode": "n2"}]
    return {
        "metadata": {"name": "web", "uid": "u"},
        "spec": {"appliedTo": {}, "egressIPs": list(IPS), "externalIPPools": ["p", "q"]},
        "status": {"conditions": found, "addresses": entries},
    }


def said(node: str, found: dict[str, Any], *rows: object, alone: bool = False) -> Status | None:
    """By Node n1, or by n2, which have an address each; `alone`: the other one is dead."""
    facts = Facts()
    egress = egress_rows(msgspec.convert(found, EgressObject))
    other = {"n1": "n2", "n2": "n1"}[node]
    ip = dict(zip(("n1", "n2"), IPS, strict=True))[node]
    for row in (
        AgentConfig(),
        ThisNode(node, ("10.10.0.0/24",), ("192.0.2.1",), ("192.0.2.1",)),
        Quorum(has=True, alive=2, of=2),
        GossipMember(other, alive=not alone),
        wide_pool("p", (), ROUTER, 24, 181),
        wide_pool("q", ()),
        *egress,
        EgressOwner("web", "n1"),
        EgressOwner("web 1", "n2"),
        LocalAddress(ip, DEV if node == "n1" else "antrea-egress0", 24),
        EgressMark(ip, 7),
        *rows,
    ):
        facts.put(row)  # type: ignore[arg-type]
    Engine(facts, ()).plan()
    told = (one for row in egress for one in egress_status(facts, row))
    return next((one for one in told if isinstance(one, Status)), None)


def entry(status: Status | None) -> dict[str, Any]:
    assert status
    assert status.items
    (found,) = status.items.items
    return dict(found)


def test_who_has_an_address_says_in_its_entry_what_is_wrong_with_it() -> None:
    silent, other = EgressGateway(DEV, ROUTER, answers=False), ProbedAddress("web", IPS[0], MAC)
    mine = {"egressIP": IPS[0], "egressNode": "n1"}
    assert entry(said("n1", listed(), silent, other)) == mine | {"conflict": OTHER, "unanswered": SILENT}
    assert entry(said("n1", listed(unanswered=SILENT), EgressGateway(DEV, ROUTER, answers=True))) == mine
    # who has another address knows nothing of it, and says nothing
    assert entry(said("n2", listed(unanswered=SILENT))) == {"egressIP": IPS[1], "egressNode": "n2"}


def test_one_node_gathers_what_all_say_and_takes_it_back() -> None:
    def gathered(found: dict[str, Any], *, alone: bool = False) -> dict[str, tuple[Condition, ...]]:
        """Conditions of trouble, by the Nodes that write some."""
        by = {node: said(node, found, alone=alone) for node in ("n1", "n2")}
        return {
            node: ours
            for node, status in by.items()
            if status
            and (
                ours := tuple(c for c in status.conditions if c.type in ("AddressConflict", "GatewayAnswers"))
            )
        }

    found = listed(unanswered=SILENT, conflict=OTHER)
    both = (Condition("AddressConflict", "True", reason="OtherHost", message=OTHER), TELLS)
    assert list(gathered(found).values()) == [both]
    # whoever is alone speaks for all
    assert gathered(found, alone=True) == {"n1": both, "n2": both}
    gone = (Condition("AddressConflict"), Condition("GatewayAnswers"))
    silent_no_more = listed("AddressConflict")
    silent_no_more["status"]["conditions"].append(
        {"type": "GatewayAnswers", "status": "False", "message": "x"}
    )
    assert list(gathered(silent_no_more).values()) == [gone]
    assert gathered(listed()) == {}


def test_the_pool_of_such_an_address_says_it_and_no_other_pool() -> None:
    facts = Facts()
    engine = Engine(facts, pool_gateway.UNITS)
    rows = controller.egress_rows(msgspec.convert(listed(unanswered=SILENT), EgressObject))
    pools: list[PoolRow] = []
    for name in ("p", "q"):
        found = {"metadata": {"name": name}, "spec": {"ipRanges": [], "nodeSelector": {}}}
        pools.append(pool_row(msgspec.convert(found, ExternalIPPool)))
    for row in (*rows, *pools, FencedLeadership()):
        facts.put(row)
    engine.plan()
    told = {one.path.rpartition("/")[2]: one.conditions for one in engine.standing().values()}
    assert told == {"p": (TELLS,)}
