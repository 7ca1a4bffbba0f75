"""What our answers to recorded commands ($ANTREA_GOLDEN) differ in on purpose, each with its reason.

Both answers are reduced by the rows whose pattern the command has; what is left has to be equal. A row with `ours` expects that
answer of us instead, and one that says so is not asked at all.
"""

from __future__ import annotations

import json
import re
from functools import cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Any, NamedTuple

from recording import answers, inputs

if TYPE_CHECKING:
    from collections.abc import Callable

    from recording import Recording

    Edit = Callable[[Any], Any]

ADDRESS = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.])")
NOT_BUILT = "NetworkPolicyPartNotEnforced"
ISOLATION = 2**31 - 1
"""Index of what is no rule: a policy lets nothing through that its rules do not name."""


class Whatever:
    """Equal to whatever stands there in the other answer."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


class Difference(NamedTuple):
    """Commands by pattern, why answers differ, and what takes the difference out of both, or what we answer (`ours`)."""

    commands: str
    why: str
    edits: tuple[Edit, ...] = ()
    ours: str = ""
    """A pattern of our answer, reason and body."""


def deep(edit: Edit) -> Edit:
    """The same done to each value inside another, innermost first."""

    def edited(value: Any) -> Any:
        if isinstance(value, dict):
            value = {key: edited(one) for key, one in value.items()}
        elif isinstance(value, list):
            value = [edited(one) for one in value]
        return edit(value)

    return edited


def without(*names: str) -> Edit:
    """No fields of these names."""

    def edit(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: one for key, one in value.items() if key not in names}
        return value

    return deep(edit)


def replaced(pattern: str, by: str = "") -> Edit:
    """Other texts."""
    return deep(lambda value: re.sub(pattern, by, value) if isinstance(value, str) else value)


def isolated(value: Any) -> Any:
    """That no rule allows it, whichever policy isolates."""
    whole = isinstance(value, dict) and value.get("ruleIndex") == ISOLATION
    return {"ruleIndex": ISOLATION} if whole else value


def unordered(value: Any) -> Any:
    """Lists sorted that have an order of chance with upstream, each element once."""
    if not isinstance(value, dict):
        return value
    for key in ("ips", "rules", "groupMembers", "policies", "ingresssrcrules"):
        found = value.get(key)
        if not isinstance(found, list) or (key == "rules" and not all("direction" in one for one in found)):
            continue
        texts = {json.dumps(one, sort_keys=True): one for one in found}
        value[key] = [texts[text] for text in sorted(texts)]
    if isinstance(items := value.get("items"), list):
        value["items"] = sorted(items, key=lambda one: json.dumps(one, sort_keys=True))
    return value


def kindless(value: Any) -> Any:
    """Items of a list without the kind that their list has."""
    if isinstance(value, dict) and isinstance(value.get("items"), list):
        value["items"] = [
            {k: v for k, v in one.items() if k not in ("kind", "apiVersion")} for one in value["items"]
        ]
    return value


def ordered_conditions(value: Any) -> Any:
    """A status with its conditions in the order of their types."""
    if isinstance(value, dict) and isinstance(value.get("conditions"), list):
        value["conditions"] = sorted(value["conditions"], key=lambda one: str(one.get("type")))
    return without_empty(value)


def without_allocated(value: Any) -> Any:
    """Conditions but IPAllocated."""
    if isinstance(value, dict) and isinstance(value.get("conditions"), list):
        value["conditions"] = [one for one in value["conditions"] if one.get("type") != "IPAllocated"]
    return value


def without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: one for key, one in value.items() if one not in ({}, [], "")}
    return value


def as_if_held(value: Any) -> Any:
    """A policy with a part that is not built says so; upstream realizes it."""
    if not isinstance(value, dict) or not isinstance(value.get("conditions"), list):
        return value
    if any(one.get("reason") == NOT_BUILT for one in value["conditions"]):
        value["phase"] = Whatever()
        for one in value["conditions"]:
            if one.get("reason") == NOT_BUILT:
                one["status"] = "True"
                del one["reason"], one["message"]
    return value


def computed(value: Any) -> Any:
    """A group of which a child is missing says that its members are not computed; upstream says nothing."""
    if isinstance(value, dict) and isinstance(value.get("conditions"), list):
        kept = [
            c
            for c in value["conditions"]
            if (c.get("type"), c.get("status")) != ("GroupMembersComputed", "False")
        ]
        value["conditions"] = kept
    return without_empty(value)


@cache
def spans_with_router() -> tuple[tuple[str, IPv4Network | IPv6Network], ...]:
    """Names of pools, and those of their ranges that have the router's address."""
    return tuple(
        (pool["metadata"]["name"], span)
        for pool in inputs("ExternalIPPool")
        if (router := pool["spec"].get("subnetInfo", {}).get("gateway"))
        for span in (ip_network(one["cidr"]) for one in pool["spec"]["ipRanges"] if "cidr" in one)
        if ip_address(router) in span
    )


def of_routers(value: Any) -> Any:
    """Addresses of a range that has its router's, which we give to nobody: the next one is given instead."""

    def name(found: re.Match[str]) -> str:
        for pool, span in spans_with_router():
            if ip_address(found[0]) in span:
                return f"one of {pool}"
        return found[0]

    return ADDRESS.sub(name, value) if isinstance(value, str) else value


@cache
def service_pools() -> set[str]:
    """Pools from which upstream gave Services addresses."""
    annotation = "service.antrea.io/external-ip-pool"
    named = {one["metadata"].get("annotations", {}).get(annotation, "") for one in inputs("Service")}
    changed = (word.partition("=") for one in answers("changes") for word in one.words)
    return named | {pool for name, _, pool in changed if name == annotation}


def used_by_services(value: Any) -> Any:
    """How much of such a pool is used."""
    if isinstance(value, str):
        return re.sub(
            r"^(\S+ \d+) \d+", lambda row: row[1] if row[1].split()[0] in service_pools() else row[0], value
        )
    if (
        isinstance(value, dict)
        and value.get("kind") == "ExternalIPPool"
        and value["metadata"]["name"] in service_pools()
    ):
        value["status"]["usage"].pop("used", None)
    return value


def conditions_in_columns(value: Any) -> Any:
    """Columns of conditions: an empty cell is `<none>` or nothing, as the field is empty or absent."""
    if not isinstance(value, str):
        return value
    return " ".join(value.replace("<none>", "").split())


TIMES = replaced(r"(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|TIME)", "TIME")
DIFFERENT = (
    Difference("", "lists that have no order", (deep(unordered),)),
    Difference("", "`realizedGeneration` is a field of ours", (without("realizedGeneration"),)),
    Difference("controllerinfos|version", "our own version", (replaced(r"\bv\d+\.\d+\.\d+\b", "VERSION"),)),
    Difference(
        "controllerinfos",
        "counts are written once a minute, and were recorded at another moment than the lists",
        (without("networkPolicyControllerInfo"), replaced(r"^(\S+ True AGE VERSION.*?) \d+$", r"\1")),
    ),
    Difference(
        r"get egress \S+ -o yaml",
        "a condition that somebody takes out of the list comes back at once, upstream's with the next change",
        (deep(without_allocated),),
    ),
    Difference(
        "networkpolicies", "what is not built is not called realized; the phase tells", (deep(as_if_held),),
    ),
    Difference("-o wide", "a column of ours, of what is audited", (replaced(" AUDITED$"),)),
    Difference("groups", "a child that is missing", (deep(computed),)),
    Difference(
        "egress", "conditions have no order; the router's address is given to nobody",
        (deep(ordered_conditions), deep(conditions_in_columns), deep(of_routers)),
    ),
    Difference("externalippools|get eip", "recorded before or after Services of the pool were given addresses", (deep(used_by_services),)),
    Difference(r"stats|Table|controlplane\S* *(-o wide)?$", "a policy says when it was made, upstream's 0001-01-01", (TIMES,)),
    Difference(r"clustergroupmembers/cg-none|groupmembers(/| -n data )g-none", "it is not found, where upstream's says that something went wrong",
        ours=r"^NotFound: \w+\.controlplane\.antrea\.io \"c?g-none\" not found$"),
    Difference(r"ipgroupassociations[/ ]not-an-ip", "it says which text is no address",
        ours="^BadRequest: IP not-an-ip is not a valid IP address$"),
    Difference("NetworkPolicyEvaluation", "of two policies that isolate the one with the smaller UID is named, which the API server draws", (deep(isolated),)),
    Difference(r"NetworkPolicyEvaluation.*api-1.*cache-1", "upstream takes the rule of a Pod's own Namespace for one about the other's",
        ours=r"'name': 'netops-pass-self'.*'name': 'rest'"),
    Difference(r"NetworkPolicyEvaluation.*host-pod", "a Pod in the network of its Node is in no group",
        ours=r"^: .*'networkPolicy'"),
    Difference("--cert.*(/featuregates|/loglevel|/version)", "of the program that answers", ours=r"^: "),
    Difference(r"/(healthz|livez|readyz)\?verbose", "upstream's checks are those of Go's API machinery",
        ours=r"\[\+\]ping ok.*check passed"),
    Difference(r":10349/$", "upstream's health has a path for each check", ours="/apis/controlplane.antrea.io"),
    Difference("nodelatencystats", "items of a list have a kind with upstream", (deep(kindless),)),
    Difference("patch egress eg-static", "a denial names the field", (replaced(r"(request: )spec\.\w+: ", r"\1"),)),
)  # fmt: skip
NOT_ASKED = {
    "multicastgroups": "multicast is not built: reports of it are not kept",
    r"changes/p[34]\..* get (egresses|eip)": "an address that is freed goes to the next that waits at once, upstream's when it"
    " tries again; tests/parity/test_parity_pools.py",
    "describe": "kubectl's view of objects that are compared",
    "get (events|ns|nodes|pods|svc)|get --raw /apis$|api-resources|crd.antrea.io/|apis/crd.antrea.io": "kubelet's, kube-proxy's and kube-apiserver's own, or recorded in part; CRDs: tests/lab/test_lab_crds.py",
    "traceflows|packetcaptures": "features whose objects are not recorded, or not built; the schema is compared by tests/parity/test_parity_crd.py",
    "get (aai|antreaagentinfos)": "what was written was not recorded; tests/lab/test_lab_info.py",
    "fieldSelector=": "lists obey field selectors that upstream's obeys in watches alone",
    "apis/?.*aggregated|as=APIGroupDiscoveryList": "tests/parity/test_parity_api.py",
}
"""Names of recordings and commands, by pattern, and why they are not replayed."""


def not_asked(one: Recording) -> bool:
    return any(re.search(pattern, f"{one.name} {' '.join(one.words)}") for pattern in NOT_ASKED)


def rows(one: Recording) -> list[Difference]:
    """What its answers may differ in."""
    return [row for row in DIFFERENT if re.search(row.commands, " ".join(one.words))]


def reduced(one: Recording, value: Any) -> Any:
    """A body without the differences."""
    # a copy: edits change what they are given
    value = json.loads(json.dumps(value))
    for row in rows(one):
        for edit in row.edits:
            value = edit(value)
    return value
