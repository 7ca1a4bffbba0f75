"""What a Traceflow injects is in no record, no statistic and no answer of the agent, whatever happens to it on a real switch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from counted_traffic import Reported
from traced_node import (
    ALLOWING,
    CLOSED,
    CLUSTER,
    DB,
    DENYING,
    FAR,
    LOOP,
    OUTSIDE,
    REFUSING,
    Node,
    inject,
    trace,
    traced_node,
)

from antrea.apis.core import Service
from antrea.features.egress.agent.flow import COUNTED as OF_EGRESSES
from antrea.features.flow_export.metadata import PodNetworks, tracked_record
from antrea.features.network_policy.agent.statistics import COUNTED as OF_POLICIES
from antrea.openflow.tracked_connection import tracked_connections

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ovs_bridge import OvsBridge

    from antrea.apis.flow import FlowRecord


@pytest.fixture
async def node(ovs: OvsBridge) -> AsyncIterator[Node]:
    async with traced_node(ovs) as made:
        ovs.appctl("dpctl/flush-conntrack")
        yield made


def records(node: Node) -> list[FlowRecord]:
    """Of the connections that the switch tracks."""
    networks, dump = PodNetworks(node.facts), node.bridge.appctl("dpctl/dump-conntrack")
    found = (tracked_record(node.facts, networks, one, 1) for one in tracked_connections(dump))
    return [one for one in found if one]


def service(ips: tuple[str, str]) -> Service:
    return msgspec.convert({"spec": {"clusterIPs": list(ips), "ports": [{"port": 80}]}}, Service)


@pytest.mark.parametrize("six", [False, True], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize(
    ("source", "to"),
    [
        ("web", "allowing"), ("web", "denying"), ("web", "refusing"), ("web", "closed"), ("web", "db"), ("web", "far"),
        ("web", "outside"), ("out", "outside"), ("db", "outside"), ("web", "service"), ("web", "itself"),
    ],
)  # fmt: skip
async def test_nothing_that_is_injected_is_recorded_or_counted(
    node: Node, tmp_path: Path, source: str, to: str, six: bool
) -> None:
    ends = {
        "allowing": ALLOWING.ips, "denying": DENYING.ips, "refusing": REFUSING.ips, "closed": CLOSED.ips, "db": DB.ips,
        "far": FAR, "outside": OUTSIDE,
    }  # fmt: skip
    services = {"service": CLUSTER, "itself": LOOP}
    destination: dict[str, Any] = {"service": "svc"} if to in services else {"ip": ends[to][six]}
    counted = {
        name: Reported(node.bridge, node.engine, node.pipeline, one)
        for name, one in (("policies", OF_POLICIES), ("egresses", OF_EGRESSES))
    }
    before = {name: await one.sums(tmp_path / name) for name, one in counted.items()}
    assert before == {"policies": {}, "egresses": {}}
    protocol = "tcp" if to in services else "udp"
    found = trace(six=six, source=source, protocol=protocol, destination=destination)
    await inject(node, found, service(services[to]) if to in services else None)
    after = {name: await one.sums(tmp_path / name) for name, one in counted.items()}
    assert (records(node), after, node.judged) == ([], {"policies": {}, "egresses": {}}, [])
    assert await node.stop() == 0
