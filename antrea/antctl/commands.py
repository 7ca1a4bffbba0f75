"""All commands as rows: those that are built, and those that are known and say that they are not built yet.

Modes: A agent, C controller, F flow-aggregator, R remote. Source: upstream pkg/antctl/antctl.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from antrea.antctl.output import Column, listed

if TYPE_CHECKING:
    from collections.abc import Callable


class Flag(NamedTuple):
    """An option of a command; `names` without dashes are the key of the query."""

    key: str
    short: str
    help: str
    is_bool: bool = False


class DataCommand(NamedTuple):
    """Prints what a program answers under `path`; `group` is get, query or empty."""

    group: str
    name: str
    modes: str
    short: str
    path: str
    aliases: tuple[str, ...] = ()
    long: str = ""
    example: str = ""
    argument: str = ""
    """Key of the query that the optional argument becomes."""
    flags: tuple[Flag, ...] = ()
    columns: tuple[Column, ...] = ()
    ordered: bool = True
    """Whether rows of a table are sorted."""
    form: str = "table"
    """Output format if none is asked for."""


class NotBuilt(NamedTuple):
    """A command of upstream that we do not have yet."""

    group: str
    name: str
    modes: str
    short: str
    aliases: tuple[str, ...] = ()


def _text(key: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: str(row.get(key, ""))


def _container(row: dict[str, Any]) -> str:
    identity = str(row.get("containerID", ""))
    # parity: pkg/agent/apis/types.go getContainerIDStr
    return identity[:11] if len(identity) > 12 else identity


def _health(row: dict[str, Any]) -> str:
    states = [condition["status"] for condition in row.get("agentConditions", [])]
    if "False" in states:
        return "Unhealthy"
    return "Unknown" if "Unknown" in states else "Healthy" if states else ""


def _count(key: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: str(row.get("networkPolicyControllerInfo", {}).get(key, 0))


DATA_COMMANDS: tuple[DataCommand, ...] = (
    DataCommand(
        "get",
        "podinterface",
        "A",
        "Print interfaces of local Pods",
        "/podinterfaces",
        ("podinterfaces", "pi"),
        "Print the network interfaces that the agent made for Pods on this Node.",
        "  antctl get podinterface\n  antctl get podinterface web-0 -n shop",
        "name",
        (Flag("namespace", "n", "only of this Namespace"),),
        (
            ("NAMESPACE", _text("podNamespace")),
            ("NAME", _text("name")),
            ("INTERFACE-NAME", _text("interfaceName")),
            ("IP", lambda row: ", ".join(row.get("ips", []))),
            ("MAC", _text("mac")),
            ("PORT-UUID", _text("portUUID")),
            ("OF-PORT", lambda row: str(row.get("ofPort", 0))),
            ("CONTAINER-ID", _container),
        ),
    ),
    DataCommand(
        "get",
        "ovsflows",
        "A",
        "Print OVS flows",
        "/ovsflows",
        ("of",),
        "Print all OVS flows, or those of a Pod or a table, or groups.",
        "  antctl get ovsflows\n"
        "  antctl get ovsflows --table-names-only\n"
        "  antctl get ovsflows -p web-0 -n shop\n"
        "  antctl get ovsflows -T Classifier,10\n"
        "  antctl get ovsflows -G all",
        flags=(
            Flag("namespace", "n", "Namespace of the Pod, Service or NetworkPolicy"),
            Flag("pod", "p", "name of a local Pod; needs a Namespace"),
            Flag("service", "S", "name of a Service; needs a Namespace"),
            Flag("networkpolicy", "N", "name of a NetworkPolicy"),
            Flag("type", "", "type of the NetworkPolicy: K8sNP, ACNP, ANNP, BANP or ANP"),
            Flag("table", "T", "names or numbers of tables, comma-separated"),
            Flag("groups", "G", "ids of groups, comma-separated, or all"),
            Flag("table-names-only", "", "print names of tables, nothing else", True),
        ),
        columns=(("", _text("flow")),),
        ordered=False,
    ),
    DataCommand(
        "get",
        "agentinfo",
        "A",
        "Print basic information on the agent",
        "/agentinfo",
        ("agentinfos", "ai"),
        "Print version, Node, OVS, conditions and counts of the agent.",
        columns=(
            ("POD", lambda row: f"{row['podRef'].get('namespace', '')}/{row['podRef'].get('name', '')}"),
            ("NODE", lambda row: str(row["nodeRef"].get("name", ""))),
            ("STATUS", _health),
            ("NODE-SUBNET", lambda row: listed(row.get("nodeSubnets", []))),
            ("NETWORK-POLICIES", _count("networkPolicyNum")),
            ("ADDRESS-GROUPS", _count("addressGroupNum")),
            ("APPLIED-TO-GROUPS", _count("appliedToGroupNum")),
            ("LOCAL-PODS", lambda row: str(row.get("localPodNum", 0))),
        ),
    ),
    DataCommand(
        "",
        "log-level",
        "AC",
        "Show or set log verbosity level",
        "/loglevel",
        long="Show the log verbosity of the ${component}, or set it to a number from 0 to 10.",
        example="  antctl log-level\n  antctl log-level 4",
        argument="level",
        form="yaml",
    ),
)

NOT_BUILT: tuple[NotBuilt, ...] = (
    NotBuilt("", "trace-packet", "A", "Trace a packet through OVS"),
    NotBuilt("", "traceflow", "ACR", "Trace a packet through the cluster", ("tf", "traceflows")),
    NotBuilt("", "packetcapture", "ACR", "Capture packets of a Pod", ("pc", "packetcaptures")),
    NotBuilt("", "supportbundle", "ACR", "Collect logs and state into files"),
    NotBuilt("", "proxy", "CR", "Reach the Antrea APIs through a local port"),
    NotBuilt("", "set", "F", "Set values of the flow aggregator"),
    NotBuilt("", "upgrade", "R", "Upgrade stored objects"),
    NotBuilt("", "check", "R", "Check the cluster or the installation"),
    NotBuilt("", "mc", "R", "Manage multi-cluster"),
    NotBuilt("get", "networkpolicy", "ACR", "Print NetworkPolicies", ("networkpolicies", "netpol")),
    NotBuilt(
        "get", "appliedtogroup", "ACR", "Print groups that policies apply to", ("appliedtogroups", "atg")
    ),
    NotBuilt("get", "addressgroup", "ACR", "Print groups of addresses", ("addressgroups", "ag")),
    NotBuilt("get", "controllerinfo", "CR", "Print information on the controller", ("controllerinfos", "ci")),
    NotBuilt(
        "get", "serviceexternalip", "A", "Print external IPs of Services", ("serviceexternalips", "seip")
    ),
    NotBuilt("get", "memberlist", "A", "Print Nodes that gossip", ("ml",)),
    NotBuilt("get", "podmulticaststats", "A", "Print multicast traffic of Pods"),
    NotBuilt("get", "bgppolicy", "A", "Print the BGPPolicy in effect"),
    NotBuilt("get", "bgppeers", "A", "Print BGP peers", ("bgppeer",)),
    NotBuilt("get", "bgproutes", "A", "Print BGP routes", ("bgproute",)),
    NotBuilt("get", "fqdncache", "A", "Print addresses of names in policies"),
    NotBuilt("get", "flowrecords", "F", "Print flow records"),
    NotBuilt("get", "recordmetrics", "F", "Print metrics of flow records"),
    NotBuilt("query", "endpoint", "C", "Find policies of a Pod", ("endpoints",)),
    NotBuilt(
        "query",
        "networkpolicyevaluation",
        "CR",
        "Find the rule between two Pods",
        ("networkpoliciesevaluation", "networkpolicyeval", "networkpolicieseval", "netpoleval"),
    ),
)
