"""What the controller answers about gates: its own, and those of the agents."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import pytest
from aiohttp.test_utils import make_mocked_request
from certificate_world import api_server

from antrea.apis.annotation import GATES_IN_EFFECT
from antrea.controller.apiserver.feature_gates import agent_gates, feature_gates
from antrea.errors import Invalid
from antrea.features.framework.gate import GATES, EnabledGates, GateStatus, resolve, statuses

if TYPE_CHECKING:
    from aiohttp import web

    from antrea.outside.kube.client import Kube

PATH = "/api/v1/namespaces/kube-system/configmaps/antrea-config"
OWN = statuses(resolve("controller", {}))


INFOS = "/apis/crd.antrea.io/v1beta1/antreaagentinfos"
CONTROLLER = "/apis/crd.antrea.io/v1beta1/antreacontrollerinfos/antrea-controller"
ON = sorted(resolve("agent", {"Egress": False}).names)
"""What the agents have on that refuse a newer configuration."""


async def asked(kube: Kube | None) -> tuple[list[GateStatus], list[str]]:
    answer = cast(
        "web.Response",
        await feature_gates(OWN, kube, "kube-system")(make_mocked_request("GET", "/featuregates")),
    )
    rows = json.loads(cast("bytes", answer.body))
    return [GateStatus(**row) for row in rows], answer.headers.getall("Warning", [])


def refusing(why: str) -> dict[str, Any]:
    row = {"type": "ConfigRejected", "status": "True", "message": why, "lastHeartbeatTime": "now"}
    return {"agentConditions": [row], "metadata": {"annotations": {GATES_IN_EFFECT: ",".join(ON)}}}


async def test_gates_of_agents_come_first_as_their_configuration_has_them() -> None:
    async with api_server({PATH: {"data": {"antrea-agent.conf": "trafficEncapMode: encap"}}}) as (
        server,
        kube,
    ):
        agents = statuses(resolve("agent", {}))
        assert await asked(kube) == ([*agents, *OWN], [])
        server.put(f"{INFOS}/n1", {"agentConditions": [{"type": "AgentHealthy", "status": "True"}]})
        server.put(PATH, {"data": {}})
        assert await asked(kube) == ([*agents, *OWN], [])


async def test_while_agents_refuse_their_configuration_the_gates_in_effect_are_told_and_why() -> None:
    wanted = {"data": {"antrea-agent.conf": "featureGates: {Egress: true, Nonsense: true}"}}
    why = 'featureGates.Nonsense: unrecognized feature gate; "Egress" is one'
    async with api_server({PATH: wanted}) as (server, kube):
        server.put(f"{INFOS}/n1", refusing(why))
        server.put(f"{INFOS}/n2", refusing(why))
        agents = statuses(EnabledGates("agent", frozenset(ON)))
        assert "Egress" not in ON
        said = 'antrea-agent.conf: refused by the agents of {}, where the last good one stays in effect: featureGates.Nonsense: unrecognized feature gate; \\"Egress\\" is one'
        one_sided = '299 - "featureGates.Egress: is on in antrea-controller.conf and off in antrea-agent.conf; the feature needs both"'
        assert await asked(kube) == ([*agents, *OWN], [f'299 - "{said.format("all 2 Nodes")}"', one_sided])
        server.put(f"{INFOS}/n2", {})
        some = f'299 - "{said.format("1 of 2 Nodes, first n1")}"'
        assert await asked(kube) == ([*agents, *OWN], [some, one_sided])


async def test_why_the_controller_refuses_its_own_configuration_is_told() -> None:
    row = {"type": "ConfigRejected", "status": "True", "message": "apiPort: is no port"}
    async with api_server({CONTROLLER: {"controllerConditions": [row]}, PATH: {"data": {}}}) as (_, kube):
        agents = statuses(resolve("agent", {}))
        said = "antrea-controller.conf: refused by the controller, where the last good one stays in effect: apiPort: is no port"
        assert await asked(kube) == ([*agents, *OWN], [f'299 - "{said}"'])


@pytest.mark.parametrize("text", ["featureGates: {Nonsense: true}", ": no YAML"])
async def test_gates_of_agents_are_left_out_where_nobody_knows_them_and_it_is_said(text: str) -> None:
    async with api_server({}) as (server, kube):
        assert await asked(kube) == (OWN, [])
        server.put(PATH, {"data": {"antrea-agent.conf": text}})
        gates, (said,) = await asked(kube)
        assert gates == OWN
        assert "no agent has said yet which gates it has in effect" in said
    assert await asked(None) == (OWN, [])


def test_a_gate_of_agents_that_is_not_built_is_disabled_and_cannot_be_asked_for() -> None:
    missing = next(gate.name for gate in GATES if "agent" in gate.components and not gate.built)
    rows = {row.name: row.status for row in agent_gates("")}
    assert rows[missing] == "Disabled"
    with pytest.raises(Invalid):
        agent_gates(f"featureGates: {{{missing}: true}}")
