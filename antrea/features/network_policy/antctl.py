"""`antctl get networkpolicy`, `appliedtogroup`, `addressgroup` and `fqdncache`, `antctl query networkpolicyevaluation` and `endpoint`.

Source: upstream pkg/antctl/antctl.go, pkg/antctl/transform.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from antrea.errors import Invalid
from antrea.features.framework.command import DataCommand, Flag, PodOption, field, listed, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from antrea.features.framework.command import Row

CONTROLPLANE: Final = "controlplane.antrea.io/v1beta2"
SORT_BY: Final = Flag("sort-by", "", "sort by a field, such as .metadata.name")
KUBERNETES_TIER: Final = 251
"""Where Kubernetes' own NetworkPolicies stand among tiers: between application (250) and baseline (253)."""
ISOLATION: Final = 2**31 - 1
"""Index of the rule that isolates a Pod because some Kubernetes NetworkPolicy selects it."""


def pods_of(options: Mapping[str, str]) -> Iterator[PodOption]:
    """Yield both Pods of an evaluation. Raises Invalid."""
    for key in ("source", "destination"):
        namespace, slash, name = options.get(key, "").rpartition("/")
        if not name or namespace.count("/"):
            raise Invalid("", f"--{key} must be given as <Namespace>/<name>")
        yield PodOption(key, namespace if slash else options.get("namespace", "default"), name)


def evaluation_of(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the body of a NetworkPolicyEvaluation. Raises Invalid."""
    request = {}
    for key, namespace, name in pods_of(options):
        request[key] = {"pod": {"namespace": namespace, "name": name}}
    return {
        "apiVersion": "controlplane.antrea.io/v1beta2",
        "kind": "NetworkPolicyEvaluation",
        "request": request,
    }


def ordered(rows: list[Row], field: str) -> list[Row]:
    """Sort rows by the value at `field`, such as .metadata.name. Raises Invalid where a row has no such value."""
    steps = [step for step in field.strip("{}").split(".") if step]

    def value(row: Row) -> tuple[bool, Any]:
        part: Any = row
        for step in steps:
            if not isinstance(part, dict) or step not in part:
                raise Invalid("", f"couldn't find any field with path {field!r} in the list of objects")
            part = part[step]
        if not isinstance(part, str | int | float):
            raise Invalid("", f"the field {field!r} of --sort-by is neither text nor a number")
        return isinstance(part, str), part

    return sorted(rows, key=value)


def policies(answer: Any, options: Mapping[str, str]) -> Any:
    """Policies by --sort-by: a field, or effectivePriority; one policy as it is."""
    if "items" not in answer:
        return answer
    by = options.get("sort-by") or ".sourceRef.name"
    if by != "effectivePriority":
        return ordered(answer["items"], by)

    def effective(policy: Row) -> tuple[int, float, str]:
        return (
            policy.get("tierPriority", KUBERNETES_TIER),
            policy.get("priority", 0.0),
            policy["metadata"]["name"],
        )

    return sorted(answer["items"], key=effective)


def groups(kinds: Sequence[str]) -> Callable[[Any, Mapping[str, str]], Any]:
    """A shaper of groups whose members are listed by kind: pods, and nodes where `kinds` has them."""

    def one(group: Row) -> Row:
        members: dict[str, list[Row]] = {}
        for member in group.get("groupMembers") or []:
            kind = "nodes" if "node" in member and "nodes" in kinds else "pods"
            members.setdefault(kind, []).append(_member(member))
        return {
            "name": group["metadata"]["name"],
            **{kind: members[kind] for kind in kinds if kind in members},
        }

    def shape(answer: Any, options: Mapping[str, str]) -> Any:
        if "items" not in answer:
            return one(answer)
        return [one(group) for group in ordered(answer["items"], options.get("sort-by") or ".metadata.name")]

    return shape


def _member(member: Row) -> Row:
    """A member with its addresses as one text."""
    addresses = ", ".join(str(_address(ip)) for ip in member.get("ips") or [])
    shown = {key: member[key] for key in ("pod", "externalEntity", "node", "service") if member.get(key)}
    if addresses:
        shown["ip"] = addresses
    return {**shown, **({"ports": member["ports"]} if member.get("ports") else {})}


def _address(encoded: str) -> Any:
    """The address in base64 of its 4 or 16 bytes."""
    from ipaddress import ip_address  # noqa: PLC0415 (start-up time)

    address = ip_address(base64.b64decode(encoded))
    return getattr(address, "ipv4_mapped", None) or address


def names(row: Row) -> str:
    """Members of a group as namespace/name, those without a Namespace by name."""
    members = []
    for member in row.get("pods", []):
        reference: Row = next(
            (member[kind] for kind in ("pod", "externalEntity", "service", "node") if kind in member), {}
        )
        members.append("/".join(reference[key] for key in ("namespace", "name") if reference.get(key)))
    return listed(members)


def addresses(kind: str) -> Callable[[Row], str]:
    """A cell with the addresses of the members of one kind."""
    return lambda row: listed([member.get("ip", "") for member in row.get(kind, [])])


def source(policy: Row) -> str:
    """Type:namespace/name of the policy that a user wrote."""
    reference = policy.get("sourceRef") or {}
    name = "/".join(reference[key] for key in ("namespace", "name") if reference.get(key))
    return f"{reference.get('type', '')}:{name}"


def number(key: str) -> Callable[[Row], str]:
    """A cell with a number without a trailing .0; empty where there is none."""
    return lambda row: f"{row[key]:g}" if key in row else ""


EVALUATION: Final = ("NAME", "NAMESPACE", "POLICY-TYPE", "RULE-INDEX", "DIRECTION", "ACTION")


def decision(title: str) -> Callable[[Row], str]:
    """A cell of the rule that decides."""
    return lambda row: _decision(row)[EVALUATION.index(title)]


def _decision(row: Row) -> tuple[str, ...]:
    response = row.get("response") or {}
    if not response:
        return ("",) * 6
    policy, rule = response.get("networkPolicy", {}), response.get("rule", {})
    index = response.get("ruleIndex", 0)
    action = rule.get("action") or ("Isolate" if index == ISOLATION else "")
    return (
        policy.get("name", ""),
        policy.get("namespace", ""),
        policy.get("type", ""),
        str(index),
        rule.get("direction", ""),
        action,
    )


def endpoints(answer: Any) -> str:
    """The three sections of `antctl query endpoint`, for each endpoint, and two for each of its Services."""
    return "".join(_endpoint(endpoint) for endpoint in answer.get("endpoints") or [])


def _endpoint(endpoint: Row) -> str:
    text = f"Endpoint {endpoint['namespace']}/{endpoint['name']}\n"
    policy_columns = tuple(
        (title, lambda row, key=key: str(row.get(key, "")))
        for title, key in (("Name", "name"), ("Namespace", "namespace"), ("UID", "uid"))
    )
    rule_columns = (
        *((title, lambda rule, cell=cell: cell(rule["policyref"])) for title, cell in policy_columns[:2]),
        ("Index", lambda rule: str(rule.get("ruleindex", 0))),
        ("UID", lambda rule: str(rule["policyref"].get("uid", ""))),
    )
    sections = [
        ("Applied Policies on Endpoint:", endpoint.get("policies"), policy_columns),
        ("Egress Rules Referencing Endpoint as Destination:", endpoint.get("egressdstrules"), rule_columns),
        ("Ingress Rules Referencing Endpoint as Source:", endpoint.get("ingresssrcrules"), rule_columns),
    ]
    for service in endpoint.get("services") or []:
        name = f"Service {service['namespace']}/{service['name']}"
        sections += [
            (f"Applied Policies on NodePorts of {name}:", service.get("policies"), policy_columns),
            (f"Egress Rules Referencing {name} as Destination:", service.get("egressdstrules"), rule_columns),
        ]
    for label, rows, columns in sections:
        text += f"{label}\n{table(rows, columns, ordered=True)}\n" if rows else f"{label} None\n\n"
    return text


OF_CONTROLLER: tuple[DataCommand, ...] = (
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
            ("SOURCE", source),
            ("TIER-PRIORITY", number("tierPriority")),
            ("PRIORITY", number("priority")),
        ),
        ordered=False,
        shape=policies,
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
        (("NAME", field("name")), ("PODS", names)),
        shape=groups(("pods",)),
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
            ("POD-IPS", addresses("pods")),
            ("NODE-IPS", addresses("nodes")),
        ),
        shape=groups(("pods", "nodes")),
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
        columns=tuple((title, decision(title)) for title in EVALUATION),
        ordered=False,
        pods=pods_of,
        body=evaluation_of,
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
        text=endpoints,
    ),
)


def _of_agent(name: str, path: str, long: str, flags: tuple[Flag, ...]) -> DataCommand:
    """Return the controller's command as the agent answers it."""
    row = next(row for row in OF_CONTROLLER if row.name == name)
    return row._replace(modes="A", path=path, long=long, flags=flags)


def _expires(row: dict[str, Any]) -> str:
    """Return 2026-01-02T15:04:05Z as Go prints it."""
    return str(row.get("expirationTime", "")).replace("T", " ").replace("Z", " +0000 UTC")


COMMANDS: tuple[DataCommand, ...] = (
    *OF_CONTROLLER,
    _of_agent(
        "networkpolicy",
        "/networkpolicies",
        "Print the policies that the controller sent to this agent.",
        (
            Flag("source", "S", "only those made of the policy of this name"),
            Flag("namespace", "n", "only those made of policies of this Namespace"),
            Flag("pod", "p", "only those that apply to this local Pod, as <Namespace>/<name>"),
            Flag("type", "T", "only those made of K8sNP, ACNP, ANNP, BANP or ANP"),
            Flag("sort-by", "", "sort by a field, such as .sourceRef.name, or by effectivePriority"),
        ),
    )._replace(
        example="  antctl get networkpolicy\n"
        "  antctl get networkpolicy 6001549b-ba63-4752-8267-30f52b4332db\n"
        "  antctl get networkpolicy -S allow-http -n ns1\n"
        "  antctl get networkpolicy -T acnp\n"
        "  antctl get networkpolicy -p ns1/pod1\n"
        "  antctl get networkpolicy --sort-by=effectivePriority"
    ),
    _of_agent(
        "appliedtogroup",
        "/appliedtogroups",
        "Print the groups of Pods of this Node that policies apply to.",
        (SORT_BY,),
    ),
    _of_agent(
        "addressgroup",
        "/addressgroups",
        "Print the groups of addresses that rules on this Node match.",
        (SORT_BY,),
    ),
    DataCommand(
        "get",
        "fqdncache",
        "A",
        "Print fqdn cache",
        "/fqdncache",
        long="Print the addresses of domain names that rules on this Node match, and until when they hold.",
        example="  antctl get fqdncache\n  antctl get fqdncache -d '*.antrea.io'",
        flags=(Flag("domain", "d", "only of this domain; * stands for any text"),),
        columns=(
            ("FQDN", lambda row: str(row.get("fqdnName", ""))),
            ("ADDRESS", lambda row: str(row.get("ipAddress", ""))),
            ("EXPIRATION TIME", _expires),
        ),
    ),
)
