"""The bandwidth of Egresses: meters, the flows that ask them, in which order, and what the status says of it."""

from __future__ import annotations

import msgspec
import pytest

from antrea.agent.feature_set import active, pipeline_of
from antrea.apis.crd.egress import Bandwidth
from antrea.apis.crd.egress import Egress as EgressObject
from antrea.apis.crd.part import Condition
from antrea.apis.status import Status
from antrea.config.agent import AgentConfig
from antrea.engine import Engine, Facts
from antrea.facts.egress import Egress, EgressLimit, EgressPod
from antrea.facts.node import LocalAddress, ThisNode
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.facts.unrealized import Unrealized
from antrea.features.egress.agent.bandwidth import LIMITS, limit_of
from antrea.features.egress.agent.feature import egress_row
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.framework.gate import EnabledGates
from antrea.host.carrier import ip_mac, mark_mac
from antrea.openflow.flow import Flow
from antrea.openflow.meter import Meter, Rate

NODE = ThisNode("n1", ("10.10.0.0/24",), ("192.0.2.1",), ("192.0.2.1",))
GATEWAY = OvsPort("antrea-gw0", "gateway", 2, "0a:00:00:00:00:01")
WEB = PodInterface("web", "c1", "shop", "web", "0a:00:00:00:00:07", ("10.10.0.7",), 7, "u1")
IP, OTHER_IP = "203.0.113.1", "203.0.113.2"
SYSTEM, NETDEV = AgentConfig(), AgentConfig(ovs_datapath_type="netdev")
BOTH = frozenset({"Egress", "EgressTrafficShaping"})
LIMIT = EgressLimit(10_000, 500)


def egress(name: str, limit: EgressLimit | None = LIMIT, ip: str = IP, created: str = "1") -> Egress:
    return Egress(name, f"uid-{name}", ip, created=created, limit=limit)


class Agent:
    """The units of one Node that has both addresses; `gates` are on, and the switch has meters or not."""

    def __init__(
        self, *rows: Egress, config: AgentConfig = SYSTEM, gates: frozenset[str] = BOTH, meters: bool = True
    ) -> None:
        features = [one for one in active(gates) if meters or not one.meters]
        self.pipeline = pipeline_of(features, config, NODE)
        self.facts = Facts()
        self.engine = Engine(self.facts, [unit for one in features for unit in one.units])
        here = (LocalAddress(IP, "eth0"), LocalAddress(OTHER_IP, "eth0"))
        enabled = EnabledGates("agent", gates)
        for row in (config, NODE, GATEWAY, WEB, RealizedPipeline(self.pipeline), enabled, *here, *rows):
            self.facts.put(row)
        self.facts.put(EgressPod("a", "shop/web"))
        self.engine.plan()

    def flows(self, *words: str) -> set[str]:
        found = (e.named(self.pipeline) for e in self.engine.standing().values() if isinstance(e, Flow))
        return {line for line in found if all(word in line for word in words)}

    @property
    def meters(self) -> set[Meter]:
        return {m for m in self.engine.standing().values() if isinstance(m, Meter) and m.id < 256}

    def conditions(self, name: str = "a") -> tuple[Condition, ...]:
        (found,) = (
            entry.conditions
            for entry in self.engine.standing().values()
            if isinstance(entry, Status) and entry.path.endswith(f"/{name}")
        )
        return found


EXPECTED = """
table=EgressMark,priority=200,ct_state=+trk,ip,in_port=7 actions={mark},set_field:0x20/0xf0->reg0,goto_table:EgressQoS
table=EgressMark,priority=200,ct_state=+trk,ip,{tunnelled} actions={mark},set_field:0x20/0xf0->reg0,goto_table:EgressQoS
table=EgressQoS,priority=200,{match} actions=meter:1,goto_table:L2ForwardingCalc
table=EgressQoS,priority=190 actions=goto_table:L2ForwardingCalc
"""
WORDS = {
    "system": {
        "mark": "set_field:0x1/0xff->pkt_mark", "tunnelled": f"tun_dst={IP}", "match": "pkt_mark=0x1/0xff",
    },
    "netdev": {
        "mark": f"set_field:{mark_mac(1)}->eth_src",
        "tunnelled": f"reg0=0x1/0xf,dl_src={ip_mac(IP)}",
        "match": f"dl_src={mark_mac(1)}",
    },
}  # fmt: skip


@pytest.mark.parametrize("config", [SYSTEM, NETDEV], ids=["system", "netdev"])
def test_what_leaves_with_the_address_of_pods_here_and_elsewhere_passes_one_meter(
    config: AgentConfig,
) -> None:
    agent = Agent(egress("a"), config=config)
    words = WORDS[config.ovs_datapath_type]
    found = agent.flows("EgressMark", "priority=200") | agent.flows(
        "table=EgressQoS,priority=", "L2ForwardingCalc"
    )
    assert found == set(EXPECTED.format(**words).strip().split("\n"))
    assert agent.meters == {Meter(1, Rate.KBPS, 10_000, 500, 4)}
    assert agent.conditions() == (
        Condition(
            "BandwidthLimited",
            "True",
            reason="Limited",
            message="10000 kbit/s with bursts of 500 kbit on Node n1",
        ),
    )


def test_the_meter_stands_before_the_flow_that_asks_it_and_goes_after_it_and_a_new_rate_changes_nothing_else() -> (
    None
):
    agent = Agent(egress("a", limit=None))
    assert agent.meters == set()
    agent.facts.put(egress("a"))
    plan = agent.engine.plan()
    assert [type(entry) for entry in plan.put if isinstance(entry, Meter | Flow)] == [Meter, Flow]
    agent.facts.put(egress("a", EgressLimit(20_000, 500)))
    plan = agent.engine.plan()
    assert [entry for entry in plan.put if not isinstance(entry, Status)] == [
        Meter(1, Rate.KBPS, 20_000, 500, 4)
    ]
    assert plan.drop == []
    agent.facts.put(egress("a", limit=None))
    plan = agent.engine.plan()
    assert [type(entry) for entry in plan.drop if isinstance(entry, Meter | Flow)] == [Flow, Meter]
    assert agent.meters == set()
    assert len(agent.flows("in_port=7", "goto_table:EgressQoS")) == 1


def test_of_egresses_that_share_an_address_the_oldest_that_has_a_bandwidth_says_it() -> None:
    rows = [
        egress("a", EgressLimit(1, 1), created="2"),
        egress("b", None, created="0"),
        egress("c", EgressLimit(3, 3)),
    ]
    agent = Agent(*rows, egress("d", EgressLimit(4, 4), OTHER_IP, "9"))
    assert {meter.rate for meter in agent.meters} == {3, 4}
    assert [one.status for name in "acd" for one in agent.conditions(name)] == ["False", "True", "True"]
    assert agent.conditions("b") == ()
    (said,) = agent.conditions("a")
    assert said.message == "Egress c, which is older, has the same address: its bandwidth counts"


@pytest.mark.parametrize(
    ("gates", "meters", "reason", "message"),
    [
        ({"Egress"}, True, "FeatureDisabled", "feature gate EgressTrafficShaping of the agent is off on Node n1"),
        (BOTH, False, "MetersUnsupported", "the datapath of Node n1 has no meters"),
    ],
)  # fmt: skip
def test_where_nothing_can_limit_packets_pass_as_without_a_bandwidth_and_the_status_says_why(
    gates: set[str], meters: bool, reason: str, message: str
) -> None:
    agent = Agent(egress("a"), gates=frozenset(gates), meters=meters)
    without = Agent(egress("a", None), gates=frozenset({"Egress"}))
    assert agent.flows() == without.flows()
    assert agent.flows("EgressQoS") == set()
    assert agent.meters == set()
    assert agent.conditions() == (Condition("BandwidthLimited", "False", reason=reason, message=message),)


def test_the_switchs_words_are_told_if_it_refuses_the_meter() -> None:
    agent = Agent(egress("a"))
    agent.facts.put(Unrealized(LIMITS.name, IP, "OFPMMFC_OUT_OF_METERS"))
    agent.engine.plan()
    message = "the switch of Node n1 refuses the meter: OFPMMFC_OUT_OF_METERS"
    assert agent.conditions() == (
        Condition("BandwidthLimited", "False", reason="MeterRefused", message=message),
    )


def test_a_word_on_a_bandwidth_that_is_gone_is_taken_back() -> None:
    told = {"type": "BandwidthLimited", "status": "True"}
    found = {
        "metadata": {"name": "a"},
        "spec": {"appliedTo": {}, "egressIP": IP},
        "status": {"conditions": [told]},
    }
    agent = Agent(egress_row(msgspec.convert(found, EgressObject)))
    assert agent.conditions() == (Condition("BandwidthLimited"),)


@pytest.mark.parametrize(
    ("rate", "burst", "limit"),
    [
        ("10M", "500k", LIMIT),
        ("1.5Mi", "1e6", EgressLimit(1572, 1000)),
        ("-1", "0", EgressLimit(0, 0)),
        ("9E", "1", EgressLimit(2**32 - 1, 0)),
        ("fast", "1M", None),
    ],
)
def test_quantities_become_kilobits_as_a_meter_counts_them(
    rate: str, burst: str, limit: EgressLimit | None
) -> None:
    assert limit_of(Bandwidth(rate, burst)) == limit


def test_without_the_gate_of_egress_there_is_no_table_of_meters() -> None:
    assert "EgressQoS" not in pipeline_of(active({"EgressTrafficShaping"}), SYSTEM, NODE).ids
    assert "EgressQoS" not in pipeline_of(active({"Egress"}), SYSTEM, NODE).ids
    assert "EgressQoS" in pipeline_of(active(BOTH), SYSTEM, NODE).ids
