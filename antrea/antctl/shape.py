"""Rows that antctl prints from the controller's answers on groups, policies and endpoints.

Source: upstream pkg/antctl/transform.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from antrea.antctl.failure import Failure
from antrea.antctl.output import listed, table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

KUBERNETES_TIER = 251
"""Where Kubernetes' own NetworkPolicies stand among tiers: between application (250) and baseline (253)."""
ISOLATION = 2**31 - 1
"""Index of the rule that isolates a Pod because some Kubernetes NetworkPolicy selects it."""
Row = dict[str, Any]


def ordered(rows: list[Row], field: str) -> list[Row]:
    """Sort rows by the value at `field`, such as .metadata.name. Raises Failure where a row has no such value."""
    steps = [step for step in field.strip("{}").split(".") if step]

    def value(row: Row) -> tuple[bool, Any]:
        part: Any = row
        for step in steps:
            if not isinstance(part, dict) or step not in part:
                raise Failure(f"couldn't find any field with path {field!r} in the list of objects")
            part = part[step]
        if not isinstance(part, str | int | float):
            raise Failure(f"the field {field!r} of --sort-by is neither text nor a number")
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


def controller(answer: Any, _: Mapping[str, str]) -> Any:
    """AntreaControllerInfo without what every object has, and without the port of its API."""
    return {key: answer[key] for key in CONTROLLER_INFO if key in answer}


EVALUATION = ("NAME", "NAMESPACE", "POLICY-TYPE", "RULE-INDEX", "DIRECTION", "ACTION")


def evaluation(title: str) -> Callable[[Row], str]:
    """A cell of the rule that decides."""
    return lambda row: _evaluation(row)[EVALUATION.index(title)]


def _evaluation(row: Row) -> tuple[str, ...]:
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
