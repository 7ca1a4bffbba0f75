"""What policies may say: one row per rule, with the whole message."""

from __future__ import annotations

from typing import Any

import pytest
from admission_world import OK, World, named

from antrea.features.network_policy.tier import DEFAULT_NAMES, TierRow

LABEL = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
NAME_FORM = (
    f"name part {LABEL} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is"
    " '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE_FORM = (
    f"a valid label must be an empty string or consist of{LABEL.removeprefix('must consist of')} (e.g. 'MyValue',"
    "  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
IN_TWO = {"key": "a", "operator": "In", "values": ["b,c"]}
WEB = {"podSelector": {"matchLabels": {"app": "web"}}}
SERVICE = {"service": {"name": "s", "namespace": "n"}}
ALL: dict[str, Any] = {"podSelector": {}}
MULTICAST = {"ipBlock": {"cidr": "239.1.1.0/24"}}
UNICAST = {"ipBlock": {"cidr": "10.0.0.0/8"}}
BOTH_PLACES = "appliedTo should not be set in both spec and rules"
NO_PLACE = "appliedTo needs to be set in either spec or rules"
ONLY_BLOCKS = "a rule/policy that is applied to Services can only use ipBlock to select workloads"
IGMP_ALONE = "protocol IGMP can not be used with other protocols or other properties like from, to"
IGMP = {"igmp": {"igmpType": 17}}


def spec(
    ingress: list[dict[str, Any]] | None = None,
    egress: list[dict[str, Any]] | None = None,
    applied_to: Any = (WEB,),
    **more: Any,
) -> dict[str, Any]:
    """A policy spec whose rules have an action and a name each."""

    def rules(given: list[dict[str, Any]] | None, direction: str) -> list[dict[str, Any]]:
        return [{"action": "Drop", "name": f"{direction}{i}", **rule} for i, rule in enumerate(given or ())]

    return {
        "priority": 1,
        "appliedTo": list(applied_to),
        "ingress": rules(ingress, "in"),
        "egress": rules(egress, "out"),
        **more,
    }


def ports(**port: Any) -> dict[str, Any]:
    return spec([{"ports": [port]}])


RULES: dict[str, tuple[dict[str, Any], str]] = {
    "the tier application": (spec(tier="application"), OK),
    "a tier's old name": (spec(tier="SecurityOps"), OK),
    "no tier": (spec([{}]), OK),
    "a tier that is not there": (spec(tier="gold"), "spec.tier: tier gold does not exist"),
    "pass in the baseline": (
        spec([{}, {"action": "Pass"}], tier="Baseline"),
        "spec.ingress[1].action: `Pass` action should not be set for Baseline Tier policy rules",
    ),
    "pass above the baseline": (spec([{"action": "Pass"}], tier="application"), OK),
    "a port above all": (
        ports(port=65536),
        "spec.ingress[0].ports[0].port: 65536 is not a port: it must be 1 to 65535",
    ),
    "a port below all": (ports(port=-1), "spec.ingress[0].ports[0].port: -1 is not a port: it must be 1 to 65535"),
    "a range that ends above all": (
        ports(port=80, endPort=70000),
        "spec.ingress[0].ports[0].endPort: 70000 is not a port: it must be 1 to 65535",
    ),
    "a source port above all": (
        ports(sourcePort=65536),
        "spec.ingress[0].ports[0].sourcePort: 65536 is not a port: it must be 1 to 65535",
    ),
    "port 0": (ports(port=0), f"{OK}; spec.ingress[0].ports[0].port: 0 means every port"),
    "a number in quotes": (
        ports(port="80"),
        f"{OK}; spec.ingress[0].ports[0].port: '80' is the name of a port; its number is written without quotes",
    ),
    "a name that no port has": (
        ports(port="http s"),
        f"{OK}; spec.ingress[0].ports[0].port: no container's port has the name 'http s', so it matches nothing",
    ),
    "a port's name": (ports(port="http-2"), OK),
    "a selector of no value": (
        spec([{"from": [{"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}]}]),
        (
            f"{OK}; spec.ingress[0].from[0].podSelector.matchExpressions[0].values:"
            " In without values: nothing is selected"
        ),
    ),
    "an expression that reads as a label": (
        spec(applied_to=[{"podSelector": {"matchExpressions": [{"key": "a=b", "operator": "Exists"}]}}]),
        f"spec.appliedTo[0].podSelector.matchExpressions[0]: Invalid label key: 'a=b': {NAME_FORM}",
    ),
    "an expression whose value no label has": (
        spec([{"from": [{"podSelector": {"matchExpressions": [IN_TWO]}}]}]),
        f"spec.ingress[0].from[0].podSelector.matchExpressions[0]: Invalid label value: 'b,c': {VALUE_FORM}",
    ),
    "a name of two lines": (
        spec([{"name": "a\nb c"}]),
        f"{OK}; spec.ingress[0].name: in the audit log it is a\\nb\\x20c",
    ),
    "names used twice": (
        spec([{"name": "a"}], [{}, {"name": "a"}]),
        "spec.egress[1].name: rules names must be unique within the policy",
    ),
    "applied twice": (spec([{"appliedTo": [WEB]}]), f"spec.appliedTo: {BOTH_PLACES}"),
    "applied to nothing": (spec([{}], applied_to=()), f"spec.appliedTo: {NO_PLACE}"),
    "applied by some rules": (
        spec([{"appliedTo": [WEB]}, {}], applied_to=()),
        "spec.ingress[1].appliedTo: appliedTo field should either be set in all rules or in none of them",
    ),
    "applied by all rules": (spec([{"appliedTo": [WEB]}], [{"appliedTo": [WEB]}], applied_to=()), OK),
    "group not alone": (
        spec(applied_to=[{**WEB, "group": "g"}]),
        "spec.appliedTo[0].group: group cannot be set with other peers in appliedTo",
    ),
    "nodes not alone": (
        spec(applied_to=[WEB, {**ALL, "nodeSelector": {}}]),
        "spec.appliedTo[1].nodeSelector: nodeSelector cannot be set with other peers in appliedTo",
    ),
    "account not alone": (
        spec(applied_to=[{**ALL, "serviceAccount": {"name": "a", "namespace": "n"}}]),
        "spec.appliedTo[0].serviceAccount: serviceAccount cannot be set with other peers in appliedTo",
    ),
    "service not alone": (
        spec(applied_to=[{**ALL, **SERVICE}]),
        "spec.appliedTo[0].service: service cannot be set with other peers in appliedTo",
    ),
    "service of a policy with egress": (
        spec(egress=[{}], applied_to=[SERVICE]),
        "spec.appliedTo[0].service: egress rule cannot be applied to Services",
    ),
    "service of an egress rule": (
        spec(egress=[{"appliedTo": [SERVICE]}], applied_to=()),
        "spec.egress[0].appliedTo[0].service: egress rule cannot be applied to Services",
    ),
    "service of an ingress rule": (
        spec([{"appliedTo": [SERVICE]}], applied_to=()),
        OK,
    ),
    "services and others": (
        spec(applied_to=[SERVICE, WEB]),
        "spec.appliedTo: a rule/policy cannot be applied to Services and other peers at the same time",
    ),
    "bad label key": (
        spec(applied_to=[{"podSelector": {"matchLabels": {"a b": "c"}}}]),
        f"spec.appliedTo[0].podSelector.matchLabels: Invalid label key: a b: {NAME_FORM}",
    ),
    "bad label value": (
        spec([{"from": [{"namespaceSelector": {"matchLabels": {"a": "b c"}}}]}]),
        f"spec.ingress[0].from[0].namespaceSelector.matchLabels[a]: Invalid label value: b c: {VALUE_FORM}",
    ),
    "two ways to choose Namespaces": (
        spec([{"from": [{"namespaces": {"match": "Self"}, "namespaceSelector": {}}]}]),
        ("spec.ingress[0].from[0].namespaces: namespaces and namespaceSelector cannot be set at the same time for"
        " a single NetworkPolicyPeer"),
    ),
    "two criteria for Namespaces": (
        spec([{"from": [{"namespaces": {"match": "Self", "sameLabels": ["a"]}}]}]),
        ("spec.ingress[0].from[0].namespaces: only one matching criteria can be specified in a single peer"
        " namespaces field"),
    ),
    "bad key in sameLabels": (
        spec(egress=[{"to": [{"namespaces": {"sameLabels": ["a", "-"]}}]}]),
        "spec.egress[0].to[0].namespaces.sameLabels[1]: Invalid label key in sameLabels rule: -",
    ),
    "a block without CIDR": (
        spec([{"from": [{"ipBlock": {}}]}]),
        "spec.ingress[0].from[0].ipBlock.cidr: field 'cidr' is required in an ipBlock",
    ),
    "no CIDR": (
        spec([{"from": [{"ipBlock": {"cidr": "10.0.0.1"}}]}]),
        "spec.ingress[0].from[0].ipBlock.cidr: invalid CIDR address: 10.0.0.1",
    ),
    "a netmask": (
        spec([{"from": [{"ipBlock": {"cidr": "10.0.0.0/255.0.0.0"}}]}]),
        "spec.ingress[0].from[0].ipBlock.cidr: invalid CIDR address: 10.0.0.0/255.0.0.0",
    ),
    "an exception that is no CIDR": (
        spec([{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/99"]}}]}]),
        "spec.ingress[0].from[0].ipBlock.except[0]: invalid except CIDR value: invalid CIDR address: 10.0.0.0/99",
    ),
    "an exception of everything": (
        spec([{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16", "10.0.0.0/8"]}}]}]),
        ("spec.ingress[0].from[0].ipBlock.except[1]: except CIDR 10.0.0.0/8 is not a strict subset of CIDR"
        " 10.0.0.0/8"),
    ),
    "an exception of another family": (
        spec([{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["fd00::/64"]}}]}]),
        "spec.ingress[0].from[0].ipBlock.except[0]: except CIDR fd00::/64 is not a strict subset of CIDR 10.0.0.0/8",
    ),
    "a group among other peers": (
        spec([{"from": [{**ALL, "group": "g"}]}]),
        "spec.ingress[0].from[0].group: group cannot be set with other peers in rules",
    ),
    "an account among other peers": (
        spec([{"from": [{**ALL, "serviceAccount": {"name": "a", "namespace": "n"}}]}]),
        "spec.ingress[0].from[0].serviceAccount: serviceAccount cannot be set with other peers in rules",
    ),
    "nodes among other peers": (
        spec(egress=[{"to": [{**ALL, "nodeSelector": {}}]}]),
        "spec.egress[0].to[0].nodeSelector: nodeSelector cannot be set with other peers in rules",
    ),
    "services and peers": (
        spec(egress=[{"toServices": [{"name": "s", "namespace": "n"}], "to": [WEB]}]),
        "spec.egress[0].toServices: `toServices` cannot be used with `to`, `ports` or `protocols`",
    ),
    "peers of a policy for services": (
        spec([{"from": [UNICAST, WEB]}], applied_to=[SERVICE]),
        f"spec.ingress[0].from[1]: {ONLY_BLOCKS}",
    ),
    "peers of a rule for services": (
        spec([{"from": [{**UNICAST, **WEB}], "appliedTo": [SERVICE]}], applied_to=()),
        f"spec.ingress[0].from[0]: {ONLY_BLOCKS}",
    ),
    "blocks of a policy for services": (
        spec([{"from": [UNICAST]}], applied_to=[SERVICE]),
        OK,
    ),
    "names of ports of a policy for services": (
        spec([{"from": [UNICAST], "ports": [{"port": "http"}]}], applied_to=[SERVICE]),
        f"{OK}; spec.ingress[0].ports[0].port is a name, and Services give ports of rules none: it matches nothing",
    ),
    "no name": (
        spec(egress=[{"to": [{"fqdn": "*.example.com"}, {"fqdn": "a_b"}]}]),
        "spec.egress[0].to[1].fqdn: invalid characters in egress rule fqdn field: a_b",
    ),
    "a multicast group that passes": (
        spec(egress=[{"to": [MULTICAST], "action": "Pass"}]),
        "spec.egress[0].action: multicast does not support action Pass or Reject",
    ),
    "groups and addresses": (
        spec(egress=[{"to": [MULTICAST, UNICAST]}]),
        "spec.egress[0].to: can not set multicast groupAddress and unicast ip address at the same time",
    ),
    "groups and selectors": (
        spec(egress=[{"to": [{**MULTICAST, **ALL}]}]),
        "spec.egress[0].to: can not set multicast groupAddress and selectors at the same time",
    ),
    "a multicast group": (spec(egress=[{"to": [MULTICAST]}]), OK),
    "IGMP of no group": (
        spec([{"protocols": [{"igmp": {"groupAddress": "10.1.1.1"}}]}]),
        "spec.ingress[0].protocols[0].igmp.groupAddress: groupAddress 10.1.1.1 is not multicast address",
    ),
    "IGMP of no address": (
        spec([{"protocols": [{"igmp": {"groupAddress": "all"}}]}]),
        "spec.ingress[0].protocols[0].igmp.groupAddress: groupAddress <nil> is not multicast address",
    ),
    "IGMP rejected": (
        spec([{"protocols": [IGMP], "action": "Reject"}]),
        "spec.ingress[0].action: protocol IGMP does not support Pass or Reject",
    ),
    "IGMP from somewhere": (
        spec([{"protocols": [IGMP], "from": [WEB]}]),
        f"spec.ingress[0]: {IGMP_ALONE}",
    ),
    "a later rule beside IGMP": (
        spec([{"protocols": [IGMP]}], [{"to": [WEB]}]),
        f"spec.egress[0]: {IGMP_ALONE}",
    ),
    "IGMP alone": (
        spec([{"protocols": [IGMP]}]),
        f"{OK}; spec.ingress[0].protocols[0].igmp is not built yet: it matches nothing",
    ),
    "an end without a port": (
        ports(endPort=2),
        "spec.ingress[0].ports[0].endPort: if `endPort` is specified `port` must be specified",
    ),
    "an end of a name": (
        ports(port="http", endPort=2),
        "spec.ingress[0].ports[0].endPort: if `port` is a string `endPort` cannot be specified",
    ),
    "an end before the port": (
        ports(port=3, endPort=2),
        "spec.ingress[0].ports[0].endPort: `endPort` should be greater than or equal to `port`",
    ),
    "an end without a source port": (
        ports(sourceEndPort=2),
        "spec.ingress[0].ports[0].sourceEndPort: if `sourceEndPort` is specified `sourcePort` must be specified",
    ),
    "an end before the source port": (
        ports(sourcePort=3, sourceEndPort=2),
        "spec.ingress[0].ports[0].sourceEndPort: `sourceEndPort` should be greater than or equal to `sourcePort`",
    ),
    "ranges of ports": (ports(port=2, endPort=2, sourcePort=1, sourceEndPort=9), OK),
    "a label of any length on a Node": (
        spec(
            [{"enableLogging": True, "logLabel": "thirteen-char", "name": "n"}],
            [{"logLabel": "thirteen-char"}],
            applied_to=[{"nodeSelector": {}}],
        ),
        OK,
    ),
}  # fmt: skip
HTTP = {"l7Protocols": [{"http": {"method": "GET"}}], "action": "Allow"}
L7: dict[str, tuple[dict[str, Any], str]] = {
    "not allowed": (
        spec([{**HTTP, "action": "Drop"}]),
        "spec.ingress[0].action: layer 7 protocols only support Allow",
    ),
    "to services": (
        spec(egress=[{**HTTP, "toServices": [{"name": "s", "namespace": "n"}]}]),
        "spec.egress[0].toServices: layer 7 protocols can not be used with toServices",
    ),
    "over UDP": (
        spec([{**HTTP, "ports": [{"port": 80}, {"protocol": "UDP"}]}]),
        "spec.ingress[0].ports[1].protocol: HTTP protocol can only be used when layer 4 protocol is TCP or unset",
    ),
    "over ICMP": (
        spec([{**HTTP, "protocols": [{"icmp": {}}]}]),
        "spec.ingress[0].protocols: HTTP protocol can not be used with protocol IGMP or ICMP",
    ),
    "TLS over UDP": (
        spec([{"action": "Allow", "l7Protocols": [{"tls": {}}], "ports": [{"protocol": "UDP"}]}]),
        OK,
    ),
}
PARTS = spec(
    [],
    [
        {"to": [{"fqdn": "a.b"}]},
        {
            "toServices": [
                {"name": "s", "namespace": "n"},
                {"name": "t", "namespace": "n", "scope": "ClusterSet"},
            ]
        },
    ],
    applied_to=[{"externalEntitySelector": {}}],
)
TIERS = (TierRow("application", 250), TierRow("baseline", 253))


def test_what_is_not_built_is_said_part_by_part_with_what_happens_instead() -> None:
    assert World(*TIERS).decide("/validate/acnp", named(PARTS)).split("; ") == [
        OK,
        "spec.egress[1].toServices[1].scope is not built yet: it matches nothing",
        "spec.egress[1].toServices is not built for ExternalNodes yet: it matches nothing",
    ]


@pytest.mark.parametrize(("given", "said"), RULES.values(), ids=RULES.keys())
def test_a_cluster_policy_gets_this_answer(given: dict[str, Any], said: str) -> None:
    assert World(*TIERS).decide("/validate/acnp", named(given)) == said


@pytest.mark.parametrize(("given", "said"), L7.values(), ids=L7.keys())
def test_application_protocols_get_this_answer(given: dict[str, Any], said: str) -> None:
    assert World(gates=("L7NetworkPolicy",)).decide("/validate/acnp", named(given)) == said


def test_application_protocols_need_their_gate() -> None:
    assert World().decide("/validate/annp", named(spec([HTTP]))) == (
        "spec.ingress[0].l7Protocols: layer 7 protocols can only be used when L7NetworkPolicy is enabled"
    )


def test_an_update_is_checked_like_a_creation() -> None:
    assert World().decide("/validate/annp", named(spec(tier="gold")), named(spec())) == (
        "spec.tier: tier gold does not exist"
    )


def test_a_tier_that_our_watch_has_not_seen_yet_is_looked_up() -> None:
    path = "/apis/crd.antrea.io/v1beta1/tiers/gold"
    world = World(*TIERS, objects={path: named({"priority": 7}, "gold")})
    assert world.decide("/validate/acnp", named(spec(tier="gold"))) == OK
    assert world.decide("/validate/acnp", named(spec(tier="application"))) == OK
    assert world.asked == [path]


@pytest.mark.parametrize("name", sorted(DEFAULT_NAMES))
def test_a_default_tier_may_be_used_before_a_young_controller_has_created_it(name: str) -> None:
    assert World().decide("/validate/acnp", named(spec(tier=name))) == OK


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("60s", OK),
        ("1m30s", OK),
        ("soon", "'soon' is not a duration between 1s and 3600s, such as 60s"),
        ("2h", "'2h' is not a duration between 1s and 3600s, such as 60s"),
        ("", "'' is not a duration between 1s and 3600s, such as 60s"),
    ],
)
def test_the_time_to_confirm_a_policy_is_a_duration(text: str, said: str) -> None:
    found = named(spec())
    found["metadata"]["annotations"] = {"antrea.io/confirm-within": text}
    path = "" if said == OK else "metadata.annotations[antrea.io/confirm-within]: "
    assert World(*TIERS).decide("/validate/annp", found) == f"{path}{said}"
