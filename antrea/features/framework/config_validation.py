"""Validation of the configuration at start: refuse, in one sentence, what cannot work or is not built yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import ip_interface, ip_network
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.config.agent import MACHINE_TYPE, NODE_TYPE
from antrea.config.shape import seconds
from antrea.errors import Invalid
from antrea.features.framework.gate import GATES, EnabledGates, resolve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.config.agent import AgentConfig
    from antrea.config.controller import ControllerConfig, NodeIPAM
    from antrea.features.framework.gate_row import Gate


MACHINE_GATES = frozenset({"AntreaPolicy", "ExternalNode", "NetworkPolicyStats", "SupportBundleCollection"})
"""Gates that an agent with `nodeType: externalNode` can have."""


GATE_KEYS = "featureGates."
Choices = Mapping[str, tuple[Any, ...]]
"""Values by the path of a key, such as {"trafficEncapMode": ("encap", "noEncap")}."""


class ConfigRule(msgspec.Struct, frozen=True):
    """A combination of values that cannot work. The chart refuses it by the same rule (build/chart_refusal.py)."""

    path: str
    """The key that has to change."""
    why: str
    when: Choices = msgspec.field(default_factory=dict)
    """The rule concerns configurations in which each of these keys has one of its values."""
    unless: Choices = msgspec.field(default_factory=dict)
    """Values that make it work, together with `gate`."""
    gate: str = ""
    """Feature gate that it needs."""
    check: Callable[[Any], bool] | None = None
    """Return whether a configuration is refused, where single values do not decide; not part of the chart without `values`."""
    values: str = ""
    """`check` as a condition on the chart's values."""

    @property
    def reason(self) -> str:
        """The sentence after the key; for a gate that is not built, in place of asking for it, which would be refused, too."""
        return UNBUILT.get(self.gate, self.why)

    def refuses(self, config: msgspec.Struct, gates: EnabledGates) -> bool:
        """Return True if `config` has a combination that cannot work."""
        if self.check:
            return self.check(config)
        if not _has(config, gates, self.when):
            return False
        possible = bool(self.unless or self.gate) and _has(config, gates, self.unless)
        return not (possible and (not self.gate or self.gate in gates))


class UnbuiltKey(msgspec.Struct, frozen=True):
    """A key of which some values ask for a feature that is not built yet."""

    path: str
    what: str
    built: tuple[Any, ...]
    """Values that it can have."""
    when: Choices = msgspec.field(default_factory=dict)
    """Values of other keys for which this is so."""

    def refuses(self, config: msgspec.Struct, gates: EnabledGates) -> bool:
        """Return True if `config` asks for what is not built."""
        return _has(config, gates, self.when) and value_at(config, gates, self.path) not in self.built

    @property
    def reason(self) -> str:
        """The sentence after the key."""
        return f"{self.what} is not built yet, so it cannot be enabled"


def value_at(config: msgspec.Struct, gates: EnabledGates, path: str) -> Any:
    """Return the value of the key at `path`, such as antreaProxy.proxyAll; of featureGates.Egress whether that gate is on."""
    if path.startswith(GATE_KEYS):
        return path.removeprefix(GATE_KEYS) in gates
    at: Any = config
    for name in path.split("."):
        # msgspec.structs.fields evaluates all annotations anew, which took most of the time of a configuration
        at = getattr(at, at.__struct_fields__[at.__struct_encode_fields__.index(name)])
    return at


def _has(config: msgspec.Struct, gates: EnabledGates, choices: Choices) -> bool:
    return all(value_at(config, gates, path) in values for path, values in choices.items())


def accept_agent(config: AgentConfig, *, encap_free_without_proxy: bool = False) -> EnabledGates:
    """Return the gates that are on. Raises Invalid naming the key that must change.

    `encap_free_without_proxy` is env ALLOW_NO_ENCAP_WITHOUT_ANTREA_PROXY: modes without a tunnel are then accepted without
    AntreaProxy, though NetworkPolicies of Services are not enforced in them.
    """
    gates = resolve("agent", config.feature_gates)
    if not config.antrea_proxy.enable:
        gates = msgspec.structs.replace(gates, names=gates.names - {"AntreaProxy"})
    if _needs_proxy(config) and not encap_free_without_proxy:
        raise Invalid("trafficEncapMode", f"{config.traffic_encap_mode} requires AntreaProxy to be enabled")
    if config.node_type == MACHINE_TYPE:
        gates = _on_machine(config, gates)
    _check(config, gates, AGENT_RULES, AGENT_NOT_BUILT)
    return msgspec.structs.replace(gates, notes=(*gates.notes, *_idle_switches(config, gates)))


def _idle_switches(config: AgentConfig, gates: EnabledGates) -> Iterator[str]:
    """Yield a sentence for each key that turns on what its gate keeps off."""
    switches = (
        ("flowExporter.enable", config.flow_exporter.enable, "FlowExporter"),
        ("nodePortLocal.enable", config.node_port_local.enable, "NodePortLocal"),
    )
    for path, is_set, gate in switches:
        if is_set and gate not in gates:
            yield f"{path}: true has no effect: it needs featureGates.{gate}, which is off"


def _on_machine(config: AgentConfig, gates: EnabledGates) -> EnabledGates:
    """Keep the gates that a machine outside the cluster can have; others may be on by default. Raises Invalid if one is set.

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
    """Return the gates that are on. Raises Invalid naming the key that must change."""
    gates = resolve("controller", config.feature_gates)
    _check(config, gates, CONTROLLER_RULES, CONTROLLER_NOT_BUILT)
    return gates


def _check(
    config: Any, gates: EnabledGates, rules: tuple[ConfigRule, ...], not_built: tuple[UnbuiltKey, ...]
) -> None:
    """Raise Invalid naming every key that must change; the first one is its path."""
    wrong: dict[str, str] = {}
    rows: tuple[ConfigRule | UnbuiltKey, ...] = (*rules, *not_built)
    for row in rows:
        if row.refuses(config, gates):
            wrong.setdefault(row.path, row.reason)
    if wrong:
        (path, why), *others = wrong.items()
        raise Invalid(path, "; ".join([why, *(f"{path}: {why}" for path, why in others)]))


UNBUILT = {
    gate.name: f"needs the feature {gate.name}, which is not built yet" for gate in GATES if not gate.built
}
"""The sentence about keys that need a gate which is not built."""


def _needs_proxy(c: AgentConfig) -> bool:
    if c.node_type == MACHINE_TYPE:
        return False
    without = not c.antrea_proxy.enable or c.feature_gates.get("AntreaProxy") is False
    return without and c.traffic_encap_mode != "encap"


def _is_gre_over_ipv6(c: AgentConfig) -> bool:
    cidrs = c.transport_interface_cidrs
    return c.tunnel_type == "gre" and c.has_tunnel and bool(cidrs) and all(":" in cidr for cidr in cidrs)


def _bridges_break(c: AgentConfig) -> bool:
    bridges = c.secondary_network.ovs_bridges
    return len(bridges) > 1 or any(
        not b.bridge_name or b.bridge_name == c.ovs_bridge or len(b.physical_interfaces) > 8 for b in bridges
    )


def _bypass_breaks(c: AgentConfig) -> bool:
    return any(r.protocol in ("tcp", "udp") and not r.port for r in c.external_node.policy_bypass_rules)


ENCRYPTED = ("ipsec", "wireGuard")
GRE_OVER_IPV6 = (
    "gre cannot end at IPv6 addresses, and Nodes have no other ones to end at: set geneve or vxlan"
)
# parity: cmd/antrea-agent/options.go validate, in its order where two would apply
AGENT_RULES: tuple[ConfigRule, ...] = (
    ConfigRule(
        "nodeType",
        "externalNode requires the feature gate ExternalNode",
        when={"nodeType": (MACHINE_TYPE,)},
        gate="ExternalNode",
    ),
    ConfigRule(
        "ipsec.authenticationMode",
        "cert requires the feature gate IPsecCertAuth",
        when={"ipsec.authenticationMode": ("cert",)},
        gate="IPsecCertAuth",
    ),
    ConfigRule(
        "antreaProxy.proxyAll",
        "requires AntreaProxy: set the feature gate AntreaProxy and antreaProxy.enable",
        when={"antreaProxy.proxyAll": (True,)},
        unless={"antreaProxy.enable": (True,)},
        gate="AntreaProxy",
    ),
    ConfigRule(
        "antreaProxy.defaultLoadBalancerMode",
        "dsr requires the feature gate LoadBalancerModeDSR and trafficEncapMode encap or noEncap",
        when={"antreaProxy.defaultLoadBalancerMode": ("dsr",)},
        unless={"trafficEncapMode": ("encap", "noEncap")},
        gate="LoadBalancerModeDSR",
    ),
    ConfigRule(
        "trafficEncryptionMode",
        "encryption requires trafficEncapMode encap",
        when={"trafficEncryptionMode": ENCRYPTED},
        unless={"trafficEncapMode": ("encap",)},
    ),
    ConfigRule(
        "noSNAT",
        "true requires trafficEncapMode noEncap (networkPolicyOnly implies it)",
        when={"noSNAT": (True,)},
        unless={"trafficEncapMode": ("noEncap", "networkPolicyOnly")},
    ),
    ConfigRule(
        "tunnelType",
        "stt is a protocol that neither Open vSwitch nor Linux has any more: set geneve or vxlan",
        when={"tunnelType": ("stt",)},
    ),
    ConfigRule(
        "tunnelType",
        GRE_OVER_IPV6,
        check=_is_gre_over_ipv6,
        values='and (eq .Values.tunnelType "gre") (ne (toString .Values.trafficEncapMode) "noEncap") .Values.transportInterfaceCIDRs (not (contains "." (join "," .Values.transportInterfaceCIDRs)))',
    ),
    ConfigRule(
        "flowExporter.flowPollInterval",
        "must be at least 1s",
        check=lambda c: seconds(c.flow_exporter.flow_poll_interval) < 1,
    ),
    ConfigRule(
        "flowPollInterval",
        "must be at least 1s",
        check=lambda c: bool(c.flow_poll_interval) and seconds(c.flow_poll_interval) < 1,
    ),
    ConfigRule(
        "networkPolicyStatsInterval",
        "must be at least 1s",
        check=lambda c: seconds(c.network_policy_stats_interval) < 1,
    ),
    ConfigRule(
        "multicast.enable",
        "multicast works neither with encryption nor with trafficEncapMode networkPolicyOnly",
        when={"multicast.enable": (True,)},
        unless={"trafficEncryptionMode": ("none",), "trafficEncapMode": ("encap", "noEncap", "hybrid")},
    ),
    ConfigRule(
        "multicluster.enableStretchedNetworkPolicy",
        "requires multicluster.enableGateway",
        when={"multicluster.enableStretchedNetworkPolicy": (True,)},
        unless={"multicluster.enableGateway": (True,)},
    ),
    ConfigRule(
        "multicluster.trafficEncryptionMode",
        "wireGuard between clusters cannot be combined with encryption between Nodes",
        when={"multicluster.trafficEncryptionMode": ("wireGuard",), "trafficEncryptionMode": ENCRYPTED},
    ),
    ConfigRule(
        "multicluster.enableGateway",
        "a gateway cannot be combined with trafficEncryptionMode wireGuard",
        when={"multicluster.enableGateway": (True,), "trafficEncryptionMode": ("wireGuard",)},
    ),
    ConfigRule(
        "enableBridgingMode",
        "requires the feature gate AntreaIPAM, trafficEncapMode noEncap and noSNAT true",
        when={"enableBridgingMode": (True,)},
        unless={"trafficEncapMode": ("noEncap",), "noSNAT": (True,)},
        gate="AntreaIPAM",
    ),
    ConfigRule(
        "externalNode.policyBypassRules",
        "a rule for tcp or udp must name a port",
        check=_bypass_breaks,
    ),
    ConfigRule(
        "secondaryNetwork.ovsBridges",
        "at most one bridge, with a name that is not ovsBridge and at most eight physicalInterfaces",
        check=_bridges_break,
    ),
)


OFF = (False,)
AGENT_NOT_BUILT: tuple[UnbuiltKey, ...] = (
    UnbuiltKey(
        "trafficEncapMode",
        "mode networkPolicyOnly",
        ("encap", "noEncap", "hybrid"),
        {"nodeType": (NODE_TYPE,)},
    ),
    UnbuiltKey("trafficEncryptionMode", "encryption between Nodes", ("none",)),
    UnbuiltKey("multicast.enable", "multicast", OFF),
    UnbuiltKey("multicluster.enableGateway", "multi-cluster traffic", OFF),
    UnbuiltKey("multicluster.enablePodToPodConnectivity", "multi-cluster traffic", OFF),
    UnbuiltKey("multicluster.trafficEncryptionMode", "multi-cluster traffic", ("none",)),
    UnbuiltKey("secondaryNetwork.ovsBridges", "a secondary network", ((),)),
)


def _needs_gate(gate: Gate) -> ConfigRule:
    """Make the rule for a gate that is refused without another one."""
    return ConfigRule(
        f"featureGates.{gate.name}",
        f"requires the feature gate {gate.requires}",
        when={f"featureGates.{gate.name}": (True,)},
        gate=gate.requires,
    )


MAX_NODE_BITS = 16
"""Bits of an IPv6 cluster CIDR that number Nodes, at most. parity: cmd/antrea-controller/options.go"""


def _is_network(cidr: str) -> bool:
    return ip_interface(cidr).ip == ip_network(cidr, strict=False).network_address


def _is_too_wide(config: NodeIPAM, size: int, *, ipv6: bool) -> bool:
    networks = [ip_network(cidr, strict=False) for cidr in config.cluster_cidrs if (":" in cidr) == ipv6]
    return config.enable_node_ipam and any(
        size < network.prefixlen or (ipv6 and size - network.prefixlen > MAX_NODE_BITS)
        for network in networks
    )


def _is_full(config: NodeIPAM, service_cidr: str, *, ipv6: bool) -> bool:
    if not config.enable_node_ipam or not service_cidr:
        return False
    services = ip_network(service_cidr, strict=False)
    networks = [ip_network(cidr, strict=False) for cidr in config.cluster_cidrs if (":" in cidr) == ipv6]
    return (services.version == 6) != ipv6 or any(
        services.prefixlen <= network.prefixlen and services.overlaps(network) for network in networks
    )


_NOT_ONE_PER_FAMILY = (
    "and .Values.nodeIPAM.enable (or (not .Values.nodeIPAM.clusterCIDRs) (gt (len .Values.nodeIPAM.clusterCIDRs) 2) "
    "(and (eq (len .Values.nodeIPAM.clusterCIDRs) 2) "
    '(eq (contains ":" (first .Values.nodeIPAM.clusterCIDRs)) (contains ":" (last .Values.nodeIPAM.clusterCIDRs)))))'
)
CONTROLLER_RULES: tuple[ConfigRule, ...] = (
    ConfigRule(
        "nodeIPAM.clusterCIDRs",
        "must hold one or two CIDRs, at most one per family, when enableNodeIPAM is true",
        check=lambda c: c.node_ipam.enable_node_ipam and not _one_per_family(c.node_ipam.cluster_cidrs),
        values=_NOT_ONE_PER_FAMILY,
    ),
    ConfigRule(
        "nodeIPAM.clusterCIDRs",
        "must hold a network address, such as 10.10.0.0/16, and not that of a host",
        check=lambda c: c.node_ipam.enable_node_ipam and not all(map(_is_network, c.node_ipam.cluster_cidrs)),
    ),
    ConfigRule(
        "nodeIPAM.nodeCIDRMaskSizeIPv4",
        "must not be smaller than the prefix length of the IPv4 range in clusterCIDRs",
        check=lambda c: _is_too_wide(c.node_ipam, c.node_ipam.node_cidr_mask_size_ipv4, ipv6=False),
    ),
    ConfigRule(
        "nodeIPAM.nodeCIDRMaskSizeIPv6",
        "must not be smaller than the prefix length of the IPv6 range in clusterCIDRs, and not larger by more than 16",
        check=lambda c: _is_too_wide(c.node_ipam, c.node_ipam.node_cidr_mask_size_ipv6, ipv6=True),
    ),
    ConfigRule(
        "nodeIPAM.serviceCIDR",
        "must be an IPv4 range that leaves room in clusterCIDRs",
        check=lambda c: _is_full(c.node_ipam, c.node_ipam.service_cidr, ipv6=False),
    ),
    ConfigRule(
        "nodeIPAM.serviceCIDRv6",
        "must be an IPv6 range that leaves room in clusterCIDRs",
        check=lambda c: _is_full(c.node_ipam, c.node_ipam.service_cidr_v6, ipv6=True),
    ),
    *(_needs_gate(gate) for gate in GATES if gate.requires and "controller" in gate.components),
)

CONTROLLER_NOT_BUILT: tuple[UnbuiltKey, ...] = (
    UnbuiltKey("clientCAFile", "authentication by client certificate", ("",)),
    UnbuiltKey("multicluster.enableStretchedNetworkPolicy", "NetworkPolicy across clusters", OFF),
)


def _one_per_family(cidrs: tuple[str, ...]) -> bool:
    families = [":" in cidr for cidr in cidrs]
    return 1 <= len(families) <= 2 and len(set(families)) == len(families)
