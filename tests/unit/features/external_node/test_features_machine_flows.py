"""Flows of a machine outside the cluster: its pairs of ports, what goes by policies, and what its agent leaves out."""

from __future__ import annotations

import pytest

from antrea.agent.feature_set import active, pipeline_of
from antrea.config.agent import AgentConfig
from antrea.config.idle import idle
from antrea.config.load import parse
from antrea.engine import Engine, Facts
from antrea.errors import Invalid
from antrea.facts.node import ThisNode
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.features.external_node.agent import FEATURE
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.framework.config_validation import accept_agent
from antrea.host.nft import NftShield
from antrea.host.ovs_port import MachinePort, RealizedPort
from antrea.openflow.flow import Flow

NODE = ThisNode("vms/vm1", is_machine=True)
BASE = "nodeType: externalNode\nfeatureGates: {ExternalNode: true}\n"
PORT = MachinePort("vm1", "vms", ("192.0.2.1",), "eth0~")


def configuration(more: str = "") -> AgentConfig:
    return parse(AgentConfig, BASE + more).config


def flows(more: str = "") -> tuple[set[str], list[NftShield]]:
    config = configuration(more)
    features = active(accept_agent(config).names, node_type=config.node_type)
    facts = Facts()
    for row in (
        config, NODE, RealizedPipeline(pipeline_of(features, config, NODE)),
        RealizedPort("eth0", "u1", 2, "0a:00:00:00:00:01", PORT.external_ids()).fact(),
        OvsPort("eth0~", "uplink", 1, "0a:00:00:00:00:01"),
    ):  # fmt: skip
        assert row is not None
        facts.put(row)
    plan = Engine(facts, list(FEATURE.units)).plan()
    pipeline = pipeline_of(features, config, NODE)
    found = {one.named(pipeline) for one in plan.put if isinstance(one, Flow)}
    return found, [one for one in plan.put if isinstance(one, NftShield)]


def test_the_pipeline_has_what_a_machine_needs() -> None:
    config = configuration()
    features = active(accept_agent(config).names, node_type=config.node_type)
    assert [feature.name for feature in features] == [
        "NetworkPolicy on ExternalNodes", "NetworkPolicyStats", "ExternalNode",
    ]  # fmt: skip
    assert [table.name for table in pipeline_of(features, config, NODE).tables] == [
        "PipelineRootClassifier", "ConntrackZone", "ConntrackState",
        "EgressSecurityClassifier", "AntreaPolicyEgressRule", "EgressRule", "EgressDefaultRule", "EgressMetric",
        "L2ForwardingCalc",
        "IngressSecurityClassifier", "AntreaPolicyIngressRule", "IngressRule", "IngressDefaultRule", "IngressMetric",
        "ConntrackCommit", "Output", "NonIP",
    ]  # fmt: skip


def test_packets_cross_from_one_port_of_a_pair_to_the_other_in_both_families() -> None:
    found, shields = flows()
    for here, there in ((1, 2), (2, 1)):
        assert any(
            line.startswith(f"table=NonIP,priority=200,in_port={here} actions=output:{there}")
            for line in found
        )
        assert any(line.startswith(f"table=L2ForwardingCalc,priority=200,in_port={here} ") for line in found)
    for family in ("ip", "ipv6"):
        assert f"table=PipelineRootClassifier,priority=200,{family} actions=goto_table:ConntrackZone" in found
        assert any(
            line.startswith(f"table=ConntrackState,priority=210,ct_state=+inv+trk,{family}") for line in found
        )
    for kind in (133, 134, 135, 136, 143):
        assert (
            f"table=PipelineRootClassifier,priority=210,icmp6,icmp_type={kind} actions=goto_table:NonIP"
            in found
        )
    assert "table=PipelineRootClassifier,priority=190 actions=goto_table:NonIP" in found
    assert shields == []


def test_the_kernel_does_not_answer_what_userspace_ovs_has_read() -> None:
    _, shields = flows("ovsDatapathType: netdev\n")
    assert shields == [NftShield("eth0~", "u1")]
    assert NftShield("eth0~").chain == "shield-eth0/7e"


@pytest.mark.parametrize(
    ("rule", "flow"),
    [
        (
            "{direction: ingress, protocol: tcp, cidr: 10.0.0.0/8, port: 22}",
            "table=IngressSecurityClassifier,priority=200,tcp,ct_state=+new+trk,nw_src=10.0.0.0/8,tp_dst=22 actions=goto_table:IngressMetric",
        ),
        (
            "{direction: egress, protocol: udp, cidr: 'fd00::/8', port: 53}",
            "table=EgressSecurityClassifier,priority=200,udp6,ct_state=+new+trk,ipv6_dst=fd00::/8,tp_dst=53 actions=goto_table:EgressMetric",
        ),
        (
            "{direction: ingress, protocol: icmp, cidr: 10.0.0.0/8}",
            "table=IngressSecurityClassifier,priority=200,icmp,ct_state=+new+trk,nw_src=10.0.0.0/8 actions=goto_table:IngressMetric",
        ),
        (
            "{direction: egress, protocol: ip, cidr: 10.0.0.0/8}",
            "table=EgressSecurityClassifier,priority=200,ct_state=+new+trk,ip,nw_dst=10.0.0.0/8 actions=goto_table:EgressMetric",
        ),
    ],
)
def test_a_bypass_rule_goes_past_the_rules_of_its_direction(rule: str, flow: str) -> None:
    found, _ = flows(f"externalNode: {{policyBypassRules: [{rule}]}}\n")
    terms = {(frozenset(line.partition(" ")[0].split(",")), line.partition(" ")[2]) for line in found}
    assert (frozenset(flow.partition(" ")[0].split(",")), flow.partition(" ")[2]) in terms, sorted(found)


def test_a_port_of_an_interface_is_what_policies_are_for() -> None:
    found = RealizedPort("eth0", "u1", 2, "0a:00:00:00:00:01", PORT.external_ids()).fact()
    assert isinstance(found, PodInterface)
    assert (found.pod, found.uplink, found.ofport) == ("vms/vm1", "eth0~", 2)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("nodeType: externalNode\n", "nodeType"),
        (f"{BASE[:-2]}, Egress: true}}\n", "featureGates.Egress"),
        (f"{BASE}trafficEncapMode: hybrid\n", "trafficEncapMode"),
        (f"{BASE}nodePortLocal: {{enable: true}}\n", "nodePortLocal.enable"),
    ],
)
def test_what_a_machine_cannot_have_is_refused(text: str, key: str) -> None:
    with pytest.raises(Invalid) as no:
        accept_agent(parse(AgentConfig, text).config)
    assert no.value.path == key


def test_no_encap_is_taken_and_what_nodes_have_by_default_is_off() -> None:
    gates = accept_agent(configuration("trafficEncapMode: noEncap\n"))
    assert gates.names == {"AntreaPolicy", "ExternalNode", "NetworkPolicyStats"}


def test_keys_of_machines_are_named_as_idle_on_nodes() -> None:
    rule = "{direction: ingress, protocol: ip, cidr: 10.0.0.0/8}"
    text = f"externalNode: {{externalNodeNamespace: vms, policyBypassRules: [{rule}]}}\n"
    why = "has no effect: nodeType is not externalNode"
    assert sorted(idle(parse(AgentConfig, text).config)) == [
        f"externalNode.externalNodeNamespace: {why}", f"externalNode.policyBypassRules: {why}",
    ]  # fmt: skip
    assert idle(parse(AgentConfig, BASE + text).config) == ()


def test_on_a_node_the_gate_changes_nothing() -> None:
    gates = accept_agent(parse(AgentConfig, "featureGates: {ExternalNode: true}\n").config)
    assert not any(feature.name == "ExternalNode" for feature in active(gates.names))
