"""All commands as rows: those that print an answer, those that do more, and those that are not built yet.

A feature declares its commands in module `antctl` of its folder.

Modes: A agent, C controller, F flow-aggregator, R remote. Source: upstream pkg/antctl/antctl.go.
"""

from __future__ import annotations

import json
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from antrea.antctl import shape
from antrea.antctl.failure import Failure
from antrea.antctl.output import listed
from antrea.antctl.request import ErrorResponse, Loopback, ask
from antrea.features import FEATURES
from antrea.features.framework.command import Action, DataCommand, Flag, field
from antrea.features.framework.plug import declared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from antrea.antctl.request import Server


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


def _pods(options: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Option, Namespace and name of both Pods of an evaluation. Raises Failure."""
    for key in ("source", "destination"):
        namespace, slash, name = options.get(key, "").rpartition("/")
        if not name or namespace.count("/"):
            raise Failure(f"--{key} must be given as <Namespace>/<name>")
        yield key, namespace if slash else options.get("namespace", "default"), name


def _missing_pods(server: Server, answer: Any, options: Mapping[str, str]) -> None:
    """Raise Failure if no rule was found because a Pod does not exist; without the right to know nothing is raised."""
    if answer.get("response"):
        return
    is_controller = isinstance(server.access, Loopback)
    for key, namespace, name in _pods(options):
        query = {"namespace": namespace, "pod": name} if is_controller else {}
        path = "/endpoint" if is_controller else f"/api/v1/namespaces/{namespace}/pods/{name}"
        try:
            ask(server, path, query)
        except ErrorResponse as error:
            if error.status == 404:
                raise Failure(f"--{key}: Pod {namespace}/{name} does not exist") from error


def _evaluation(options: Mapping[str, str]) -> dict[str, Any]:
    """The body of a NetworkPolicyEvaluation. Raises Failure."""
    request = {}
    for key, namespace, name in _pods(options):
        request[key] = {"pod": {"namespace": namespace, "name": name}}
    return {
        "apiVersion": "controlplane.antrea.io/v1beta2",
        "kind": "NetworkPolicyEvaluation",
        "request": request,
    }


CONTROLPLANE = "controlplane.antrea.io/v1beta2"
SORT_BY = Flag("sort-by", "", "sort by a field, such as .metadata.name")


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
        shape=shape.controller,
    ),
    DataCommand(
        "get",
        "networkpolicy",
        "CR",
        "Print control plane NetworkPolicies",
        f"{CONTROLPLANE}/networkpolicies",
        ("networkpolicies", "netpol"),
        "Print the policies that the controller computed for the agents.",
        "  antctl get networkpolicy\n"
        "  antctl get networkpolicy 6001549b-ba63-4752-8267-30f52b4332db\n"
        "  antctl get networkpolicy --sort-by=.metadata.name\n"
        "  antctl get networkpolicy --sort-by=effectivePriority",
        "name",
        (Flag("sort-by", "", "sort by a field, such as .sourceRef.name, or by effectivePriority"),),
        (
            ("NAME", lambda row: str(row["metadata"]["name"])),
            ("APPLIED-TO", lambda row: listed(row.get("appliedToGroups") or [])),
            ("RULES", lambda row: str(len(row.get("rules") or []))),
            ("SOURCE", shape.source),
            ("TIER-PRIORITY", shape.number("tierPriority")),
            ("PRIORITY", shape.number("priority")),
        ),
        ordered=False,
        shape=shape.policies,
    ),
    DataCommand(
        "get",
        "appliedtogroup",
        "CR",
        "Print groups that policies apply to",
        f"{CONTROLPLANE}/appliedtogroups",
        ("appliedtogroups", "atg"),
        "Print the groups of Pods that policies apply to.",
        "  antctl get appliedtogroup\n  antctl get appliedtogroup --sort-by=.metadata.name",
        "name",
        (SORT_BY,),
        (("NAME", field("name")), ("PODS", shape.names)),
        shape=shape.groups(("pods",)),
    ),
    DataCommand(
        "get",
        "addressgroup",
        "CR",
        "Print groups of addresses",
        f"{CONTROLPLANE}/addressgroups",
        ("addressgroups", "ag"),
        "Print the groups of addresses that rules match.",
        "  antctl get addressgroup\n  antctl get addressgroup --sort-by=.metadata.name",
        "name",
        (SORT_BY,),
        (
            ("NAME", field("name")),
            ("POD-IPS", shape.addresses("pods")),
            ("NODE-IPS", shape.addresses("nodes")),
        ),
        shape=shape.groups(("pods", "nodes")),
    ),
    DataCommand(
        "query",
        "networkpolicyevaluation",
        "CR",
        "Find the rule between two Pods",
        f"{CONTROLPLANE}/networkpolicyevaluation",
        ("networkpoliciesevaluation", "networkpolicyeval", "networkpolicieseval", "netpoleval"),
        "Find the rule of a NetworkPolicy that decides on traffic from one Pod to another.",
        "  antctl query networkpolicyevaluation -S shop/web-1 -D data/db-1",
        flags=(
            Flag("source", "S", "Pod that sends, as <Namespace>/<name>"),
            Flag("destination", "D", "Pod that receives, as <Namespace>/<name>"),
            Flag("namespace", "n", "Namespace of Pods that are named without one [default: default]"),
        ),
        columns=tuple((title, shape.evaluation(title)) for title in shape.EVALUATION),
        ordered=False,
        doubt=_missing_pods,
        body=_evaluation,
    ),
    DataCommand(
        "query",
        "endpoint",
        "C",
        "Find policies of a Pod",
        "/endpoint",
        ("endpoints",),
        "Find the policies that apply to a Pod, and the rules that have it as a peer.",
        "  antctl query endpoint -p web-1 -n shop",
        flags=(
            Flag("namespace", "n", "Namespace of the Pod [default: default]"),
            Flag("pod", "p", "name of the Pod"),
        ),
        text=shape.endpoints,
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
    Action("", "upgrade", "R", "Sub-commands for upgrade operations", "antrea.antctl.upgrade"),
    *chain.from_iterable(declared(FEATURES, "antctl", Action, "ACTIONS").values()),
)

NOT_BUILT: tuple[NotBuilt, ...] = (
    NotBuilt("", "set", "F", "Set values of the flow aggregator"),
    NotBuilt("", "mc", "R", "Manage multi-cluster"),
    NotBuilt("get", "podmulticaststats", "A", "Print multicast traffic of Pods"),
)
