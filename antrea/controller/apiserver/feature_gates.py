"""/featuregates of the controller: its own gates, and those that agents have in effect.

These follow their configuration in the ConfigMap, except while they reject it: then their AntreaAgentInfos state which
gates are on, and headers `Warning` of the response state why the others are not.
parity: pkg/apiserver/handlers/featuregates
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.annotation import GATES_IN_EFFECT
from antrea.apis.core import CoreStruct, ObjectMeta
from antrea.config.agent import AgentConfig
from antrea.config.controller import ControllerConfig
from antrea.config.load import parse
from antrea.controller.managed import agent_infos, controller_info
from antrea.errors import Invalid, Refused, Unavailable
from antrea.features.framework.gate import EnabledGates, one_sided, resolve, statuses
from antrea.outside.http.handlers import json_answer, warn
from antrea.outside.kube.config_map import ConfigMap
from antrea.outside.kube.environment import own_config_map

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from aiohttp import web

    from antrea.features.framework.gate import GateStatus
    from antrea.features.framework.gate_row import Component
    from antrea.outside.http.handlers import Handler
    from antrea.outside.kube.client import Kube

REJECTED = "ConfigRejected"


class Condition(CoreStruct, frozen=True):
    """One line of health."""

    type: str = ""
    status: str = ""
    message: str = ""


class Info(CoreStruct, frozen=True):
    """Fields read of an AntreaAgentInfo and of the AntreaControllerInfo."""

    metadata: ObjectMeta = ObjectMeta()
    agent_conditions: tuple[Condition, ...] = ()
    controller_conditions: tuple[Condition, ...] = ()


def feature_gates(controller_gates: Sequence[GateStatus], kube: Kube | None, namespace: str) -> Handler:
    """Return a handler that reads from the API server on each request; without one it answers `controller_gates`."""
    path = f"/api/v1/namespaces/{namespace}/configmaps/{own_config_map()}"

    async def handler(_: web.Request) -> web.StreamResponse:
        agents: list[GateStatus] = []
        warnings: list[str] = []
        try:
            if kube is not None:
                agents = await _of_agents(kube, path, warnings)
                warnings += await _of_controller(kube)
                warnings += (
                    one_sided(_enabled("controller", controller_gates), _enabled("agent", agents))
                    if agents
                    else ()
                )
        except (Refused, Unavailable) as error:
            warnings.append(f"the gates of agents are not known: {error}")
        return warn(json_answer([*agents, *controller_gates]), warnings)

    return handler


async def _of_agents(kube: Kube, path: str, warnings: list[str]) -> list[GateStatus]:
    """Their gates; adds to `warnings` why those that are asked for are not in effect. Raises Refused, Unavailable."""
    infos, _ = await kube.list(agent_infos.PATH, Info)
    for why, nodes in refusals(infos).items():
        warnings.append(
            f"{AgentConfig.file}: refused by {_nodes(nodes, len(infos))}, where the last good one stays in effect: {why}"
        )
    held = in_effect(infos)
    if held is not None:
        return statuses(held)
    config_map = await kube.get(path, ConfigMap)
    if config_map is None:
        return []
    try:
        return agent_gates(config_map.data.get(AgentConfig.file, ""))
    except Invalid as error:
        warnings.append(f"{AgentConfig.file}: {error}; no agent has said yet which gates it has in effect")
        return []


async def _of_controller(kube: Kube) -> list[str]:
    info = await kube.get(controller_info.PATH, Info)
    rows = info.controller_conditions if info else ()
    return [
        f"{ControllerConfig.file}: refused by the controller, where the last good one stays in effect: {row.message}"
        for row in rows
        if (row.type, row.status) == (REJECTED, "True")
    ]


def refusals(infos: Iterable[Info]) -> dict[str, list[str]]:
    """Nodes of agents that refuse their configuration, by why."""
    nodes_by_reason: dict[str, list[str]] = {}
    for info in infos:
        for row in info.agent_conditions:
            if (row.type, row.status) == (REJECTED, "True"):
                nodes_by_reason.setdefault(row.message, []).append(info.metadata.name)
    return nodes_by_reason


def in_effect(infos: Iterable[Info]) -> EnabledGates | None:
    """Gates of the first agent that rejects its configuration; None: no agent does."""
    for info in infos:
        if (said := info.metadata.annotations.get(GATES_IN_EFFECT)) is not None:
            return EnabledGates("agent", frozenset(said.split(",")))
    return None


def _nodes(nodes: list[str], among: int) -> str:
    return (
        f"the agents of all {among} Nodes"
        if len(nodes) == among
        else f"the agents of {len(nodes)} of {among} Nodes, first {min(nodes)}"
    )


def compare_files(enabled: EnabledGates, files: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each gate that is on either in these files' antrea-agent.conf or in the controller alone."""
    text = files.get(AgentConfig.file)
    if text is None:
        return
    try:
        agents = resolve("agent", parse(AgentConfig, text).config.feature_gates)
    except Invalid:
        return  # agents refuse it, and report that
    yield from one_sided(enabled, agents)


def _enabled(component: Component, rows: Iterable[GateStatus]) -> EnabledGates:
    return EnabledGates(component, frozenset(row.name for row in rows if row.status == "Enabled"))


def agent_gates(text: str) -> list[GateStatus]:
    """The gates of agents whose configuration is `text`. Raises Invalid for one that they refuse."""
    return statuses(resolve("agent", parse(AgentConfig, text).config.feature_gates))
