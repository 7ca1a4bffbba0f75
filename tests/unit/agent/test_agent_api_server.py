"""What the agent's API answers about Pods, flows, gates and itself."""

from __future__ import annotations

import json
import ssl
from typing import TYPE_CHECKING

import aiohttp
import msgspec
import pytest

from antrea.agent.agent_view import AgentView, NotFound
from antrea.agent.api_server import api_server, certificate, named, ovsflows, podinterfaces
from antrea.apis.agent_api import FlowAnswer, PodInterfaceAnswer
from antrea.config.agent import AgentConfig
from antrea.config.effect import InEffect
from antrea.engine import Facts
from antrea.errors import Invalid, Unavailable
from antrea.facts.node import ThisNode
from antrea.facts.ovs import PodInterface
from antrea.features.accept import accept_agent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

WEB = PodInterface(
    "web-0-1a2b3c", "c" * 64, "shop", "web-0", "aa:00:00:00:00:01", ("10.1.0.4", "fd00::4"), 9, "uuid1"
)
DB = PodInterface("db-0-4d5e6f", "d" * 64, "shop", "db-0", "aa:00:00:00:00:02", ("10.1.0.5",), 10, "uuid2")
FLOWS = (
    'cookie=0x1, table=0, n_packets=1, priority=200,in_port="web-0-1a2b3c" actions=resubmit(,2)',
    "cookie=0x1, table=2, n_packets=1, priority=200,ip,in_port=9,dl_src=aa:00:00:00:00:01,nw_src=10.1.0.4 actions=goto_table:7",
    "cookie=0x1, table=7, n_packets=1, priority=200,ip,nw_dst=10.1.0.5 actions=ct(table=9,zone=65520),resubmit(,200)",
    "cookie=0x1, table=7, n_packets=1, priority=200,ipv6,ipv6_dst=fd00::4 actions=drop",
    "cookie=0x1, table=7, n_packets=1, priority=190,ip,nw_dst=10.1.0.40 actions=set_field:10.1.0.4->ip_dst",
)
PATHS = ("/version", "/featuregates", "/podinterfaces?name=x", "/ovsflows?groups=1", "/agentinfo")
GROUPS = ("group_id=1,type=select,bucket=actions=drop", "group_id=10,type=select,bucket=actions=drop")


class Dump:
    """Stands where ovs-ofctl stands; remembers what it was asked."""

    def __init__(self, *, away: bool = False) -> None:
        self.away = away
        self.asked: list[tuple[str, ...]] = []

    async def lines(self, command: str, *arguments: str) -> AsyncIterator[str]:
        self.asked.append((command, *arguments))
        if self.away:
            raise Unavailable("OVS")
        for line in FLOWS if command == "dump-flows" else GROUPS:
            if not arguments or not arguments[0].startswith("table=") or f"{arguments[0]}," in line:
                yield line


@pytest.fixture
def view() -> AgentView:
    facts = Facts()
    for row in (WEB, DB, ThisNode("n1", ("10.1.0.0/24",))):
        facts.put(row)
    tables = {"Classifier": 0, "SpoofGuard": 2, "L3Forwarding": 7, "ConntrackState": 9}
    config = AgentConfig(api_port=0)
    return AgentView(lambda: InEffect("", config, accept_agent(config)), facts, Dump(), tables)


def test_agent_api_podinterfaces_are_found_by_name_and_namespace(view: AgentView) -> None:
    web = PodInterfaceAnswer("web-0", "shop", WEB.name, WEB.ips, WEB.mac, "uuid1", 9, "c" * 64)
    assert [row.name for row in podinterfaces(view, {})] == ["db-0", "web-0"]
    assert podinterfaces(view, {"name": "web-0"}) == [web]
    assert podinterfaces(view, {"namespace": "none"}) == []
    with pytest.raises(NotFound):
        podinterfaces(view, {"name": "web-0", "namespace": "none"})
    assert json.loads(msgspec.json.encode(web)) == {
        "name": "web-0", "podNamespace": "shop", "interfaceName": "web-0-1a2b3c", "ips": ["10.1.0.4", "fd00::4"],
        "mac": "aa:00:00:00:00:01", "portUUID": "uuid1", "ofPort": 9, "containerID": "c" * 64,
    }  # fmt: skip


async def test_agent_api_flows_name_their_tables(view: AgentView) -> None:
    flows = [answer.flow for answer in await ovsflows(view, {})]
    assert flows[0] == FLOWS[0].replace("table=0", "table=Classifier").replace(",2)", ",SpoofGuard)")
    assert flows[1].endswith("actions=goto_table:L3Forwarding")
    assert flows[2].endswith("actions=ct(table=ConntrackState,zone=65520),resubmit(,200)")
    assert named("table=7 resubmit(8,9)", {}) == "table=7 resubmit(8,9)"


async def test_agent_api_flows_of_a_pod_are_those_that_match_its_port_or_addresses(view: AgentView) -> None:
    tables = [
        a.flow.split("table=")[1].split(",")[0]
        for a in await ovsflows(view, {"pod": "web-0", "namespace": "shop"})
    ]
    assert tables == ["Classifier", "SpoofGuard", "L3Forwarding"]
    db = await ovsflows(view, {"pod": "db-0", "namespace": "shop"})
    assert ["nw_dst=10.1.0.5 " in answer.flow for answer in db] == [True]
    with pytest.raises(NotFound):
        await ovsflows(view, {"pod": "web-0", "namespace": "other"})


async def test_agent_api_flows_of_tables_are_asked_of_ovs_by_number(view: AgentView) -> None:
    assert len(await ovsflows(view, {"table": "L3Forwarding, 0"})) == 4
    assert isinstance(view.ofctl, Dump)
    assert view.ofctl.asked == [("dump-flows", "table=7", "--names"), ("dump-flows", "table=0", "--names")]
    assert await ovsflows(view, {"table-names-only": ""}) == [
        FlowAnswer(name) for name in ("Classifier", "ConntrackState", "L3Forwarding", "SpoofGuard")
    ]


async def test_agent_api_groups_are_found_by_id(view: AgentView) -> None:
    assert await ovsflows(view, {"groups": "ALL"}) == [FlowAnswer(line) for line in GROUPS]
    assert await ovsflows(view, {"groups": "1, 3"}) == [FlowAnswer(GROUPS[0])]


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ({"pod": "web-0"}, "namespace must be provided"),
        ({"service": "web", "namespace": "shop"}, "AntreaProxy is not built yet"),
        ({"networkpolicy": "np"}, "NetworkPolicy is not built yet"),
        ({"table": "Nowhere"}, "invalid table name or number"),
        ({"table": "77"}, "invalid table name or number"),
        ({"groups": "x"}, "invalid group ID"),
        ({"namespace": "shop"}, "unsupported parameter combination"),
    ],
)
async def test_agent_api_flows_that_cannot_be_asked_for_say_why(
    view: AgentView, query: dict[str, str], why: str
) -> None:
    with pytest.raises(Invalid, match=why):
        await ovsflows(view, query)


async def test_agent_api_is_served_with_the_token_of_its_file(view: AgentView, tmp_path: Path) -> None:
    server = api_server(view, certificate(), token_file=tmp_path / "token")
    await server.start()
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    headers = {"Authorization": f"Bearer {(tmp_path / 'token').read_text()}"}
    try:
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context), headers=headers
        ) as session:
            answers = {}
            for path in PATHS:
                async with session.get(f"https://127.0.0.1:{server.port}{path}") as response:
                    answers[path] = response.status, await response.text()
            view.ofctl = Dump(away=True)
            async with session.get(f"https://127.0.0.1:{server.port}/ovsflows") as response:
                assert (response.status, await response.text()) == (503, "OVS")
    finally:
        await server.stop()
    assert json.loads(answers["/version"][1])["gitVersion"].startswith("v")
    assert (
        '{"component":"agent","name":"AntreaProxy","status":"Disabled","version":"GA"}'
        in answers["/featuregates"][1]
    )
    assert answers["/podinterfaces?name=x"] == (404, "Pod */x has no interface on this Node")
    assert json.loads(answers["/ovsflows?groups=1"][1]) == [{"flow": GROUPS[0]}]
    assert json.loads(answers["/agentinfo"][1])["nodeRef"] == {"kind": "Node", "name": "n1"}
