"""Rules on Services in a real switch, by trace: the first packet to a Service, before kube-proxy has it, in both families."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pytest
from policy_switch import CONFIG, FEATURES, GATEWAY, NEW, NODE, PEER, TUNNEL, ports

from antrea.apis import controlplane as cp
from antrea.engine import Engine, Facts
from antrea.facts.egress import Egress, EgressPod
from antrea.facts.node import LocalAddress
from antrea.facts.service import Service
from antrea.features.egress.agent.feature import FEATURE as EGRESS
from antrea.features.framework.agent_feature import Families, RealizedPipeline
from antrea.openflow.pipeline import Pipeline
from tests.unit.features.policy_world import (
    ANY,
    applied,
    block,
    interface,
    member,
    native,
    peer,
    policy,
    rule,
)

if TYPE_CHECKING:
    from ovs_bridge import OvsBridge

    from antrea.facts.fact import Fact

TABLES = Pipeline.realize(
    table for one in (*FEATURES, EGRESS) for table in one.tables_of(CONFIG, Families.of(NODE.pod_cidrs))
)
POD = (interface("p11", 11), *applied("g", member("p11")))
SOURCE = ("10.10.0.11", "fd00:10::b")
WEB = Service(
    "a", "web", ("10.96.0.10", "fd00:96::a", "203.0.113.9", "2001:db8::9"), (("TCP", 80), ("UDP", 53))
)
TWIN = Service("a", "twin", ("10.96.0.11", "fd00:96::b"), (("TCP", 80), ("TCP", 8080)))
ADDRESSES = {
    "web": ("10.96.0.10", "fd00:96::a"),
    "web outside": ("203.0.113.9", "2001:db8::9"),
    "twin": ("10.96.0.11", "fd00:96::b"),
    "backend": ("10.10.1.11", "fd00:10:1::b"),
}


class Sent(NamedTuple):
    """What the Pod sends."""

    to: str
    protocol: str = "tcp"
    port: int = 80


def to(*names: str) -> cp.NetworkPolicyPeer:
    return cp.NetworkPolicyPeer(
        to_services=tuple(cp.ServiceReference(name=name, namespace="a") for name in names)
    )


def out(other: cp.NetworkPolicyPeer, action: str, number: int = 0) -> cp.NetworkPolicyRule:
    return rule("Out", other, action=action, priority=number)


def one(name: str, *rules: cp.NetworkPolicyRule, tier: int = 250) -> Fact:
    numbered = [msgspec.structs.replace(found, priority=number) for number, found in enumerate(rules)]
    return native(name, "g", *numbered, tier=tier)


CLOSED = policy("closed", "g", rule("Out", peer()))
EVERYTHING = [Sent("web"), Sent("web", "udp", 53), Sent("web outside"), Sent("twin"), Sent("backend")]
CASES: dict[str, tuple[list[Fact], list[Sent]]] = {
    "a service is its address with its ports and protocols": (
        [one("p", out(to("web"), "Drop")), WEB, TWIN],
        [Sent("twin"), Sent("twin", port=8080), Sent("backend"), Sent("web", port=53), Sent("web", "udp", 80)],
    ),
    "rejected is dropped, with an answer": ([one("p", out(to("web"), "Reject")), WEB], [Sent("twin"), Sent("backend")]),
    "the first of two rules decides": (
        [one("p", out(to("web"), "Allow"), out(to("web", "twin"), "Drop")), WEB, TWIN],
        [Sent("web"), Sent("web", "udp", 53), Sent("web outside"), Sent("backend")],
    ),
    "passed on, to nobody": (
        [one("p", out(to("web"), "Pass"), out(to("web", "twin"), "Drop")), WEB, TWIN],
        [Sent("web"), Sent("web", "udp", 53), Sent("web outside"), Sent("backend")],
    ),
    "passed on, to the baseline": (
        [one("p", out(to("web"), "Pass")), one("b", out(to("web"), "Drop"), tier=253), WEB, TWIN],
        [Sent("twin"), Sent("backend")],
    ),
    "no baseline for a Pod that kubernetes isolates": (
        [one("b", out(to("web"), "Drop"), tier=253), CLOSED, WEB],
        [Sent("web"), Sent("web", "udp", 53), Sent("twin")],
    ),
    "rules on addresses judge what kube-proxy makes of a packet": (
        [one("p", out(ANY, "Drop")), WEB],
        [Sent("web"), Sent("web", "udp", 53), Sent("twin")],
    ),
    "and what goes to an address outside the cluster, unless a rule on services allows it": (
        [one("p", out(peer(blocks=[block("203.0.113.0/24"), block("2001:db8::/32")]), "Drop"), out(to("web"), "Allow")), WEB],
        EVERYTHING,
    ),
    "a service that is not there": ([one("p", out(to("gone"), "Drop")), WEB], EVERYTHING),
}  # fmt: skip


@pytest.fixture(scope="module")
def bridge(ovs: OvsBridge) -> OvsBridge:
    ovs.add_ports(ports())
    return ovs


def install(bridge: OvsBridge, *rows: Fact) -> None:
    facts = Facts()
    features = (*FEATURES, EGRESS)
    for pool, low, high in (bounds for feature in features for bounds in feature.ranks):
        facts.ids.between(pool, low, high)
    for row in (CONFIG, NODE, PEER, GATEWAY, TUNNEL, RealizedPipeline(TABLES), *POD, *rows):
        facts.put(row)
    engine = Engine(facts, [unit for feature in features for unit in feature.units])
    engine.plan()
    assert not engine.errors.standing
    bridge.clear()
    bridge.install(list(engine.standing().values()), TABLES)


def trace(bridge: OvsBridge, sent: Sent, *, v6: bool) -> str:
    kind, address = (f"{sent.protocol}6", "ipv6_") if v6 else (sent.protocol, "nw_")
    flow = (
        f"in_port=11,{kind},dl_src=0a:00:00:00:00:0b,dl_dst={GATEWAY.mac},nw_ttl=64,"
        f"{address}src={SOURCE[v6]},{address}dst={ADDRESSES[sent.to][v6]},{sent.protocol}_dst={sent.port}"
    )
    return bridge.appctl("ofproto/trace", "br-int", flow, *NEW)


@pytest.mark.parametrize("v6", [False, True], ids=["ipv4", "ipv6"])
@pytest.mark.parametrize(("rows", "passes"), CASES.values(), ids=CASES)
def test_packets_to_services_pass_as_their_rules_say(
    bridge: OvsBridge, rows: list[Fact], passes: list[Sent], *, v6: bool
) -> None:
    install(bridge, *rows)
    asked = dict.fromkeys([*EVERYTHING, *passes])
    found = {sent for sent in asked if "-> output port is" in trace(bridge, sent, v6=v6)}
    assert found == {*passes}


def test_what_is_allowed_goes_to_the_host_as_it_is_also_from_a_pod_with_an_egress(bridge: OvsBridge) -> None:
    """With its mark, kube-proxy's packets would get the Egress IP."""
    egress = (Egress("e", "u", "192.0.2.50"), EgressPod("e", "a/p11"), LocalAddress("192.0.2.50", "eth0"))
    install(bridge, *egress, one("p", out(to("web"), "Allow")), WEB)
    found = {to: trace(bridge, Sent(to), v6=False) for to in ("web", "web outside")}
    assert all("conj_id=" in text and "-> output port is 2" in text for text in found.values())
    assert {to: "set(eth(src=" in text for to, text in found.items()} == {"web": False, "web outside": True}
