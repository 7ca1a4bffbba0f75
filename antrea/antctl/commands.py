"""All commands as rows: those that print an answer, those that do more, and those that are not built yet.

A feature declares its commands in module `antctl` of its folder.

Modes: A agent, C controller, F flow-aggregator, R remote. Source: upstream pkg/antctl/antctl.go.
"""

from __future__ import annotations

import json
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from antrea.features import FEATURES
from antrea.features.framework.command import Action, DataCommand, Flag, field, listed
from antrea.features.framework.plug import declared

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class NotBuilt(NamedTuple):
    """A command of upstream that we do not have yet."""

    group: str
    name: str
    modes: str
    short: str
    aliases: tuple[str, ...] = ()


def _container(row: dict[str, Any]) -> str:
    identity = str(row.get("containerID", ""))
    # parity: pkg/agent/apis/types.go getContainerIDStr
    return identity[:11] if len(identity) > 12 else identity


def _health(key: str) -> Callable[[dict[str, Any]], str]:
    def cell(row: dict[str, Any]) -> str:
        states = [condition["status"] for condition in row.get(key, [])]
        if "False" in states:
            return "Unhealthy"
        return "Unknown" if "Unknown" in states else "Healthy" if states else ""

    return cell


def _pod(row: dict[str, Any]) -> str:
    return f"{row['podRef'].get('namespace', '')}/{row['podRef'].get('name', '')}"


def _node(row: dict[str, Any]) -> str:
    return str(row["nodeRef"].get("name", ""))


CONTROLLER_INFO = (
    "version",
    "podRef",
    "nodeRef",
    "serviceRef",
    "networkPolicyControllerInfo",
    "connectedAgentNum",
    "controllerConditions",
)
"""Fields that are printed of an AntreaControllerInfo. parity: pkg/antctl/transform/controllerinfo Response"""


def _controller(answer: Any, _: Mapping[str, str]) -> Any:
    """Return AntreaControllerInfo without what every object has, and without the port of its API."""
    return {key: answer[key] for key in CONTROLLER_INFO if key in answer}


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
            ("NAMESPACE", field("podNamespace")),
            ("NAME", field("name")),
            ("INTERFACE-NAME", field("interfaceName")),
            ("IP", lambda row: ", ".join(row.get("ips", []))),
            ("MAC", field("mac")),
            ("PORT-UUID", field("portUUID")),
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
        columns=(("", field("flow")),),
        ordered=False,
    ),
    DataCommand(
        "get",
        "config",
        "A",
        "Print the configuration in effect",
        "/config",
        long="Print every key of the configuration: its value in effect, who says it, and what waits for a restart.",
        columns=(
            ("KEY", field("key")),
            ("VALUE", lambda row: json.dumps(row["value"])),
            ("ORIGIN", field("origin")),
            ("PENDING-RESTART", field("pending")),
        ),
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
            ("POD", _pod),
            ("NODE", _node),
            ("STATUS", _health("agentConditions")),
            ("NODE-SUBNET", lambda row: listed(row.get("nodeSubnets", []))),
            ("NETWORK-POLICIES", _count("networkPolicyNum")),
            ("ADDRESS-GROUPS", _count("addressGroupNum")),
            ("APPLIED-TO-GROUPS", _count("appliedToGroupNum")),
            ("LOCAL-PODS", lambda row: str(row.get("localPodNum", 0))),
        ),
    ),
    DataCommand(
        "get",
        "controllerinfo",
        "CR",
        "Print basic information on the controller",
        "system.antrea.io/v1beta1/controllerinfos/antrea-controller",
        ("controllerinfos", "ci"),
        "Print version, Pod, Node, conditions and counts of the controller.",
        columns=(
            ("POD", _pod),
            ("NODE", _node),
            ("STATUS", _health("controllerConditions")),
            ("NETWORK-POLICIES", _count("networkPolicyNum")),
            ("ADDRESS-GROUPS", _count("addressGroupNum")),
            ("APPLIED-TO-GROUPS", _count("appliedToGroupNum")),
            ("CONNECTED-AGENTS", lambda row: str(row.get("connectedAgentNum", 0))),
        ),
        shape=_controller,
    ),
    DataCommand(
        "",
        "trace-packet",
        "A",
        "OVS packet tracing",
        "/ovstracing",
        long="Trace the OVS flows that a packet passes, by ofproto/trace of OVS; see ovs-vswitchd(8).",
        example="  antctl trace-packet -S ns1/pod1 -D ns2/pod2\n"
        "  antctl trace-packet -S ns1/pod1 -D ns2/svc2 -f tcp,tcp_dst=80\n"
        "  antctl trace-packet -S ns1/pod1 -D 10.1.2.3 -f udp,udp_dst=1234\n"
        "  antctl trace-packet -S ns1/pod1 -D antrea-gw0\n"
        "  antctl trace-packet -p port1 -S 10.1.2.3 -D ns1/pod1\n"
        "  antctl trace-packet -p ns1/pod1 -f arp",
        flags=(
            Flag("port", "p", "where the packet enters: a port of the bridge or a local <Namespace>/<Pod>"),
            Flag("source", "S", "a <Namespace>/<Pod>, an IP address, or a port of the bridge"),
            Flag(
                "destination", "D", "a <Namespace>/<Pod or Service>, an IP address, or a port of the bridge"
            ),
            Flag("flow", "f", "header of the packet, such as tcp,tcp_dst=80; see ovs-fields(7)"),
            Flag("addressFamily", "F", "4 or 6; by default that of the flow or of an address, else 4"),
        ),
        form="yaml",
        shape=lambda answer, _: str(answer["result"]),
    ),
    DataCommand(
        "",
        "log-level",
        "ACF",
        "Show or set log verbosity level",
        "/loglevel",
        long="Show the log verbosity of the ${component}, or set it to a number from 0 to 10.",
        example="  antctl log-level\n  antctl log-level 4",
        argument="level",
        form="yaml",
    ),
    *chain.from_iterable(declared(FEATURES, "antctl", DataCommand, "COMMANDS").values()),
)

ACTIONS: tuple[Action, ...] = (
    Action(
        "get",
        "flows",
        "FR",
        "Print flow records that the flow aggregator keeps",
        "antrea.antctl.flows",
    ),
    Action(
        "get",
        "flowmap",
        "FR",
        "Print who talks to whom, as the flow aggregator has seen it",
        "antrea.antctl.flow_map",
    ),
    Action(
        "",
        "policy",
        "R",
        "Recommend network policies, and try them on what was seen",
        "antrea.antctl.policy.command",
    ),
    Action(
        "",
        "doctor",
        "AR",
        "Find what is wrong with Antrea, and how to repair it",
        "antrea.antctl.doctor.command",
    ),
    Action("", "status", "R", "Print the state of Antrea on one screen", "antrea.antctl.status"),
    Action(
        "", "explain", "R", "Explain what network policies do with a packet", "antrea.antctl.explain.command"
    ),
    Action("", "check", "R", "Performs pre and post installation checks", "antrea.antctl.check.command"),
    Action(
        "",
        "cleanup",
        "R",
        "Remove what Antrea leaves after it was uninstalled",
        "antrea.antctl.cleanup.command",
    ),
    Action(
        "",
        "kube-proxy",
        "AR",
        "Hand Services over between kube-proxy and AntreaProxy",
        "antrea.antctl.kube_proxy.command",
    ),
    Action("", "proxy", "CR", "Run a reverse proxy to access Antrea API", "antrea.antctl.proxy.command"),
    Action("", "supportbundle", "AC", "Generate support bundle", "antrea.antctl.supportbundle.command"),
    Action("", "supportbundle", "R", "Generate support bundle", "antrea.antctl.supportbundle.remote"),
    Action("", "upgrade", "R", "Sub-commands for upgrade operations", "antrea.antctl.upgrade"),
    *chain.from_iterable(declared(FEATURES, "antctl", Action, "ACTIONS").values()),
)

NOT_BUILT: tuple[NotBuilt, ...] = (
    NotBuilt("", "set", "F", "Set values of the flow aggregator"),
    NotBuilt("", "mc", "R", "Manage multi-cluster"),
    NotBuilt("get", "podmulticaststats", "A", "Print multicast traffic of Pods"),
)
