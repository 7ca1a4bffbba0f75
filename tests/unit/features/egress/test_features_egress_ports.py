"""What a Node has for blocks of ports: translation in both directions, ports of what has none, and the Pods' own range."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from wide_pool import wide_pool

from antrea.apis.crd import egress as crd
from antrea.config.agent import AgentConfig
from antrea.engine import Engine, Facts
from antrea.facts.egress import Egress, EgressPortBlock
from antrea.facts.member import PoolMembers
from antrea.facts.node import LocalAddress, ThisNode
from antrea.facts.ovs import PodInterface
from antrea.features.egress.agent.feature import FEATURE, egress_row
from antrea.features.egress.agent.port_block import port_block_rows
from antrea.host.nft import NftElement
from antrea.host.pod_sysctl import PodSysctl
from antrea.host.sysctl import Sysctl
from antrea.openflow.flow import Flow

IP, POD = "203.0.113.1", ("10.10.0.7", "fd00:10::7")
NODE = ThisNode("n1", ("10.10.0.0/24",), ("192.0.2.1",), ("192.0.2.1",))
BLOCK = EgressPortBlock("e", "shop/web", 1536, 2047, POD)
ROW = Egress("e", "u", IP, survives=True)
OUT = ("egress-block", "0x00000001 . 10.10.0.7 . 1536-2047", "jump egress-ports-1536")
END = ("egress-block-end", "0x00000001 . 10.10.0.7 . 1536-2047", "")
BACK = ("egress-block-pod", f"{IP} . 1536-2047", "10.10.0.7")
OTHERS = ("egress-other-ports", "0x00000001", "")
SETS = {
    "egress-block",
    "egress-block6",
    "egress-block-pod",
    "egress-block-pod6",
    "egress-other-ports",
    "egress-block-end",
    "egress-block-end6",
}


class Agent:
    """The agent's units over these rows."""

    def __init__(self, *rows: Any) -> None:
        facts = Facts()
        for row in (AgentConfig(), NODE, *rows):
            facts.put(row)
        self.engine = Engine(facts, FEATURE.units)
        self.engine.plan()

    def elements(self) -> set[tuple[str, str, str]]:
        entries = (entry for entry in self.engine.standing().values() if isinstance(entry, NftElement))
        return {(entry.set, entry.value, entry.data) for entry in entries if entry.set in SETS}

    def settings(self) -> set[tuple[str, str, str]]:
        entries = (entry for entry in self.engine.standing().values() if isinstance(entry, PodSysctl))
        return {(entry.netns, entry.path, entry.value) for entry in entries}


def test_a_gateway_translates_a_pods_block_in_both_directions() -> None:
    assert Agent(LocalAddress(IP, "eth0"), ROW, BLOCK).elements() == {OUT, END, BACK, OTHERS}


@pytest.mark.parametrize(
    "row",
    [msgspec.structs.replace(ROW, survives=False), msgspec.structs.replace(ROW, pool="gone")],
    ids=["not to survive", "no usable address"],
)
def test_nothing_is_translated_by_blocks_of_an_egress_without(row: Egress) -> None:
    assert Agent(LocalAddress(IP, "eth0"), row, BLOCK).elements() == set()


def test_a_node_that_may_take_the_address_over_knows_the_pods_of_answers_before() -> None:
    row, pool = msgspec.structs.replace(ROW, pool="p"), wide_pool("p")
    members = PoolMembers("p", ("n2",), selected=("n1", "n2"))
    assert Agent(row, pool, members, BLOCK).elements() == {BACK}
    assert Agent(row, pool, msgspec.structs.replace(members, selected=("n2",)), BLOCK).elements() == set()


def test_a_pod_has_the_port_range_of_its_block() -> None:
    pod = PodInterface("web-1", "c", "shop", "web", "02:00:00:00:00:07", POD, 7, "uuid", netns="/ns")
    ports = ("/ns", "net/ipv4/ip_local_port_range", "1536\t2047")
    assert Agent(ROW, BLOCK, pod).settings() == {ports, ("/ns", "net/ipv4/tcp_tw_reuse", "1")}
    assert Agent(msgspec.structs.replace(ROW, survives=False), BLOCK, pod).settings() == set()
    assert Agent(ROW, BLOCK, msgspec.structs.replace(pod, netns="")).settings() == set()


def test_the_switch_of_a_pod_drops_segments_to_its_block_of_connections_that_it_does_not_track() -> None:
    pod = PodInterface("web-1", "c", "shop", "web", "02:00:00:00:00:07", POD, 7, "uuid")
    agent = Agent(ROW, BLOCK, pod)
    flows = [entry for entry in agent.engine.standing().values() if isinstance(entry, Flow)]
    drops = [flow for flow in flows if "tcp_flags=-syn" in flow.match]
    assert {(flow.table, flow.actions) for flow in drops} == {("ConntrackState", ())}
    for target in (f"nw_dst={POD[0]}", f"ipv6_dst={POD[1]}"):
        matches = [flow.match for flow in drops if target in flow.match]
        assert len(matches) == 2
        assert all({"ct_state=+new+trk", "tp_dst=0x600/0xfe00"} <= {*match} for match in matches)


def test_agents_read_blocks_of_pods_that_run() -> None:
    status = {
        "portBlocks": [
            {"pod": "shop/web", "firstPort": 1536, "lastPort": 2047, "podIPs": [*POD]},
            {"pod": "shop/old", "firstPort": 1024, "lastPort": 1535, "released": True},
        ]
    }
    metadata = {"name": "e", "uid": "u", "annotations": {"egress.antrea.io/survive": " ports"}}
    stored = msgspec.convert({"metadata": metadata, "spec": {"appliedTo": {}}, "status": status}, crd.Egress)
    assert port_block_rows(stored) == (BLOCK,)
    assert egress_row(stored).survives


@pytest.mark.parametrize(
    ("row", "here", "liberal"),
    [
        (ROW, True, True),
        (msgspec.structs.replace(ROW, survives=False, copies=True), True, True),
        (msgspec.structs.replace(ROW, survives=False), True, False),
        (ROW, False, False),
    ],
    ids=["ports", "sync", "none", "elsewhere"],
)
def test_where_connections_survive_the_host_does_not_check_windows(
    row: Egress, here: bool, liberal: bool
) -> None:
    agent = Agent(row, BLOCK, *([LocalAddress(IP, "eth0")] if here else []))
    entries = agent.engine.standing().values()
    settings = [(entry.path, entry.value) for entry in entries if isinstance(entry, Sysctl)]
    wanted = [("net/netfilter/nf_conntrack_tcp_be_liberal", "1")] if liberal else []
    assert settings == wanted


@pytest.mark.parametrize(
    ("field", "annotations", "survives", "copies"),
    [
        (None, {}, False, False),
        (None, {"egress.antrea.io/survive": "ports"}, True, True),
        (None, {"egress.antrea.io/survive": "sync"}, False, True),
        ("sync", {"egress.antrea.io/survive": "ports"}, False, True),
        ("none", {"egress.antrea.io/survive": "ports"}, False, False),
        ("ports", {}, True, True),
        ("ports", {"egress.antrea.io/lost-connections": "reset"}, False, False),
    ],
)
def test_the_field_takes_precedence_of_the_annotation(
    field: str | None, annotations: dict[str, str], survives: bool, copies: bool
) -> None:
    spec: dict[str, Any] = {"appliedTo": {}} | ({"survive": field} if field else {})
    stored = msgspec.convert(
        {"metadata": {"name": "e", "annotations": annotations}, "spec": spec}, crd.Egress
    )
    row = egress_row(stored)
    assert (row.survives, row.copies) == (survives, copies)
