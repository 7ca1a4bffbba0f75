"""Feature gates and the configurations that are refused at start."""

import re

import msgspec
import pytest

from antrea.config.agent import AgentConfig
from antrea.config.controller import ControllerConfig
from antrea.config.load import known_paths, parse
from antrea.errors import Invalid
from antrea.features.framework.config_validation import accept_agent, accept_controller
from antrea.features.framework.gate import GATES, EnabledGates, GateStatus, one_sided, resolve, statuses
from antrea.features.framework.gate_row import Gate

SOME = (
    Gate("Alpha", ("agent",), "ALPHA", False, "alpha v1", "One.", built=True),
    Gate("Beta", ("agent", "controller"), "BETA", True, "beta v1", "Two.", built=True),
    Gate("Future", ("agent",), "ALPHA", True, "alpha v1", "Three."),
    Gate("Theirs", ("controller",), "ALPHA", False, "alpha v1", "Four."),
    Gate("Settled", ("agent",), "GA", True, "GA v1", "Five.", locked=True, built=True),
)


@pytest.mark.parametrize(
    ("asked", "on"),
    [
        ({}, {"Beta", "Settled"}),
        ({"Alpha": True}, {"Alpha", "Beta", "Settled"}),
        ({"Beta": False}, {"Settled"}),
        ({"AllBeta": False}, {"Settled"}),
        ({"AllBeta": False, "Beta": True}, {"Beta", "Settled"}),
        ({"AllAlpha": True, "Future": False}, {"Alpha", "Beta", "Settled"}),
        ({"AllAlpha": True, "Future": False, "Alpha": False}, {"Beta", "Settled"}),
        ({"Settled": True, "Theirs": True, "Future": False}, {"Beta", "Settled"}),
    ],
)
def test_gate_own_setting_wins_over_stage_switch_over_default(asked: dict[str, bool], on: set[str]) -> None:
    assert resolve("agent", asked, SOME) == EnabledGates("agent", frozenset(on))


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ({"Betta": True}, "featureGates.Betta: unrecognized feature gate; did you mean Beta?"),
        ({"Qqqqq": False}, "featureGates.Qqqqq: unrecognized feature gate"),
        (
            {"Qqqqq": False, "Beta": True, "Betta": True},
            "featureGates.Qqqqq: unrecognized feature gate; featureGates.Betta: unrecognized feature gate; did you mean Beta?",
        ),
        ({"Settled": False}, "featureGates.Settled: is locked to true"),
        ({"Future": True}, "featureGates.Future: the feature Future is not built yet, so it cannot be enabled"),
        ({"AllAlpha": True}, "featureGates.AllAlpha: the feature Future is not built yet, so it cannot be enabled"),
    ],
)  # fmt: skip
def test_gate_an_unknown_locked_or_unbuilt_gate_stops_the_program(asked: dict[str, bool], line: str) -> None:
    with pytest.raises(Invalid) as error:
        resolve("agent", asked, SOME)
    assert str(error.value) == line


def test_gate_the_status_of_what_is_not_built_is_disabled_though_upstream_defaults_to_on() -> None:
    assert statuses(resolve("agent", {}, SOME), SOME) == [
        GateStatus("agent", "Alpha", "Disabled", "ALPHA"),
        GateStatus("agent", "Beta", "Enabled", "BETA"),
        GateStatus("agent", "Future", "Disabled", "ALPHA"),
        GateStatus("agent", "Settled", "Enabled", "GA"),
    ]


def test_gate_rows_are_upstreams_by_component_and_in_byte_order() -> None:
    agent = [row.name for row in statuses(resolve("agent", {}))]
    assert agent == sorted(agent)
    assert agent.index("NFTablesHostNetworkMode") < agent.index("NetworkPolicyStats")
    assert (len(agent), len(statuses(resolve("controller", {})))) == (32, 14 + 1)  # L7FlowExporter
    assert len({gate.name for gate in GATES}) == len(GATES) == 35


def test_gate_every_default_configuration_is_accepted_and_nothing_unbuilt_claims_to_be_on() -> None:
    built = {gate.name for gate in GATES if gate.built}
    assert accept_agent(AgentConfig()).names <= built
    assert accept_controller(ControllerConfig()).names <= built


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("nodeType: externalNode", "nodeType"),
        ("ipsec: {authenticationMode: cert}", "ipsec.authenticationMode"),
        ("antreaProxy: {defaultLoadBalancerMode: dsr}", "antreaProxy.defaultLoadBalancerMode"),
        ("{trafficEncapMode: hybrid, trafficEncryptionMode: ipsec}", "trafficEncryptionMode"),
        ("noSNAT: true", "noSNAT"),
        ("tunnelType: stt", "tunnelType"),
        ("{tunnelType: gre, transportInterfaceCIDRs: ['fd00:1::/64', 'fd00:2::/64']}", "tunnelType"),
        ("flowExporter: {flowPollInterval: 100ms}", "flowExporter.flowPollInterval"),
        ("flowPollInterval: 100ms", "flowPollInterval"),
        ("{multicast: {enable: true}, trafficEncryptionMode: ipsec}", "multicast.enable"),
        ("multicluster: {enableStretchedNetworkPolicy: true}", "multicluster.enableStretchedNetworkPolicy"),
        ("{multicluster: {trafficEncryptionMode: wireguard}, trafficEncryptionMode: ipsec}", "multicluster.trafficEncryptionMode"),
        ("{multicluster: {enableGateway: true}, trafficEncryptionMode: wireguard}", "multicluster.enableGateway"),
        ("enableBridgingMode: true", "enableBridgingMode"),
        ("externalNode: {policyBypassRules: [{direction: ingress, protocol: TCP, cidr: 10.0.0.0/8}]}", "externalNode.policyBypassRules"),
        ("secondaryNetwork: {ovsBridges: [{bridgeName: br-int}]}", "secondaryNetwork.ovsBridges"),
        ("{trafficEncapMode: noEncap, antreaProxy: {enable: false}}", "trafficEncapMode"),
    ],
)  # fmt: skip
def test_gate_combinations_that_upstream_rejects_are_rejected(text: str, path: str) -> None:
    with pytest.raises(Invalid) as error:
        accept_agent(parse(AgentConfig, text).config)
    assert error.value.path == path
    reason = error.value.why.partition("; ")[0]
    needs = re.search(r"needs the feature (\w+), which is not built yet$", reason)
    assert ("not built" in reason) == bool(needs)
    assert not needs or needs[1] not in {gate.name for gate in GATES if gate.built}


@pytest.mark.parametrize("gate", ["", ", IPsecCertAuth: true"])
def test_what_needs_a_feature_that_is_not_built_is_not_sent_to_a_gate_that_is_refused(gate: str) -> None:
    text = f"{{ipsec: {{authenticationMode: cert}}, featureGates: {{AllAlpha: false{gate}}}}}"
    with pytest.raises(Invalid, match=r"IPsecCertAuth.* not built yet"):
        accept_agent(parse(AgentConfig, text).config)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("trafficEncapMode: networkPolicyOnly", "trafficEncapMode"),
        ("trafficEncryptionMode: wireGuard", "trafficEncryptionMode"),
        ("multicast: {enable: true}", "multicast.enable"),
        ("multicluster: {enableGateway: true}", "multicluster.enableGateway"),
        ("multicluster: {enablePodToPodConnectivity: true}", "multicluster.enablePodToPodConnectivity"),
        ("multicluster: {trafficEncryptionMode: wireGuard}", "multicluster.trafficEncryptionMode"),
        ("secondaryNetwork: {ovsBridges: [{bridgeName: br1}]}", "secondaryNetwork.ovsBridges"),
        ("featureGates: {Multicast: true}", "featureGates.Multicast"),
        ("featureGates: {AllBeta: true}", "featureGates.AllBeta"),
    ],
)
def test_gate_what_is_not_built_is_refused_when_it_is_asked_for(text: str, path: str) -> None:
    with pytest.raises(Invalid, match="is not built yet, so it cannot be enabled") as error:
        accept_agent(parse(AgentConfig, text).config)
    assert error.value.path == path


@pytest.mark.parametrize(
    ("text", "on"),
    [
        ("", True),
        ("featureGates: {Egress: true}", True),
        ("antreaProxy: {skipServices: [a/b]}", True),
        ("featureGates: {AntreaProxy: false}", False),
        ("antreaProxy: {enable: false}", False),
        ("{antreaProxy: {enable: false}, featureGates: {AntreaProxy: true}}", False),
    ],
)
def test_gate_antrea_proxy_is_on_unless_either_key_turns_it_off(text: str, on: bool) -> None:
    assert ("AntreaProxy" in accept_agent(parse(AgentConfig, text).config)) is on


def test_gate_proxy_all_needs_antrea_proxy() -> None:
    asked = "{antreaProxy: {proxyAll: true%s}, featureGates: {AntreaProxy: %s}}"
    assert "AntreaProxy" in accept_agent(parse(AgentConfig, asked % ("", "true")).config).names
    for more, gate in (("", "false"), (", enable: false", "true")):
        with pytest.raises(Invalid, match=r"^antreaProxy\.proxyAll: requires AntreaProxy"):
            accept_agent(parse(AgentConfig, asked % (more, gate)).config)


def test_gate_upstreams_defaults_written_out_are_not_refused() -> None:
    text = """
    antreaProxy: {enable: true, proxyAll: false}
    egress: {maxEgressIPsPerNode: 255}
    featureGates: {Egress: true, Multicast: false, AdminNetworkPolicy: true}
    """
    assert accept_agent(parse(AgentConfig, text).config) == accept_agent(AgentConfig())


def test_gate_without_a_tunnel_the_environment_may_waive_antrea_proxy() -> None:
    config = parse(AgentConfig, "{trafficEncapMode: noEncap, antreaProxy: {enable: false}}").config
    with pytest.raises(Invalid, match="requires AntreaProxy"):
        accept_agent(config)
    assert "AntreaProxy" not in accept_agent(config, encap_free_without_proxy=True)
    accept_agent(parse(AgentConfig, "{trafficEncapMode: noEncap, noSNAT: true}").config)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("nodeIPAM: {enableNodeIPAM: true}", "nodeIPAM.clusterCIDRs: must hold one or two"),
        ("nodeIPAM: {enableNodeIPAM: true, clusterCIDRs: [10.0.0.0/8, 11.0.0.0/8]}", "nodeIPAM.clusterCIDRs"),
        ("nodeIPAM: {enableNodeIPAM: true, clusterCIDRs: [10.0.0.1/8]}", "nodeIPAM.clusterCIDRs: must hold a network address"),
        ("nodeIPAM: {enableNodeIPAM: true, clusterCIDRs: [10.0.0.0/25]}", "nodeIPAM.nodeCIDRMaskSizeIPv4: must not be smaller"),
        ("nodeIPAM: {enableNodeIPAM: true, clusterCIDRs: ['fd00::/65']}", "nodeIPAM.nodeCIDRMaskSizeIPv6: must not be smaller"),
        ("nodeIPAM: {enableNodeIPAM: true, clusterCIDRs: ['fd00::/47']}", "nodeIPAM.nodeCIDRMaskSizeIPv6: must not be smaller"),
        ("nodeIPAM: {enableNodeIPAM: true, clusterCIDRs: [10.0.0.0/16], serviceCIDR: 10.0.0.0/8}", "nodeIPAM.serviceCIDR: must be an IPv4 range that leaves room"),
        ("nodeIPAM: {enableNodeIPAM: true, clusterCIDRs: [10.0.0.0/16], serviceCIDRv6: 10.9.0.0/16}", "nodeIPAM.serviceCIDRv6: must be an IPv6 range"),
        ("featureGates: {AntreaPolicy: false, AdminNetworkPolicy: true}", "featureGates.AdminNetworkPolicy: requires the feature gate AntreaPolicy"),
        ("featureGates: {AntreaPolicy: false, ClusterNetworkPolicy: true}", "featureGates.ClusterNetworkPolicy: requires the feature gate AntreaPolicy"),
        ("clientCAFile: /ca", "clientCAFile: authentication by client certificate is not built yet"),
        ("multicluster: {enableStretchedNetworkPolicy: true}", "multicluster.enableStretchedNetworkPolicy: "),
        ("featureGates: {Nope: true}", "featureGates.Nope: unrecognized feature gate"),
    ],
)  # fmt: skip
def test_gate_the_controller_refuses_as_well(text: str, line: str) -> None:
    with pytest.raises(Invalid) as error:
        accept_controller(parse(ControllerConfig, text).config)
    assert str(error.value).startswith(line)


def test_gate_the_statuses_are_what_featuregates_answers() -> None:
    row = msgspec.json.encode(statuses(resolve("controller", {}))[0])
    assert (
        row
        == b'{"component":"controller","name":"AdminNetworkPolicy","status":"Disabled","version":"DEPRECATED"}'
    )


def test_all_keys_that_must_change_are_named_at_once() -> None:
    text = "{tunnelType: stt, noSNAT: true, multicast: {enable: true}}"
    with pytest.raises(Invalid) as error:
        accept_agent(parse(AgentConfig, text).config)
    assert str(error.value) == (
        "noSNAT: true requires trafficEncapMode noEncap (networkPolicyOnly implies it);"
        " tunnelType: stt is a protocol that neither Open vSwitch nor Linux has any more: set geneve or vxlan;"
        " multicast.enable: multicast is not built yet, so it cannot be enabled"
    )


def test_gate_of_nftables_is_accepted_and_on_whatever_is_set() -> None:
    for text in ("", "{featureGates: {NFTablesHostNetworkMode: true}, hostNetworkMode: nftables}"):
        gates = accept_agent(parse(AgentConfig, text).config)
        assert ("NFTablesHostNetworkMode" in gates, gates.notes) == (True, ())
    gates = accept_agent(parse(AgentConfig, "featureGates: {NFTablesHostNetworkMode: false}").config)
    assert ("NFTablesHostNetworkMode" in gates, gates.notes) == (
        True,
        ("featureGates.NFTablesHostNetworkMode: false has no effect: rules in the host's network are always those of nftables",),
    )  # fmt: skip


NEEDING = [(gate.name, gate.needs) for gate in GATES if gate.needs]


@pytest.mark.parametrize(("name", "needs"), NEEDING)
def test_gate_that_needs_another_one_says_so_while_that_is_off(name: str, needs: str) -> None:
    asked = f"{name}: true, {needs}: "
    on = accept_agent(parse(AgentConfig, f"featureGates: {{{asked}true}}").config)
    assert on.notes == ()
    off = accept_agent(parse(AgentConfig, f"featureGates: {{{asked}false}}").config)
    assert off.notes == (
        f"featureGates.{name}: true has no effect: it needs featureGates.{needs}, which is off",
    )


def test_gate_that_a_key_needs_is_named_while_it_is_off() -> None:
    text = (
        "{flowExporter: {enable: true}, nodePortLocal: {enable: true}, featureGates: {NodePortLocal: false}}"
    )
    assert accept_agent(parse(AgentConfig, text).config).notes == (
        "flowExporter.enable: true has no effect: it needs featureGates.FlowExporter, which is off",
        "nodePortLocal.enable: true has no effect: it needs featureGates.NodePortLocal, which is off",
    )


def test_gate_of_both_programs_that_is_on_in_one_is_named() -> None:
    agent, controller = resolve("agent", {"L7NetworkPolicy": True}), resolve("controller", {"Egress": False})
    assert list(one_sided(controller, agent)) == [
        "featureGates.Egress: is on in antrea-agent.conf and off in antrea-controller.conf; the feature needs both",
        "featureGates.L7NetworkPolicy: is on in antrea-agent.conf and off in antrea-controller.conf; the feature needs both",
    ]
    assert list(one_sided(resolve("controller", {}), resolve("agent", {}))) == []


@pytest.mark.parametrize("kind", [AgentConfig, ControllerConfig])
@pytest.mark.parametrize("name", [gate.name for gate in GATES])
def test_gate_at_another_level_is_said_to_belong_under_feature_gates(
    kind: type[AgentConfig | ControllerConfig], name: str
) -> None:
    for text in (f"{name}: true", f"clientConnection: {{{name}: false}}"):
        (key,) = parse(kind, text).unknown
        assert key.sentence == f"unknown key {key.path} is ignored: {name} belongs under featureGates"
    misspelt = name[:3] + name[4:]
    (key,) = parse(kind, f"{misspelt}: true").unknown
    assert key.nearest == f"featureGates.{name}"


@pytest.mark.parametrize("name", [gate.name for gate in GATES])
def test_gate_in_the_spelling_of_a_key_is_said_to_be_a_gate(name: str) -> None:
    lower = name[0].lower() + name[1:]
    if lower in known_paths(AgentConfig):
        with pytest.raises(Invalid, match=rf"the feature gate is featureGates\.{name}$"):
            parse(AgentConfig, f"{lower}: true")
    else:
        (key,) = parse(AgentConfig, f"{lower}: true").unknown
        assert key.nearest == f"featureGates.{name}"


def test_gate_names_do_not_hide_keys_of_sections() -> None:
    (key,) = parse(AgentConfig, "Egress: {exceptCIDRs: []}").unknown
    assert key.nearest == "egress"
