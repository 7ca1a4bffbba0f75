"""A tunnel that carries nothing while both Nodes live: named by the doctor, by a condition and by an Event of the Node."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from agent_node import in_agent

from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

GENEVE = "udp,tp_dst=6081"
WHY = "Pods of Node node-2 cannot be reached: gateway 10.244."


def ofctl(lab: Lab, command: str, flow: str) -> None:
    """On br-phy of node-2, which has the card there."""
    pods = lab.api.items(
        "/api/v1/namespaces/kube-system/pods?labelSelector=component%3Dantrea-agent&fieldSelector=spec.nodeName%3Dnode-2"
    )
    words = ("-c", "antrea-ovs", "--", "ovs-ofctl", command, "br-phy", flow)
    lab.api.kubectl("-n", "kube-system", "exec", pods[0]["metadata"]["name"], *words)


@pytest.fixture
def silent_tunnel(lab: Lab) -> Iterator[None]:
    """Packets of tunnels from and to node-2 are lost, and no others."""
    ofctl(lab, "add-flow", f"priority=60000,{GENEVE},actions=drop")
    yield
    ofctl(lab, "del-flows", GENEVE)


def unreachable(lab: Lab) -> str:
    """What the agent of node-1 says in its AntreaAgentInfo."""
    info = json.loads(lab.api.kubectl("get", "antreaagentinfo", "node-1", "-o", "json"))
    found: dict[str, str] = {row["type"]: row.get("message", "") for row in info.get("agentConditions", ())}
    return found.get("PodsUnreachable", "")


def events(lab: Lab) -> dict[str, str]:
    """Of node-1, by reason."""
    about = "involvedObject.kind=Node,involvedObject.name=node-1"
    found = json.loads(lab.api.kubectl("get", "events", "--field-selector", about, "-o", "json"))
    return {row["reason"]: row.get("message", "") for row in found["items"]}


def test_a_tunnel_that_carries_nothing_is_named_where_users_look(lab: Lab, silent_tunnel: None) -> None:
    found = in_agent(lab, "node-1", "sh", "-c", "antctl doctor || true")
    assert "Pods of Node node-2 cannot be reached: its gateway 10.244." in found
    wait_for("the condition", lambda: unreachable(lab).startswith(WHY), seconds=60)
    wait_for(
        "an Event of the Node", lambda: events(lab).get("PodsUnreachable", "").startswith(WHY), seconds=60
    )
    ofctl(lab, "del-flows", GENEVE)
    wait_for("the end of the condition", lambda: unreachable(lab) == "", seconds=60)
    wait_for("an Event of the Node", lambda: "PodsReachable" in events(lab), seconds=60)
