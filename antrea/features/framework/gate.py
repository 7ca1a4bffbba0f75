"""Feature gates: every gate of upstream with its stage and default, and whether this program has the feature."""

from __future__ import annotations

import difflib
from collections.abc import Container, Iterator, Mapping  # noqa: TC003 (msgspec reads annotations)
from typing import Literal

import msgspec

from antrea.config.gate_name import GATE_NAMES
from antrea.errors import Invalid
from antrea.facts.fact import Fact

Component = Literal["agent", "controller"]
Stage = Literal["ALPHA", "BETA", "GA", "DEPRECATED"]
STAGE_SWITCHES: Mapping[str, Stage] = {"AllAlpha": "ALPHA", "AllBeta": "BETA"}
_BOTH: tuple[Component, ...] = ("agent", "controller")
_AGENT: tuple[Component, ...] = ("agent",)
_CONTROLLER: tuple[Component, ...] = ("controller",)


class Gate(msgspec.Struct, frozen=True):
    """One row of `antctl get featuregates` and of docs/generated/feature-gates.md."""

    name: str
    components: tuple[Component, ...]
    stage: Stage
    default: bool
    """Whether upstream has the feature on when nothing is configured."""
    since: str
    """Upstream's releases by stage, oldest first."""
    purpose: str
    locked: bool = False
    """Whether it may not be set to anything but its default."""
    built: bool = False
    """Whether this program has the feature; a gate that is not built is Disabled, and asking for it is refused."""
    always: str = ""
    """Why the feature is on whatever is set; empty: the gate decides."""
    needs: str = ""
    """The gate without which this one has no effect."""


Gates = str | tuple[str, ...]
"""What turns a feature on: a gate, any of several, or "" for none at all."""


def opened(asked: Gates, on: Container[str]) -> bool:
    """Whether the gates that are `on` leave a feature on that asks for one, for any of several, or for none."""
    return not asked or any(name in on for name in ((asked,) if isinstance(asked, str) else asked))


class EnabledGates(Fact, frozen=True):
    """The gates that are on in this program, after defaults and configuration."""

    component: Component
    names: frozenset[str]
    notes: tuple[str, ...] = ()
    """A sentence for each gate or key that is set and has no such effect."""

    def __contains__(self, name: object) -> bool:
        return name in self.names


class GateStatus(msgspec.Struct, frozen=True):
    """One element of the answer of /featuregates, upstream pkg/apiserver/apis FeatureGateResponse."""

    component: str
    name: str
    status: str
    version: str


# parity: pkg/features/antrea_features.go, and L7FlowExporter, which upstream removed in v2.6 and we keep, in the controller, too
GATES: tuple[Gate, ...] = (
    Gate(
        "AdminNetworkPolicy",
        _CONTROLLER,
        "DEPRECATED",
        False,
        "alpha v1.13, deprecated v2.7",
        "Serve the v1alpha1 AdminNetworkPolicy and BaselineAdminNetworkPolicy; ClusterNetworkPolicy follows it.",
        built=True,
    ),
    Gate("AntreaIPAM", _BOTH, "ALPHA", False, "alpha v1.4", "Give Pods addresses from IPPools."),
    Gate(
        "AntreaNodeConfig",
        _AGENT,
        "BETA",
        True,
        "beta v2.7",
        "Read settings of single Nodes from AntreaNodeConfig.",
    ),
    Gate(
        "AntreaPolicy",
        _BOTH,
        "BETA",
        True,
        "alpha v0.8, beta v1.0",
        "Serve Antrea's own ClusterNetworkPolicy and NetworkPolicy, with tiers and priorities.",
        built=True,
    ),
    Gate(
        "AntreaProxy",
        _AGENT,
        "GA",
        True,
        "alpha v0.8, beta v0.11, GA v1.14",
        "Serve ClusterIPs in OVS.",
        built=True,
    ),
    Gate(
        "BGPPolicy",
        _AGENT,
        "ALPHA",
        False,
        "alpha v2.1",
        "Tell BGP routers where Service, Pod and Egress IPs are.",
    ),
    Gate(
        "CleanupStaleUDPSvcConntrack",
        _AGENT,
        "BETA",
        True,
        "alpha v1.13, beta v2.1",
        "Forget UDP connections to endpoints that are gone.",
        built=True,
        needs="AntreaProxy",
    ),
    Gate(
        "ClusterNetworkPolicy",
        _CONTROLLER,
        "ALPHA",
        False,
        "alpha v2.7",
        "Serve the v1alpha2 ClusterNetworkPolicy of the network-policy-api project.",
        built=True,
    ),
    Gate(
        "Egress",
        _BOTH,
        "BETA",
        True,
        "alpha v1.0, beta v1.6",
        "Choose the source address of Pods that leave the cluster.",
        built=True,
    ),
    Gate(
        "EgressSeparateSubnet",
        _AGENT,
        "BETA",
        True,
        "alpha v1.15, beta v2.3",
        "Let Egress IPs come from another subnet than the Nodes'.",
        built=True,
        needs="Egress",
    ),
    Gate(
        "EgressTrafficShaping",
        _AGENT,
        "ALPHA",
        False,
        "alpha v1.14",
        "Limit the bandwidth of an Egress.",
        built=True,
        needs="Egress",
    ),
    Gate(
        "EndpointSlice",
        _AGENT,
        "GA",
        True,
        "alpha v0.13, beta v1.11, GA v1.14",
        "Read endpoints from EndpointSlices.",
        built=True,
        locked=True,
    ),
    Gate(
        "ExternalNode",
        _AGENT,
        "ALPHA",
        False,
        "alpha v1.8",
        "Run the agent on machines outside the cluster.",
        built=True,
    ),
    Gate("FlowExporter", _AGENT, "ALPHA", False, "alpha v0.9", "Export flow records.", built=True),
    Gate("IPsecCertAuth", _BOTH, "ALPHA", False, "alpha v1.7", "Authenticate IPsec peers by certificate."),
    Gate(
        "L7FlowExporter",
        _BOTH,
        "ALPHA",
        False,
        "alpha v1.15",
        "Add requests of HTTP, TLS and DNS to the flow records (upstream removed it in v2.6).",
        built=True,
        needs="FlowExporter",
    ),
    Gate(
        "L7NetworkPolicy",
        _BOTH,
        "ALPHA",
        False,
        "alpha v1.10",
        "Allow by application protocol.",
        built=True,
        needs="AntreaPolicy",
    ),
    Gate(
        "LoadBalancerModeDSR",
        _AGENT,
        "ALPHA",
        False,
        "alpha v1.13",
        "Let endpoints on other Nodes answer clients directly.",
        built=True,
        needs="AntreaProxy",
    ),
    Gate("Multicast", _BOTH, "BETA", True, "alpha v1.5, beta v1.12", "Forward multicast."),
    Gate("Multicluster", _BOTH, "ALPHA", False, "alpha v1.7", "Connect clusters."),
    Gate(
        "NFTablesHostNetworkMode",
        _AGENT,
        "ALPHA",
        False,
        "alpha v2.5",
        "Use nftables in the host's network.",
        built=True,
        always="rules in the host's network are always those of nftables",
    ),
    Gate(
        "NetworkPolicyStats",
        _BOTH,
        "BETA",
        True,
        "alpha v0.10, beta v1.2",
        "Count traffic by policy and rule.",
        built=True,
    ),
    Gate("NodeIPAM", _CONTROLLER, "BETA", True, "alpha v1.4, beta v1.12", "Give Nodes their Pod CIDRs."),
    Gate(
        "NodeLatencyMonitor",
        _AGENT,
        "ALPHA",
        False,
        "alpha v2.1",
        "Measure round-trip times between Nodes.",
        built=True,
    ),
    Gate(
        "NodeNetworkPolicy",
        _AGENT,
        "ALPHA",
        False,
        "alpha v1.15",
        "Apply policies to Nodes.",
        built=True,
        needs="AntreaPolicy",
    ),
    Gate(
        "NodePortLocal",
        _AGENT,
        "GA",
        True,
        "alpha v0.13, beta v1.4, GA v1.14",
        "Give single Pods a port of their Node (with nodePortLocal.enable).",
        built=True,
    ),
    Gate(
        "PacketCapture",
        _AGENT,
        "ALPHA",
        False,
        "alpha v2.2",
        "Capture packets of a Pod into a file.",
        built=True,
    ),
    Gate(
        "PreferSameTrafficDistribution",
        _AGENT,
        "ALPHA",
        False,
        "alpha v2.5",
        "Honour PreferSameZone and PreferSameNode of Services.",
        built=True,
        needs="AntreaProxy",
    ),
    Gate("SecondaryNetwork", _AGENT, "ALPHA", False, "alpha v1.5", "Give Pods further interfaces."),
    Gate(
        "ServiceExternalIP",
        _BOTH,
        "BETA",
        True,
        "alpha v1.5, beta v2.3",
        "Give LoadBalancer Services external IPs from pools.",
        built=True,
    ),
    Gate(
        "ServiceTrafficDistribution",
        _AGENT,
        "GA",
        True,
        "beta v2.2, GA v2.5",
        "Honour trafficDistribution of Services.",
        locked=True,
        built=True,
    ),
    Gate(
        "SupportBundleCollection",
        _BOTH,
        "ALPHA",
        False,
        "alpha v1.10",
        "Collect logs and state of Nodes into files.",
        built=True,
    ),
    Gate(
        "TopologyAwareHints",
        _AGENT,
        "GA",
        True,
        "alpha v1.8, beta v1.12, GA v2.5",
        "Honour topology hints of endpoints.",
        locked=True,
        built=True,
    ),
    Gate(
        "Traceflow",
        _BOTH,
        "BETA",
        True,
        "alpha v0.8, beta v0.11",
        "Trace a packet through the cluster.",
        built=True,
    ),
    Gate(
        "TrafficControl",
        _AGENT,
        "ALPHA",
        False,
        "alpha v1.7",
        "Mirror or redirect traffic of Pods.",
        built=True,
    ),
)


if {gate.name for gate in GATES} != set(GATE_NAMES):
    raise ValueError(f"GATE_NAMES differ: {sorted({gate.name for gate in GATES} ^ set(GATE_NAMES))}")


def resolve(component: Component, asked: Mapping[str, bool], gates: tuple[Gate, ...] = GATES) -> EnabledGates:
    """The gates that are on, `asked` being featureGates of the configuration file.

    Raises Invalid for a name that is no gate, for a locked gate set against its lock, and for a gate of this
    component that is asked for but not built. A gate of the other component is none of our business: upstream's
    chart writes one map into both files.
    """
    names = {gate.name: gate for gate in gates}
    for name in asked:
        if name not in names and name not in STAGE_SWITCHES:
            near = difflib.get_close_matches(name, [*names, *STAGE_SWITCHES], n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise Invalid(f"featureGates.{name}", f"unrecognized feature gate{hint}")
    on = frozenset(g.name for g in gates if component in g.components and _on(g, asked))
    return EnabledGates(component, on, tuple(_notes(component, asked, on, gates)))


def _notes(
    component: Component, asked: Mapping[str, bool], on: frozenset[str], gates: tuple[Gate, ...]
) -> Iterator[str]:
    """A sentence for each gate that is set in vain."""
    known = {gate.name: gate for gate in gates}
    for name, wanted in sorted(asked.items()):
        gate = known.get(name)
        if gate is None or component not in gate.components:
            continue
        if gate.always and not wanted:
            yield f"featureGates.{name}: false has no effect: {gate.always}"
        if (
            wanted
            and gate.needs in known
            and component in known[gate.needs].components
            and gate.needs not in on
        ):
            yield f"featureGates.{name}: true has no effect: it needs featureGates.{gate.needs}, which is off"


def one_sided(here: EnabledGates, there: EnabledGates, gates: tuple[Gate, ...] = GATES) -> Iterator[str]:
    """A sentence for each gate of both programs that is on in one of them alone."""
    for gate in sorted(gates, key=lambda gate: gate.name):
        holders = [one for one in (here, there) if gate.name in one]
        if set(gate.components) == {here.component, there.component} and len(holders) == 1:
            on = holders[0].component
            off = there.component if on == here.component else here.component
            yield (
                f"featureGates.{gate.name}: is on in antrea-{on}.conf and off in antrea-{off}.conf;"
                " the feature needs both"
            )


def _on(gate: Gate, asked: Mapping[str, bool]) -> bool:
    wanted = asked.get(gate.name)
    if wanted is not None and gate.locked and wanted != gate.default:
        raise Invalid(f"featureGates.{gate.name}", f"is locked to {str(gate.default).lower()}")
    if gate.always:
        return True
    by_stage = any(asked.get(switch) and gate.stage == stage for switch, stage in STAGE_SWITCHES.items())
    if not gate.built:
        if wanted or (by_stage and wanted is None):
            path = (
                gate.name if wanted else next(s for s, stage in STAGE_SWITCHES.items() if stage == gate.stage)
            )
            raise Invalid(
                f"featureGates.{path}", f"the feature {gate.name} is not built yet, so it cannot be enabled"
            )
        return False
    if wanted is not None:
        return wanted
    switched = next(
        (asked[s] for s, stage in STAGE_SWITCHES.items() if stage == gate.stage and s in asked), None
    )
    return gate.default if switched is None or gate.locked else switched


def statuses(enabled: EnabledGates, gates: tuple[Gate, ...] = GATES) -> list[GateStatus]:
    """What /featuregates answers for one component, sorted by byte order of the name."""
    return [
        GateStatus(
            enabled.component, gate.name, "Enabled" if gate.name in enabled else "Disabled", gate.stage
        )
        for gate in sorted(gates, key=lambda gate: gate.name)
        if enabled.component in gate.components
    ]
