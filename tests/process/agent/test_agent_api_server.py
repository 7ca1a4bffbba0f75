"""What the agent's API answers about Pods, flows, gates and itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
import msgspec
import pytest
from agent_context import agent_parts
from review_server import PROMETHEUS, reviews

from antrea.agent.api.certificate import certificate
from antrea.agent.api.health import Readiness
from antrea.agent.api.server import AgentApi, ovsflows, podinterfaces
from antrea.agent.api.view import AgentView
from antrea.agent.rebuild import Rebuild
from antrea.apis.agent_api import FlowAnswer, PodInterfaceAnswer
from antrea.config.agent import AgentConfig
from antrea.config.agent_sections import AntreaProxy
from antrea.config.effect import InEffect, begin
from antrea.engine import Facts
from antrea.errors import Invalid, Unavailable
from antrea.facts.node import ThisNode
from antrea.facts.ovs import PodInterface
from antrea.facts.service import ServiceEndpoint, ServicePort
from antrea.features.framework.agent_part import NotFound
from antrea.features.framework.config_validation import accept_agent
from antrea.outside.listener.listening_socket import listen
from antrea.outside.log import klog
from lab.certificates import authority, issue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from antrea.outside.kube.client import Kube
    from lab.certificates import Pair

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

    def __init__(self, *, away: bool = False, flows: tuple[str, ...] = FLOWS) -> None:
        self.away = away
        self.flows = flows
        self.asked: list[tuple[str, ...]] = []

    async def lines(self, command: str, *arguments: str) -> AsyncIterator[str]:
        self.asked.append((command, *arguments))
        if self.away:
            raise Unavailable("OVS")
        for line in self.flows if command == "dump-flows" else GROUPS:
            if not arguments or not arguments[0].startswith("table=") or f"{arguments[0]}," in line:
                yield line


@pytest.fixture
def view() -> AgentView:
    facts = Facts()
    for row in (WEB, DB, ThisNode("n1", ("10.1.0.0/24",))):
        facts.put(row)
    tables = {"Classifier": 0, "SpoofGuard": 2, "L3Forwarding": 7, "ConntrackState": 9}
    config = AgentConfig(api_port=0)
    return AgentView(
        lambda: InEffect("", config, accept_agent(config)), facts, Dump(), tables, parts=agent_parts(facts)
    )


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


SERVICE_FLOWS = (
    "cookie=0x1, table=11, priority=200,tcp,nw_dst=10.96.0.10,tp_dst=80 actions=set_field:0x2->reg7,group:2",
    "cookie=0x1, table=11, priority=200,tcp,nw_dst=10.96.0.11,tp_dst=80 actions=set_field:0x16->reg7,group:22",
    "cookie=0x1, table=12, priority=200,tcp,reg3=0xa010004 actions=ct(commit,table=13,zone=65520,nat(dst=10.1.0.4:80),exec(x))",
    "cookie=0x1, table=12, priority=200,tcp,reg3=0xa010028 actions=ct(commit,table=13,zone=65520,nat(dst=10.1.0.40:80),exec(x))",
)


async def test_agent_api_flows_of_a_service_are_those_that_choose_and_translate(
    view: AgentView,
) -> None:
    config = AgentConfig(api_port=0)
    served = AgentView(
        lambda: InEffect("", config, accept_agent(config)),
        view.facts,
        Dump(flows=SERVICE_FLOWS),
        {"ServiceLB": 11},
        parts=agent_parts(view.facts, config),
    )
    view.facts.id("group", "of another")
    view.facts.put(ServicePort("shop/web", "http", "TCP", 80, ("10.96.0.10",)))
    view.facts.put(
        ServiceEndpoint("shop/web-1", "shop/web", "http", "TCP", "10.1.0.4", 80, "n1", True, True, False)
    )
    found = await ovsflows(served, {"service": "web", "namespace": "shop"})
    assert [one.flow.split("priority=")[1] for one in found] == [
        line.split("priority=")[1] for line in (SERVICE_FLOWS[0], SERVICE_FLOWS[2])
    ]
    with pytest.raises(NotFound, match="shop/gone is not served"):
        await ovsflows(served, {"service": "gone", "namespace": "shop"})


async def test_agent_api_groups_are_found_by_id(view: AgentView) -> None:
    assert await ovsflows(view, {"groups": "ALL"}) == [FlowAnswer(line) for line in GROUPS]
    assert await ovsflows(view, {"groups": "1, 3"}) == [FlowAnswer(GROUPS[0])]


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ({"pod": "web-0"}, "namespace must be provided"),
        ({"networkpolicy": "np"}, "NetworkPolicy is not built yet"),
        ({"table": "Nowhere"}, "invalid table name or number"),
        ({"table": "77"}, "invalid table name or number"),
        ({"table": "1" * 5000}, "invalid table name or number"),
        ({"groups": "x"}, "invalid group ID"),
        ({"groups": "1" * 5000}, "invalid group ID"),
        ({"namespace": "shop"}, "unsupported parameter combination"),
    ],
)
async def test_agent_api_flows_that_cannot_be_asked_for_say_why(
    view: AgentView, query: dict[str, str], why: str
) -> None:
    with pytest.raises(Invalid, match=why):
        await ovsflows(view, query)


async def test_agent_api_flows_of_a_service_need_antrea_proxy(view: AgentView) -> None:
    config = AgentConfig(api_port=0, antrea_proxy=AntreaProxy(enable=False))
    off = AgentView(
        lambda: InEffect("", config, accept_agent(config)),
        view.facts,
        view.ofctl,
        {},
        parts=agent_parts(view.facts, config),
    )
    with pytest.raises(Invalid, match="AntreaProxy is off: kube-proxy serves Services, without flows"):
        await ovsflows(off, {"service": "web", "namespace": "shop"})


class Session:
    """One who asks the API."""

    def __init__(self, server: AgentApi, session: aiohttp.ClientSession) -> None:
        self._url = f"https://127.0.0.1:{server.port}"
        self._session = session

    async def get(self, path: str, token: str = "") -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self._session.get(self._url + path, headers=headers) as response:
            return response.status, await response.text()

    async def reconnect(self) -> None:
        """The next request has a connection of its own."""
        async with self._session.get(f"{self._url}/healthz", headers={"Connection": "close"}) as response:
            await response.read()


@asynccontextmanager
async def asking() -> AsyncIterator[aiohttp.ClientSession]:
    """A connection for each question, as kubelet's probes have it."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connector = aiohttp.TCPConnector(ssl=context, force_close=True)
    async with aiohttp.ClientSession(
        connector=connector, timeout=aiohttp.ClientTimeout(PROBE_SECONDS)
    ) as session:
        yield session


PROBE_SECONDS = 5.0
"""What the manifest gives a probe."""


async def test_probes_are_answered_while_the_next_agent_of_the_process_is_built(
    view: AgentView, tmp_path: Path
) -> None:
    rebuild, asked = Rebuild(), 0
    view.ready["network"] = lambda: ready.waiting
    view.tolerant = rebuild.under_way

    async def asks() -> None:
        nonlocal asked
        async with asking() as session:
            while True:
                url = f"https://localhost:{server.port}"
                for path in ("/livez", "/readyz"):
                    async with session.get(url + path) as answer:
                        assert (answer.status, await answer.text()) == (200, "ok")
                        asked += 1

    async with contextlib.AsyncExitStack() as last:
        last.callback(rebuild.listener.close)
        tasks = await last.enter_async_context(asyncio.TaskGroup())
        asker = None
        for number in range(3):
            ready = Readiness()
            rebuild.begins(ready)
            server = AgentApi(
                view, certificate(), None, token_file=tmp_path / "token", listens=rebuild.listener.listen
            )
            running = tasks.create_task(server.run())
            await server.serves.wait()
            if not number:
                ready.set()
                asker = tasks.create_task(asks())
            for wanted in (asked + 4, asked + 8):
                while asked < wanted:  # noqa: ASYNC110 (no event)
                    await asyncio.sleep(0.01)
                ready.set()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        assert asker is not None
        asker.cancel()


async def test_an_agent_that_never_worked_is_not_ready_and_one_of_another_port_is_found_there(
    view: AgentView, tmp_path: Path
) -> None:
    rebuild, ready = Rebuild(), Readiness()
    view.ready["network"] = lambda: ready.waiting
    view.tolerant = rebuild.under_way
    rebuild.begins(Readiness())
    rebuild.begins(ready)
    api = AgentApi(view, certificate(), None, token_file=tmp_path / "token", listens=rebuild.listener.listen)
    async with asyncio.TaskGroup() as tasks, asking() as session:
        running = tasks.create_task(api.run())
        await api.serves.wait()
        async with session.get(f"https://localhost:{api.port}/readyz") as answer:
            assert answer.status == 500
        running.cancel()
    with rebuild.listener.listen(0) as same, listen(0) as other:
        free = other.getsockname()[1]
        assert same.getsockname()[1] == api.port
    with rebuild.listener.listen(free) as moved:
        assert moved.getsockname()[1] == free
    rebuild.listener.close()
    with listen(api.port):
        pass


@asynccontextmanager
async def served(
    view: AgentView, token_file: Path, kube: Kube | None = None, client: Pair | None = None
) -> AsyncIterator[Session]:
    server = AgentApi(view, certificate(), kube, token_file=token_file)
    running = asyncio.create_task(server.run())
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if client:
        context.load_cert_chain(client.certificate, client.key)
    try:
        await server.serves.wait()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
            yield Session(server, session)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_agent_api_is_served_with_the_token_of_its_file(view: AgentView, tmp_path: Path) -> None:
    async with served(view, tmp_path / "token") as session:
        own = (tmp_path / "token").read_text()
        answers = {path: await session.get(path, own) for path in PATHS}
        view.ofctl = Dump(away=True)
        status, text = await session.get("/ovsflows", own)
        assert (status, json.loads(text)["message"]) == (503, "OVS")
        assert (await session.get("/nothing", own))[0] == 404
    assert json.loads(answers["/version"][1])["gitVersion"].startswith("v")
    assert (
        '{"component":"agent","name":"AntreaProxy","status":"Enabled","version":"GA"}'
        in answers["/featuregates"][1]
    )
    assert answers["/podinterfaces?name=x"] == (404, "Pod */x has no interface on this Node")
    assert json.loads(answers["/ovsflows?groups=1"][1]) == [{"flow": GROUPS[0]}]
    assert json.loads(answers["/agentinfo"][1])["nodeRef"] == {"kind": "Node", "name": "n1"}


async def test_agent_api_tells_which_keys_of_its_configuration_nobody_reads(
    view: AgentView, tmp_path: Path
) -> None:
    effect = begin(AgentConfig, accept_agent, "apiPort: 0\ndefaltMTU: 1400\n")
    view.in_effect = lambda: effect
    async with served(view, tmp_path / "token") as session:
        status, text = await session.get("/config/unknown", (tmp_path / "token").read_text())
    assert (status, json.loads(text)) == (200, ["unknown key defaltMTU is ignored: did you mean defaultMTU?"])


async def test_agent_api_serves_a_token_of_the_cluster_what_it_has_the_right_to(
    view: AgentView, tmp_path: Path
) -> None:
    async with reviews() as (kubernetes, kube), served(view, tmp_path / "token", kube) as session:
        for _ in range(5):
            status, text = await session.get("/metrics", "scraper")
            assert (status, "antrea_agent_local_pod_count 2" in text) == (200, True)
        assert len(kubernetes.questions) == 2, (
            "one review of the token and one of the right serve five requests"
        )
        status, text = await session.get("/ovsflows", "scraper")
        assert (status, json.loads(text)["message"]) == (
            403, f'forbidden: User "{PROMETHEUS}" cannot get path "/ovsflows"',
        )  # fmt: skip
        assert (await session.get("/metrics", "stranger"))[0] == 401


async def test_agent_api_changes_its_log_level_for_nobody_who_may_only_read(
    view: AgentView, tmp_path: Path
) -> None:
    before = klog.verbosity()
    klog.set_verbosity(2)
    try:
        async with reviews() as (kubernetes, kube), served(view, tmp_path / "token", kube) as session:
            kubernetes.readable = "/loglevel"
            assert await session.get("/loglevel", "scraper") == (200, "2\n")
            assert await session.get("/loglevel?level=", "scraper") == (200, "2\n")
            status, text = await session.get("/loglevel?level=3", "scraper")
            assert (status, json.loads(text)["message"]) == (
                403, f'forbidden: User "{PROMETHEUS}" cannot put path "/loglevel"',
            )  # fmt: skip
            assert klog.verbosity() == 2
            # as upstream's antctl asks in the Pod
            own = (tmp_path / "token").read_text()
            assert (await session.get("/loglevel?level=3", own))[0] == 200
            assert klog.verbosity() == 3
    finally:
        klog.set_verbosity(before)


async def test_agent_api_is_open_to_nobody_but_for_health(view: AgentView, tmp_path: Path) -> None:
    async with reviews() as (_, kube), served(view, tmp_path / "token", kube) as session:
        assert await session.get("/healthz") == (200, "ok")
        for path in (*PATHS, "/metrics", "/config", "/config/unknown", "/loglevel", "/"):
            status, text = await session.get(path)
            assert (status, json.loads(text)["message"].startswith('forbidden: User "system:anonymous"')) == (
                403,
                True,
            )


async def test_agent_api_knows_clients_by_a_certificate_of_the_cluster(
    view: AgentView, tmp_path: Path
) -> None:
    ca = authority(tmp_path, "ca", "kubernetes")
    auditor = issue(ca, "anna", "anna", groups=("auditors",))
    async with (
        reviews((tmp_path / "ca.crt").read_text()) as (_, kube),
        served(view, tmp_path / "token", kube, auditor) as session,
    ):
        deadline = asyncio.get_running_loop().time() + 60
        while (status := (await session.get("/metrics"))[0]) != 200:
            # the connection before the CA was known is not asked for a certificate
            assert (status, asyncio.get_running_loop().time() < deadline) == (403, True)
            await session.reconnect()
        assert (await session.get("/ovsflows"))[0] == 403


async def test_agent_api_serves_its_own_token_while_the_api_server_is_away(
    view: AgentView, tmp_path: Path
) -> None:
    async with reviews() as (kubernetes, kube), served(view, tmp_path / "token", kube) as session:
        kubernetes.away = True
        assert (await session.get("/version", (tmp_path / "token").read_text()))[0] == 200
        assert (await session.get("/metrics", "scraper"))[0] == 503
