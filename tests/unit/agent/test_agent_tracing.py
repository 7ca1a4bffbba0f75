"""How a traced packet enters the bridge, by where its ends are."""

from __future__ import annotations

import contextlib
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antrea.agent.api.trace_packet import PacketTracer
from antrea.agent.api.view import AgentView
from antrea.config.agent import AgentConfig
from antrea.config.effect import InEffect
from antrea.engine import Facts
from antrea.errors import Invalid, Refused, Unavailable
from antrea.facts.node import ThisNode
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.features.framework.agent_part import NotFound
from antrea.features.framework.config_validation import accept_agent

T = TypeVar("T")

GATEWAY, POD_A, POD_B = "0a:00:00:00:00:01", "0a:00:00:00:00:07", "0a:00:00:00:00:08"
VIRTUAL = "aa:bb:cc:dd:ee:ff"
ROWS = (
    ThisNode("n1", ("10.10.0.0/24", "fd00:10::/64")),
    OvsPort("antrea-gw0", "gateway", 2, GATEWAY),
    OvsPort("antrea-tun0", "tunnel", 1, ""),
    OvsPort("eth1", "uplink", 3, "0a:00:00:00:00:03"),
    PodInterface("a-1", "a" * 64, "shop", "a", POD_A, ("10.10.0.7", "fd00:10::7"), 7, "u1"),
    PodInterface("b-1", "b" * 64, "shop", "b", POD_B, ("10.10.0.8",), 8, "u2"),
)
OBJECTS: dict[str, Any] = {
    "/api/v1/namespaces/far/pods/web": {"status": {"podIP": "10.10.2.9", "podIPs": [{"ip": "10.10.2.9"}]}},
    "/api/v1/namespaces/far/pods/new": {"status": {}},
    "/api/v1/namespaces/far/services/web-svc": {"spec": {"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"]}},
    "/api/v1/namespaces/far/services/headless": {"spec": {"clusterIP": "None", "clusterIPs": ["None"]}},
}  # fmt: skip
QUERY = ("port", "source", "destination", "flow", "addressFamily")
WORDS = (
    "shop/a",
    "far/web",
    "far/web-svc",
    "antrea-gw0",
    "eth1",
    "10.0.0.1",
    "fd00::1",
    "tcp,tcp_dst=80",
    "arp",
    "4",
    "6",
)


class Cluster:
    """Stands where kube-apiserver stands."""

    async def get(self, path: str, kind: type[T]) -> T | None:
        return msgspec.convert(OBJECTS[path], kind) if path in OBJECTS else None


class Switch:
    """Stands where ovs-vswitchd stands; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def trace(self, flow: str) -> str:
        self.asked.append(flow)
        if "udp" in flow:
            return "     >> Not tunneling to our own address\n"
        if "tcp_dst=x" in flow:
            raise Refused([flow], "x: bad value")
        return " 0. ip, priority 200\n    goto_table:1\n 1. priority 0\n    drop\n"


def known() -> AgentView:
    facts = Facts()
    for row in ROWS:
        facts.put(row)
    config = AgentConfig(api_port=0)
    tables = {"PipelineRootClassifier": 0, "Classifier": 1}
    return AgentView(lambda: InEffect("", config, accept_agent(config)), facts, Lines(), tables)


@pytest.fixture
def view() -> AgentView:
    return known()


class Lines:
    """A switch that is asked for no dump."""

    def lines(self, command: str, *arguments: str) -> Any:
        raise AssertionError((command, arguments))


@pytest.mark.parametrize(
    ("query", "flow"),
    [
        ({"source": "shop/a", "destination": "shop/b"}, f"in_port=7,dl_src={POD_A},dl_dst={POD_B},ip,nw_ttl=64,nw_src=10.10.0.7,nw_dst=10.10.0.8"),
        ({"source": "shop/a", "destination": "far/web"}, f"in_port=7,dl_src={POD_A},dl_dst={GATEWAY},ip,nw_ttl=64,nw_src=10.10.0.7,nw_dst=10.10.2.9"),
        ({"source": "shop/a", "destination": "far/web-svc", "flow": "tcp,tcp_dst=80"}, f"in_port=7,dl_src={POD_A},dl_dst={GATEWAY},tcp,tcp_dst=80,nw_ttl=64,nw_src=10.10.0.7,nw_dst=10.96.0.9"),
        ({"source": "far/web", "destination": "shop/a"}, f"in_port=1,dl_src={VIRTUAL},dl_dst={VIRTUAL},ip,nw_ttl=64,nw_src=10.10.2.9,nw_dst=10.10.0.7"),
        ({"source": "192.0.2.1", "destination": "shop/a"}, f"in_port=2,dl_src={GATEWAY},dl_dst={POD_A},ip,nw_ttl=64,nw_src=192.0.2.1,nw_dst=10.10.0.7"),
        ({"source": "shop/a", "destination": "antrea-gw0", "addressFamily": "6"}, f"in_port=7,dl_src={POD_A},dl_dst={GATEWAY},ipv6,nw_ttl=64,ipv6_src=fd00:10::7,ipv6_dst=fd00:10::1"),
        ({"port": "a-1", "source": "10.1.2.3", "destination": "b-1"}, f"in_port=7,dl_src={POD_A},dl_dst={POD_B},ip,nw_ttl=64,nw_src=10.1.2.3,nw_dst=10.10.0.8"),
        ({"port": "shop/a", "flow": "arp"}, f"in_port=7,dl_src={POD_A},arp"),
        ({}, f"in_port=2,dl_src={GATEWAY}"),
    ],
)  # fmt: skip
async def test_tracing_lets_a_packet_enter_where_its_source_is(
    view: AgentView, query: dict[str, str], flow: str
) -> None:
    switch = Switch()
    answer = await PacketTracer(view, Cluster(), switch).answer(query)
    assert switch.asked == [flow]
    assert answer.result == (
        " 0. PipelineRootClassifier: ip, priority 200\n    goto_table:Classifier\n 1. Classifier: priority 0\n    drop\n"
    )


async def test_tracing_says_when_ovs_is_wrong_about_a_tunnel(view: AgentView) -> None:
    answer = await PacketTracer(view, Cluster(), Switch()).answer({"source": "shop/a", "flow": "udp"})
    assert answer.result.startswith(
        "     >> Not tunneling to our own address\n\nNote: real packets leave by this tunnel."
    )


async def test_tracing_takes_the_gateway_for_pods_of_other_nodes_where_there_is_no_tunnel(
    view: AgentView,
) -> None:
    view.facts.drop(OvsPort, "antrea-tun0")
    switch = Switch()
    await PacketTracer(view, Cluster(), switch).answer({"source": "far/web"})
    assert switch.asked == [f"in_port=2,dl_src={GATEWAY},ip,nw_ttl=64,nw_src=10.10.2.9"]


@pytest.mark.parametrize(
    ("query", "kind", "why"),
    [
        ({"source": "far/none"}, NotFound, "source: Pod far/none not found"),
        ({"destination": "far/none"}, NotFound, "destination: neither a Pod nor a Service far/none found"),
        ({"source": "nowhere0"}, NotFound, "source: OVS port nowhere0 not found"),
        ({"port": "far/web"}, NotFound, "input port not found: far/web is neither a port of the bridge nor a Pod of this Node"),
        ({"source": "far/new"}, NotFound, "source far/new has no IPv4 address"),
        ({"destination": "far/headless"}, NotFound, "destination far/headless has no IPv4 address"),
        ({"destination": "shop/b", "addressFamily": "6"}, NotFound, "destination shop/b has no IPv6 address"),
        ({"port": "eth1"}, Invalid, "invalid OVS port: packets enter by a Pod's, the gateway's or a tunnel's port"),
        ({"source": "shop/a", "flow": "tcp,tcp_dst=x"}, Invalid, "OVS rejects the packet: x: bad value"),
    ],
)  # fmt: skip
async def test_tracing_says_what_it_cannot_find(
    view: AgentView, query: dict[str, str], kind: type[Exception], why: str
) -> None:
    with pytest.raises(kind) as no:
        await PacketTracer(view, Cluster(), Switch()).answer(query)
    assert str(no.value).endswith(why)


async def test_tracing_waits_for_the_gateway_and_for_a_cluster(view: AgentView) -> None:
    with pytest.raises(Unavailable, match="kube-apiserver is needed to look up source far/web"):
        await PacketTracer(view, None, Switch()).answer({"source": "far/web"})
    view.facts.drop(OvsPort, "antrea-gw0")
    with pytest.raises(Unavailable, match="port antrea-gw0 of the bridge"):
        await PacketTracer(view, Cluster(), Switch()).answer({})


@given(st.dictionaries(st.sampled_from(QUERY), st.one_of(st.text(max_size=20), st.sampled_from(WORDS))))
async def test_tracing_of_whatever_is_asked_ends_in_an_answer_or_a_sentence(query: dict[str, str]) -> None:
    with contextlib.suppress(Invalid, NotFound):
        assert (await PacketTracer(known(), Cluster(), Switch()).answer(query)).result
