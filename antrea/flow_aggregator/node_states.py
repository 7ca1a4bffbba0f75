"""Nodes with their agents, as kube-apiserver shows them to a user."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from antrea.outside.kube.client import Kube

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from antrea.outside.kube.access import Access

NODES: Final = "/api/v1/nodes"
AGENTS: Final = "/apis/crd.antrea.io/v1beta1/antreaagentinfos"
MAX_NODES: Final = 1000
"""Nodes of one answer."""
STALE: Final = 180
"""Seconds after which an agent that has not reported counts as away."""
GOOD: Final = frozenset(
    ("AgentHealthy", "ControllerConnectionUp", "OVSDBConnectionUp", "OpenflowConnectionUp")
)
"""Conditions that are True while all is well; all others are True when something is wrong."""


class _List(msgspec.Struct):
    items: list[dict[str, Any]]
    metadata: dict[str, Any] = {}


async def node_states(access: Access) -> dict[str, Any]:
    """One row for each Node. Raises Refused: the user may not list them, Unavailable."""
    async with Kube(access) as kube:
        nodes, agents = [await kube.get(path, _List, {"limit": str(MAX_NODES)}) for path in (NODES, AGENTS)]
    known = {agent["metadata"]["name"]: agent for agent in (agents.items if agents else ())}
    rows = [_row(node, known.get(node["metadata"]["name"])) for node in (nodes.items if nodes else ())]
    return {"rows": rows, "truncated": bool(nodes and nodes.metadata.get("continue"))}


def _row(node: Mapping[str, Any], agent: Mapping[str, Any] | None) -> dict[str, Any]:
    status = node.get("status", {})
    ready = {condition["type"]: condition["status"] for condition in status.get("conditions", ())}.get(
        "Ready", "Unknown"
    )
    troubles = [] if ready == "True" else ["Node is not Ready"]
    troubles.extend(agent_troubles(agent, datetime.now(UTC)) if agent else ["no agent has reported"])
    agent = agent or {}
    return {
        "name": node["metadata"]["name"],
        "addresses": [
            address["address"] for address in status.get("addresses", ()) if address["type"] == "InternalIP"
        ],
        "version": agent.get("version", ""),
        "ovsVersion": agent.get("ovsInfo", {}).get("version", ""),
        "pods": agent.get("localPodNum", 0),
        "flows": sum(agent.get("ovsInfo", {}).get("flowTable", {}).values()),
        "policies": agent.get("networkPolicyControllerInfo", {}).get("networkPolicyNum", 0),
        "troubles": troubles,
    }


def agent_troubles(agent: Mapping[str, Any], now: datetime) -> Iterator[str]:
    """Yield sentences on errors that an agent reports."""
    conditions = agent.get("agentConditions", ())
    for condition in conditions:
        if (condition["status"] == "True") != (condition["type"] in GOOD):
            yield ": ".join(
                text
                for text in (condition["type"], condition.get("message") or condition.get("reason"))
                if text
            )
    last = max(
        (datetime.fromisoformat(condition["lastHeartbeatTime"]) for condition in conditions), default=None
    )
    if last is None or (now - last).total_seconds() > STALE:
        yield (
            f"its agent has not reported since {last:%Y-%m-%dT%H:%M:%SZ}" if last else "no agent has reported"
        )
