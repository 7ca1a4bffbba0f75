"""The consistent choice of an Endpoint in a real switch: one that goes moves its own connections, one that comes takes its share."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
import pytest
from policy_switch import GATEWAY, NEW, NODE, PEER, TUNNEL, ports
from proxy_switch import BASIC, CLUSTER, CONFIG, WEB, endpoint

from antrea.engine import Engine, Facts
from antrea.facts.member import AgentNode
from antrea.facts.service import ServiceEndpoint
from antrea.features.framework.agent_feature import Families, RealizedPipeline
from antrea.features.framework.gate import EnabledGates
from antrea.features.network_policy.agent.feature import FEATURE as POLICY
from antrea.openflow.flow import Flow
from antrea.openflow.group import Group
from antrea.openflow.pipeline import Pipeline
from tests.unit.features.policy_world import interface

if TYPE_CHECKING:
    from ovs_bridge import OvsBridge

ENDPOINTS = 100
CONSISTENT = msgspec.structs.replace(WEB, consistent=True)
CLIENT = interface("p12", 12)


class ServedNode:
    """A switch that serves `WEB` and follows its Endpoints."""

    def __init__(self, bridge: OvsBridge) -> None:
        self._bridge, self.facts = bridge, Facts()
        families = Families.of(NODE.pod_cidrs)
        self._pipeline = Pipeline.realize(table for one in BASIC for table in one.tables_of(CONFIG, families))
        gates = EnabledGates("agent", frozenset({"AntreaProxy", "AntreaPolicy"}))
        peer = AgentNode("n2", PEER.node_ips, PEER.node_ips, pod_cidrs=PEER.pod_cidrs)
        known = (CONFIG, NODE, GATEWAY, TUNNEL, RealizedPipeline(self._pipeline), gates, peer, CLIENT)
        for row in (*known, CONSISTENT):
            self.facts.put(row)
        for pool, low, high in POLICY.ranks:
            self.facts.ids.between(pool, low, high)
        self._engine = Engine(self.facts, [unit for one in BASIC for unit in one.units])
        self._groups: dict[int, Group] = {}

    def install(self) -> None:
        self._engine.plan()
        assert not self._engine.errors.standing, self._engine.errors.standing
        self._bridge.clear()
        self._bridge.install(self._engine.standing().values(), self._pipeline)
        self._groups = self._standing()

    def follow(self) -> None:
        """Send the buckets that changed and all flows, as the agent's sink does."""
        self._engine.plan()
        now = self._standing()
        assert now.keys() == self._groups.keys()
        lines = [line for key, one in now.items() for line in one.changes(self._groups[key], self._pipeline)]
        assert 0 < len(lines) <= 4, "a bucket is removed from or inserted into each group by itself"
        flows = [
            one.text(self._pipeline, 1) for one in self._engine.standing().values() if isinstance(one, Flow)
        ]
        self._bridge.bundle([*(f"group {line}" for line in lines), *(f"flow add {line}" for line in flows)])
        self._groups = now

    def _standing(self) -> dict[int, Group]:
        return {one.id: one for one in self._engine.standing().values() if isinstance(one, Group)}

    def chosen(self, connections: int, *, six: bool) -> dict[int, str]:
        """The Endpoint of each connection, by the client's port; the hash of the datapath is always another one."""
        return {number: self._chosen(number, six=six) for number in range(20000, 20000 + connections)}

    def _chosen(self, port: int, *, six: bool) -> str:
        kind, name = ("tcp6", "ipv6") if six else ("tcp", "nw")
        ends = f"in_port={CLIENT.ofport},dl_src={CLIENT.mac},dl_dst={GATEWAY.mac}"
        packet = (
            f"{ends},{kind},{name}_src={CLIENT.ips[six]},{name}_dst={CLUSTER[six]},nw_ttl=64,tcp_src={port},tcp_dst=80,"
            f"dp_hash={port * 2654435761 % 2**32:#x}"
        )
        text = self._bridge.appctl("ofproto/trace", "br-int", packet, *NEW)
        (found,) = set(re.findall(r"nat\(dst=\[?([^\]\)]*?)\]?:8080\)", text))
        return str(found)


def address(number: int, *, six: bool) -> str:
    return f"fd00:10:1::{number:x}" if six else f"10.10.1.{number}"


@pytest.fixture(scope="module")
def bridge(ovs: OvsBridge) -> OvsBridge:
    ovs.add_ports(ports())
    return ovs


@pytest.mark.parametrize("connections", [60, pytest.param(300, marks=pytest.mark.wide)])
@pytest.mark.parametrize("six", [False, True], ids=["IPv4", "IPv6"])
def test_one_endpoint_of_a_hundred_moves_no_connection_of_the_others(
    bridge: OvsBridge, connections: int, *, six: bool
) -> None:
    node = ServedNode(bridge)
    rows = [endpoint(address(number, six=six), "n2") for number in range(1, ENDPOINTS + 1)]
    for row in rows:
        node.facts.put(row)
    node.install()
    before = node.chosen(connections, six=six)
    assert len(set(before.values())) > min(connections, ENDPOINTS) / 2

    gone = next(row for row in rows if row.ip == before[20000])
    node.facts.drop(ServiceEndpoint, gone.key)
    node.follow()
    after = node.chosen(connections, six=six)
    moved = {port for port in before if before[port] != after[port]}
    assert moved == {port for port in before if before[port] == gone.ip}

    come = endpoint(address(ENDPOINTS + 1, six=six), "n2")
    node.facts.put(come)
    node.follow()
    last = node.chosen(connections, six=six)
    moved = {port for port in after if after[port] != last[port]}
    assert {last[port] for port in moved} <= {come.ip}
    assert len(moved) <= connections / 20
