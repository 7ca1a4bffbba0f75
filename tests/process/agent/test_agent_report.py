"""How the agent keeps its AntreaAgentInfo true: the whole object first and after an error, else what moves."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from loopback import client_of

from antrea.agent.api.agent_info import MOVING, PATH, Report
from antrea.agent.api.view import AgentView
from antrea.apis.annotation import GATES_IN_EFFECT
from antrea.config.agent import AgentConfig
from antrea.config.effect import InEffect
from antrea.engine import Facts
from antrea.errors import Refused, Unavailable
from antrea.facts.node import ThisNode
from antrea.features.framework.config_validation import accept_agent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Switch:
    """Stands where ovs-ofctl stands."""

    async def lines(self, *_: str) -> AsyncIterator[str]:
        for line in ("table 0:", "active=3, lookup=0, matched=0"):
            yield line


class Held:
    """One object behind an API on loopback, and the patches it got."""

    def __init__(self) -> None:
        self.object: dict[str, Any] | None = None
        self.patches: list[dict[str, Any]] = []

    async def serve(self, request: web.Request) -> web.Response:
        if self.object is None or request.path != f"{PATH}/n1":
            return web.json_response({"message": "not found"}, status=404)
        if request.method == "GET":
            return web.json_response(self.object)
        patch = json.loads(await request.read())
        if patch["metadata"]["uid"] != self.object["metadata"]["uid"]:
            return web.json_response({"message": "Precondition failed: UID in precondition"}, status=409)
        self.patches.append(patch)
        return web.json_response(self.object)


@asynccontextmanager
async def reporting(rejected: str = "") -> AsyncIterator[tuple[Report, Held]]:
    held = Held()
    facts, config = Facts(), AgentConfig()
    facts.put(ThisNode("n1", ("10.1.0.0/24",), mtu=1450))
    in_effect = InEffect("", config, accept_agent(config), rejected=rejected)
    view = AgentView(lambda: in_effect, facts, Switch(), {"Classifier": 0})
    async with client_of(held.serve) as kube:
        yield Report(kube, view, lambda: "PEM"), held


def fresh(uid: str) -> dict[str, Any]:
    return {"kind": "AntreaAgentInfo", "metadata": {"name": "n1", "uid": uid}}


async def test_an_agent_waits_for_the_object_that_the_controller_makes() -> None:
    async with reporting() as (report, held):
        with pytest.raises(Unavailable, match="antrea-controller creates it"):
            await report.write()
        assert held.patches == []


async def test_everything_is_written_at_first_and_then_what_moves() -> None:
    async with reporting() as (report, held):
        stale = {"ovsInfo": {"flowTable": {"Gone": 3}}, "localPodNum": 9, "nodeSubnets": ["10.1.0.0/24"]}
        held.object = {**fresh("a"), **stale}
        await report.write()
        await report.write()
        first, second = held.patches
        meta = {"uid": "a", "annotations": {GATES_IN_EFFECT: None}}
        assert (first["metadata"], second["metadata"]) == (meta, meta)
        assert first["ovsInfo"] == {"bridgeName": "br-int", "flowTable": {"Gone": None, "Classifier": 3}}
        assert (first["localPodNum"], first["apiPort"], first["networkInfo"]) == (
            None,
            10350,
            {"podMTU": 1450},
        )
        # as it stood already
        assert "nodeSubnets" not in first
        assert second.keys() == {"metadata", *MOVING}
        # what is empty stands there as upstream's, and nothing of it is left as it was
        assert first["networkPolicyControllerInfo"] == {}
        assert second["networkPolicyControllerInfo"] == dict.fromkeys(
            ("networkPolicyNum", "addressGroupNum", "appliedToGroupNum")
        )
        # a Pod that went is not there any more, not left as it was
        assert second["localPodNum"] is None
        assert second["ovsInfo"] == {"bridgeName": "br-int", "flowTable": {"Classifier": 3}}


async def test_an_object_that_was_made_anew_is_written_whole_again() -> None:
    async with reporting() as (report, held):
        held.object = fresh("a")
        await report.write()
        held.object = fresh("b")
        with pytest.raises(Refused, match="Precondition"):
            await report.write()
        await report.write()
        assert [patch["metadata"]["uid"] for patch in held.patches] == ["a", "b"]
        assert "nodeRef" in held.patches[1]


async def test_while_a_configuration_is_refused_the_gates_in_effect_stand_beside_the_condition() -> None:
    async with reporting("defaultMTU: is no number") as (report, held):
        held.object = fresh("a")
        await report.write()
    (patch,) = held.patches
    gates = patch["metadata"]["annotations"][GATES_IN_EFFECT].split(",")
    assert gates == sorted(accept_agent(AgentConfig()).names)
