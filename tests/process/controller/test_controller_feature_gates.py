"""What the controller answers about gates: its own, and those of the agents."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import pytest
from aiohttp.test_utils import make_mocked_request
from certificate_world import api_server

from antrea.controller.feature_gates import agent_gates, feature_gates
from antrea.errors import Invalid
from antrea.features.gate import GATES, GateStatus, resolve, statuses

if TYPE_CHECKING:
    from aiohttp import web

    from antrea.outside.kube import Kube

PATH = "/api/v1/namespaces/kube-system/configmaps/antrea-config"
OWN = statuses(resolve("controller", {}))


async def asked(kube: Kube | None) -> list[GateStatus]:
    answer = await feature_gates(OWN, kube, "kube-system")(make_mocked_request("GET", "/featuregates"))
    rows = json.loads(cast("bytes", cast("web.Response", answer).body))
    return [GateStatus(**row) for row in rows]


async def test_gates_of_agents_come_first_as_their_configuration_has_them() -> None:
    async with api_server({PATH: {"data": {"antrea-agent.conf": "trafficEncapMode: encap"}}}) as (
        server,
        kube,
    ):
        agents = statuses(resolve("agent", {}))
        assert await asked(kube) == [*agents, *OWN]
        server.put(PATH, {"data": {}})
        assert await asked(kube) == [*agents, *OWN]


async def test_gates_of_agents_are_left_out_where_nobody_knows_them() -> None:
    async with api_server({}) as (server, kube):
        assert await asked(kube) == OWN
        server.put(PATH, {"data": {"antrea-agent.conf": "featureGates: {Nonsense: true}"}})
        assert await asked(kube) == OWN
        server.put(PATH, {"data": {"antrea-agent.conf": ": no YAML"}})
        assert await asked(kube) == OWN
    assert await asked(None) == OWN


def test_a_gate_of_agents_that_is_not_built_is_disabled_and_cannot_be_asked_for() -> None:
    missing = next(gate.name for gate in GATES if "agent" in gate.components and not gate.built)
    rows = {row.name: row.status for row in agent_gates("")}
    assert rows[missing] == "Disabled"
    with pytest.raises(Invalid):
        agent_gates(f"featureGates: {{{missing}: true}}")
