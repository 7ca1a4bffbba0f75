"""A feature plugs in whole: a toy of one folder and one line, in the agent as it runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from agent_process import agent_process
from toy_checkout import plug_in

if TYPE_CHECKING:
    from pathlib import Path

    from agent_process import AgentProcess
    from conftest import Namespaces

BEACONS = "/apis/crd.antrea.io/v1alpha1/beacons"
FLOW = "ip,nw_dst=203.0.113.7"


async def test_a_feature_of_one_folder_one_part_and_one_line_has_flows_and_effects(
    netns: Namespaces, tmp_path: Path
) -> None:
    """A kind of the API, flows, a feed, an act, an Event, a metric and a path of the agent's API; and all of it goes again."""

    def flows(agent: AgentProcess) -> bool:
        return FLOW in agent.switch.ofctl("dump-flows", "br-int")

    def events(agent: AgentProcess) -> list[tuple[str, str]]:
        found = [one for path, one in agent.api.objects.items() if "/events/" in path]
        return [
            (one["involvedObject"]["name"], one["message"]) for one in found if one["reason"] == "BeaconLit"
        ]

    async with agent_process(netns, tmp_path, plug_in(tmp_path)) as agent:
        agent.api.put(f"{BEACONS}/a", {"metadata": {"uid": "u"}, "spec": {"ip": "203.0.113.7"}})
        await agent.until(lambda agent: agent.ready(), "the agent is ready")
        await agent.until(flows, "the flow of the Beacon is in the switch")
        await agent.until(events, "the Event of the Beacon is written")
        assert events(agent) == [("a", "203.0.113.7 leads to Node n1")]
        assert "antrea_agent_beacon_lit_count 1\n" in (await agent.get("/metrics"))[1]
        status, text = await agent.get("/beacons")
        assert (status, json.loads(text)) == (200, [{"name": "a", "uid": "u", "ip": "203.0.113.7"}])
        gates = json.loads((await agent.get("/featuregates"))[1])
        assert {"component": "agent", "name": "Beacon", "status": "Enabled", "version": "ALPHA"} in gates
        agent.api.drop(f"{BEACONS}/a")
        await agent.until(lambda agent: not flows(agent), "the flow of the Beacon is gone")


@pytest.mark.wide
async def test_a_part_that_fails_is_named_and_started_again_while_the_agent_goes_on(
    netns: Namespaces, tmp_path: Path
) -> None:
    """A tenant's annotation ended the agent, at each start again."""

    async def failed(agent: AgentProcess) -> str:
        info = json.loads((await agent.get("/agentinfo"))[1])
        found = {row["type"]: row.get("message", "") for row in info["agentConditions"]}
        return str(found.get("PartFailed", ""))

    async def has(agent: AgentProcess, text: str) -> bool:
        return text in await failed(agent)

    async with agent_process(netns, tmp_path, plug_in(tmp_path)) as agent:
        await agent.until(lambda agent: agent.ready(), "the agent is ready")
        assert await failed(agent) == ""
        agent.api.put(f"{BEACONS}/broken", {"metadata": {"uid": "b"}, "spec": {"ip": "203.0.113.8"}})
        twice = "BeaconPart failed 2 times, last: RecursionError: a Beacon is broken"
        await agent.until(lambda agent: has(agent, twice), "the condition names the part")
        assert 'antrea_agent_part_failure_count{part="BeaconPart"}' in (await agent.get("/metrics"))[1]
        agent.api.put(f"{BEACONS}/a", {"metadata": {"uid": "u"}, "spec": {"ip": "203.0.113.7"}})
        await agent.until(
            lambda agent: FLOW in agent.switch.ofctl("dump-flows", "br-int"),
            "the agent goes on with the rest",
        )
        agent.api.drop(f"{BEACONS}/broken")
        await agent.until(lambda agent: "broken" not in agent.api.objects, "the Beacon is gone")
        assert (await agent.get("/livez"))[0] == 200
