"""Refuses, at start and in one sentence, configurations that cannot work or that ask for what is not built yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.config.shape import seconds
from antrea.errors import Invalid
from antrea.features.framework.gate import GATES, EnabledGates, resolve

if TYPE_CHECKING:
    from antrea.config.agent import AgentConfig
    from antrea.config.controller import ControllerConfig


MACHINE_GATES = frozenset({"AntreaPolicy", "ExternalNode", "NetworkPolicyStats", "SupportBundleCollection"})
"""Those that an agent with `nodeType: externalNode` can have."""


class ConfigRule(msgspec.Struct, frozen=True):
    """A combination that cannot work: `broken` of a configuration and its gates returns whether it is there."""

    path: str
    why: str
    broken: Callable[[Any, EnabledGates], bool]
    gate: str = ""
    """What it asks for, with which it could work."""


class UnbuiltKey(msgspec.Struct, frozen=True):
    """A key whose value asks for a feature that is not built yet; `asked` of a configuration returns whether it does."""

    path: str
    what: str
    asked: Callable[[Any], bool]


def accept_agent(config: AgentConfig, *, encap_free_without_proxy: bool = False) -> EnabledGates:
    """The gates that are on. Raises Invalid naming the key that must change.

    `encap_free_without_proxy` is env ALLOW_NO_ENCAP_WITHOUT_ANTREA_PROXY: modes without a tunnel are then taken
    without AntreaProxy, though NetworkPolicies of Services no longer hold in them.
    """
    gates = resolve("agent", config.feature_gates)
    if not config.antrea_proxy.enable:
        gates = msgspec.structs.replace(gates, names=gates.names - {"AntreaProxy"})
    if _needs_proxy(config) and not encap_free_without_proxy:
        raise Invalid("trafficEncapMode", f"{config.traffic_encap_mode} requires AntreaProxy to be enabled")
    if config.node_type == "externalNode":
        gates = _on_machine(config, gates)
    _check(config, gates, AGENT_RULES, AGENT_NOT_BUILT)
    return gates


def _on_machine(config: AgentConfig, gates: EnabledGates) -> EnabledGates:
    """Those that a machine outside the cluster can have; one of the others may be on by default alone. Raises Invalid.

    # parity: cmd/antrea-agent/options.go resetVMDefaultFeatures, validateExternalNodeOptions
    """
    for name, wanted in config.feature_gates.items():
        if wanted and name in gates and name not in MACHINE_GATES:
            raise Invalid(f"featureGates.{name}", "is not supported with nodeType externalNode")
    if config.traffic_encap_mode not in ("noEncap", type(config)().traffic_encap_mode):
        raise Invalid("trafficEncapMode", "must be noEncap, or not be set, with nodeType externalNode")
    if config.node_port_local.enable:
        raise Invalid("nodePortLocal.enable", "is not supported with nodeType externalNode")
    return msgspec.structs.replace(gates, names=gates.names & MACHINE_GATES)


def accept_controller(config: ControllerConfig) -> EnabledGates:
    """The gates that are on. Raises Invalid naming the key that must change."""
    gates = resolve("controller", config.feature_gates)
    _check(config, gates, CONTROLLER_RULES, CONTROLLER_NOT_BUILT)
    return gates


def _check(
    config: Any, gates: EnabledGates, rules: tuple[ConfigRule, ...], not_built: tuple[UnbuiltKey, ...]
) -> None:
    for rule in rules:
        if rule.broken(config, gates):
            raise Invalid(rule.path, UNBUILT.get(rule.gate, rule.why))
    for row in not_built:
        if row.asked(config):
            raise Invalid(row.path, f"{row.what} is not built yet, so it cannot be enabled")


UNBUILT = {
    gate.name: f"needs the feature {gate.name}, which is not built yet" for gate in GATES if not gate.built
}
"""The sentence about keys that need one, in place of asking for its gate, which would be refused, too."""


def _needs_proxy(c: AgentConfig) -> bool:
    if c.node_type == "externalNode":
        return False
    without = not c.antrea_proxy.enable or c.feature_gates.get("AntreaProxy") is False
    return without and c.traffic_encap_mode != "encap"


def _bridging_breaks(c: AgentConfig, gates: EnabledGates) -> bool:
    possible = "AntreaIPAM" in gates and c.traffic_encap_mode == "noEncap" and c.no_snat
    return c.enable_bridging_mode and not possible


def _dsr_breaks(c: AgentConfig, gates: EnabledGates) -> bool:
    possible = "LoadBalancerModeDSR" in gates and c.traffic_encap_mode in ("encap", "noEncap")
    return c.antrea_proxy.default_load_balancer_mode == "dsr" and not possible


def _bridges_break(c: AgentConfig, _: EnabledGates) -> bool:
    bridges = c.secondary_network.ovs_bridges
    return len(bridges) > 1 or any(
        not b.bridge_name or b.bridge_name == c.ovs_bridge or len(b.physical_interfaces) > 8 for b in bridges
    )


def _bypass_breaks(c: AgentConfig, _: EnabledGates) -> bool:
    return any(r.protocol in ("tcp", "udp") and not r.port for r in c.external_node.policy_bypass_rules)


# parity: cmd/antrea-agent/options.go validate, in its order where two would apply
AGENT_RULES: tuple[ConfigRule, ...] = (
    ConfigRule(
        "nodeType",
        "externalNode requires the feature gate ExternalNode",
        lambda c, gates: c.node_type == "externalNode" and "ExternalNode" not in gates,
        "ExternalNode",
    ),
    ConfigRule(
        "ipsec.authenticationMode",
        "cert requires the feature gate IPsecCertAuth",
        lambda c, gates: c.ipsec.authentication_mode == "cert" and "IPsecCertAuth" not in gates,
        "IPsecCertAuth",
    ),
    ConfigRule(
        "antreaProxy.proxyAll",
        "requires AntreaProxy: set the feature gate AntreaProxy and antreaProxy.enable",
        lambda c, gates: c.antrea_proxy.proxy_all and "AntreaProxy" not in gates,
    ),
    ConfigRule(
        "antreaProxy.defaultLoadBalancerMode",
        "dsr requires the feature gate LoadBalancerModeDSR and trafficEncapMode encap or noEncap",
        _dsr_breaks,
        "LoadBalancerModeDSR",
    ),
    ConfigRule(
        "trafficEncryptionMode",
        "encryption requires trafficEncapMode encap",
        lambda c, _: c.traffic_encryption_mode != "none" and c.traffic_encap_mode != "encap",
    ),
    ConfigRule(
        "noSNAT",
        "true requires trafficEncapMode noEncap (networkPolicyOnly implies it)",
        lambda c, _: c.no_snat and c.traffic_encap_mode not in ("noEncap", "networkPolicyOnly"),
    ),
    ConfigRule(
        "flowExporter.flowPollInterval",
        "must be at least 1s",
        lambda c, _: seconds(c.flow_exporter.flow_poll_interval) < 1,
    ),
    ConfigRule(
        "flowPollInterval",
        "must be at least 1s",
        lambda c, _: bool(c.flow_poll_interval) and seconds(c.flow_poll_interval) < 1,
    ),
    ConfigRule(
        "networkPolicyStatsInterval",
        "must be at least 1s",
        lambda c, _: seconds(c.network_policy_stats_interval) < 1,
    ),
    ConfigRule(
        "multicast.enable",
        "multicast works neither with encryption nor with trafficEncapMode networkPolicyOnly",
        lambda c, _: (
            c.multicast.enable
            and (c.traffic_encryption_mode != "none" or c.traffic_encap_mode == "networkPolicyOnly")
        ),
    ),
    ConfigRule(
        "multicluster.enableStretchedNetworkPolicy",
        "requires multicluster.enableGateway",
        lambda c, _: c.multicluster.enable_stretched_network_policy and not c.multicluster.enable_gateway,
    ),
    ConfigRule(
        "multicluster.trafficEncryptionMode",
        "wireGuard between clusters cannot be combined with encryption between Nodes",
        lambda c, _: (
            c.multicluster.traffic_encryption_mode == "wireGuard" and c.traffic_encryption_mode != "none"
        ),
    ),
    ConfigRule(
        "multicluster.enableGateway",
        "a gateway cannot be combined with trafficEncryptionMode wireGuard",
        lambda c, _: c.multicluster.enable_gateway and c.traffic_encryption_mode == "wireGuard",
    ),
    ConfigRule(
        "enableBridgingMode",
        "requires the feature gate AntreaIPAM, trafficEncapMode noEncap and noSNAT true",
        _bridging_breaks,
        "AntreaIPAM",
    ),
    ConfigRule(
        "externalNode.policyBypassRules",
        "a rule for tcp or udp must name a port",
        _bypass_breaks,
    ),
    ConfigRule(
        "secondaryNetwork.ovsBridges",
        "at most one bridge, with a name that is not ovsBridge and at most eight physicalInterfaces",
        _bridges_break,
    ),
    ConfigRule(
        "hostNetworkMode",
        "nftables requires the feature gate NFTablesHostNetworkMode",
        lambda c, gates: c.host_network_mode == "nftables" and "NFTablesHostNetworkMode" not in gates,
        "NFTablesHostNetworkMode",
    ),
)


AGENT_NOT_BUILT: tuple[UnbuiltKey, ...] = (
    UnbuiltKey(
        "trafficEncapMode",
        "any mode but encap and noEncap",
        lambda c: c.traffic_encap_mode not in ("encap", "noEncap") and c.node_type == "k8sNode",
    ),
    UnbuiltKey("tunnelType", "any tunnel but geneve", lambda c: c.tunnel_type != "geneve"),
    UnbuiltKey(
        "trafficEncryptionMode",
        "encryption between Nodes",
        lambda c: c.traffic_encryption_mode != "none",
    ),
    UnbuiltKey("multicast.enable", "multicast", lambda c: c.multicast.enable),
    UnbuiltKey(
        "multicluster.enableGateway", "multi-cluster traffic", lambda c: c.multicluster.enable_gateway
    ),
    UnbuiltKey(
        "multicluster.enablePodToPodConnectivity",
        "multi-cluster traffic",
        lambda c: c.multicluster.enable_pod_to_pod_connectivity,
    ),
    UnbuiltKey(
        "multicluster.trafficEncryptionMode",
        "multi-cluster traffic",
        lambda c: c.multicluster.traffic_encryption_mode != "none",
    ),
    UnbuiltKey(
        "secondaryNetwork.ovsBridges",
        "a secondary network",
        lambda c: bool(c.secondary_network.ovs_bridges),
    ),
)


def _needs_antrea_policy(gate: str) -> ConfigRule:
    """Agents enforce policies of these kinds as they do Antrea's own."""
    return ConfigRule(
        f"featureGates.{gate}",
        "requires the feature gate AntreaPolicy",
        lambda _, gates: gate in gates and "AntreaPolicy" not in gates,
    )


CONTROLLER_RULES: tuple[ConfigRule, ...] = (
    ConfigRule(
        "nodeIPAM.clusterCIDRs",
        "must hold one or two CIDRs, at most one per family, when enableNodeIPAM is true",
        lambda c, _: c.node_ipam.enable_node_ipam and not _one_per_family(c.node_ipam.cluster_cidrs),
    ),
    _needs_antrea_policy("ClusterNetworkPolicy"),
    _needs_antrea_policy("AdminNetworkPolicy"),
)

CONTROLLER_NOT_BUILT: tuple[UnbuiltKey, ...] = (
    UnbuiltKey("nodeIPAM.enableNodeIPAM", "Node IPAM", lambda c: c.node_ipam.enable_node_ipam),
    UnbuiltKey("clientCAFile", "authentication by client certificate", lambda c: bool(c.client_ca_file)),
    UnbuiltKey(
        "multicluster.enableStretchedNetworkPolicy",
        "NetworkPolicy across clusters",
        lambda c: c.multicluster.enable_stretched_network_policy,
    ),
)


def _one_per_family(cidrs: tuple[str, ...]) -> bool:
    families = [":" in cidr for cidr in cidrs]
    return 1 <= len(families) <= 2 and len(set(families)) == len(families)
