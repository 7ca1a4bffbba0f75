"""Whatever comes and goes: agents are told who may be whose peer, as a plain reading has it, and as if told all at once."""

from __future__ import annotations

import ipaddress
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from native_oracle import HOME, Oracle, Who
from native_world import CONVERSIONS, Told, row

from antrea.apis.status import Status
from antrea.features.grouping.publication import Membership, PublishedPolicy


def only(key: str, value: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({key: value})


KEYS, VALUES, SPACES = ("a", "b"), ("1", "2"), (HOME, "s2")
ACCOUNTS, NODES = ("default", "sa"), ("n1", "n2", "")
LABELS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
EXPRESSION = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": sorted(values)},
        st.sampled_from(KEYS), st.sampled_from(("In", "NotIn")), st.sets(st.sampled_from(VALUES), min_size=1),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator},
        st.sampled_from(KEYS), st.sampled_from(("Exists", "DoesNotExist")),
    ),
)  # fmt: skip
SELECTOR: st.SearchStrategy[Any] = st.one_of(
    st.just({}),
    only(
        "matchLabels",
        st.builds(lambda key, value: {key: value}, st.sampled_from(KEYS), st.sampled_from(VALUES)),
    ),
    only("matchExpressions", st.lists(EXPRESSION, min_size=1, max_size=2)),
)


PODS = st.fixed_dictionaries({"podSelector": SELECTOR}, optional={"namespaceSelector": SELECTOR})
SPACED = only("namespaceSelector", SELECTOR)
ENTITIES = st.fixed_dictionaries(
    {"externalEntitySelector": SELECTOR}, optional={"namespaceSelector": SELECTOR}
)
NODED = only("nodeSelector", SELECTOR)
BLOCK = st.builds(lambda cidr: {"cidr": cidr}, st.sampled_from(("192.0.2.0/24", "10.0.0.0/8")))
ACCOUNT = only(
    "serviceAccount",
    st.builds(
        lambda name, space: {"name": name, "namespace": space},
        st.sampled_from(ACCOUNTS),
        st.sampled_from(SPACES),
    ),
)
SERVICE = st.just({"serviceReference": {"name": "svc", "namespace": "s2"}})
GROUPS = ("g1", "g2", "g3")
PARENT = only("childGroups", st.lists(st.sampled_from(GROUPS), min_size=1, max_size=2))
LEAF = st.one_of(PODS, SPACED, ENTITIES, SERVICE, only("ipBlocks", st.lists(BLOCK, min_size=1, max_size=1)))
NAMED = only("group", st.sampled_from(GROUPS))
"""Groups may have each other, or themselves, as children."""
RELATED = st.builds(
    lambda relation, more: {"namespaces": relation, **more},
    st.sampled_from(({"match": "Self"}, {"sameLabels": ["a"]}, {"sameLabels": ["a", "b"]})),
    st.one_of(st.just({}), only("podSelector", SELECTOR)),
)
LOCAL_PEER = st.one_of(PODS, SPACED, ENTITIES, NAMED, only("ipBlock", BLOCK))
PEER = st.one_of(LOCAL_PEER, NODED, ACCOUNT, RELATED, RELATED)
LOCAL_APPLIED = st.one_of(only("podSelector", SELECTOR), NAMED)
APPLIED = st.one_of(PODS, SPACED, NAMED, ACCOUNT, NODED)


def policies(applied: st.SearchStrategy[Any], peer: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Whom they are for is said once, or by each rule."""
    some = st.lists(applied, min_size=1, max_size=2)

    def rules(key: str, own: bool) -> st.SearchStrategy[Any]:
        peers: st.SearchStrategy[Any] = st.lists(peer, min_size=1, max_size=2) | st.just([])
        fields = {"action": st.just("Drop"), key: peers}
        rule = st.fixed_dictionaries({**fields, **({"appliedTo": some} if own else {})})
        return st.lists(rule, min_size=1, max_size=2)

    def spec(own: bool) -> st.SearchStrategy[Any]:
        return st.fixed_dictionaries(
            {
                "priority": st.just(5),
                "appliedTo": st.just([]) if own else some,
                "ingress": rules("from", own),
                "egress": rules("to", own),
            }
        )

    return st.booleans().flatmap(spec)


def spaced(*names: str) -> tuple[str, ...]:
    return tuple(f"{space}/{name}" for space in SPACES for name in names)


POD = st.fixed_dictionaries(
    {
        "labels": LABELS,
        "node": st.sampled_from(NODES),
        "ip": st.sampled_from(("10.0.0.1", "")),
        "account": st.sampled_from(ACCOUNTS),
    }
)
ENTITY = st.fixed_dictionaries({"labels": LABELS, "node": st.sampled_from(("vm", ""))})
OBJECTS: dict[str, tuple[tuple[str, ...], st.SearchStrategy[Any]]] = {
    "Pod": (spaced("p1", "p2"), POD),
    "Namespace": (SPACES, only("labels", LABELS)),
    "Node": (("n1", "n2"), only("labels", LABELS)),
    "ExternalEntity": (spaced("e"), ENTITY),
    "Service": (("s2/svc",), only("selector", LABELS)),
    "ClusterGroup": (tuple(f"/{name}" for name in GROUPS), st.one_of(PARENT, LEAF, NODED)),
    "Group": (tuple(f"{HOME}/{name}" for name in GROUPS), st.one_of(PARENT, LEAF)),
    "ClusterNetworkPolicy": (("/c1", "/c2"), policies(APPLIED, PEER)),
    "NetworkPolicy": ((f"{HOME}/d1", f"{HOME}/d2"), policies(LOCAL_APPLIED, LOCAL_PEER)),
}
Step = tuple[str, str, dict[str, Any] | None]
"""Kind, name, and what is put; None: it goes."""
START = st.tuples(
    *(
        st.tuples(st.just(kind), st.just(name), spec)
        for kind, (names, spec) in OBJECTS.items()
        for name in names
    )
)
STEPS = st.lists(
    st.one_of(
        *(
            st.tuples(st.just(kind), st.sampled_from(names), st.one_of(spec, spec, st.none()))
            for kind, (names, spec) in OBJECTS.items()
        )
    ),
    max_size=8,
)


def made(kind: str, name: str, spec: dict[str, Any]) -> Any:
    """The row of an object."""
    space, _, short = name.rpartition("/")
    fields: dict[str, Any] = {"spec": spec}
    labels = spec.get("labels", {})
    if kind == "Pod":
        fields = {
            "spec": {"nodeName": spec["node"], "serviceAccountName": spec["account"]},
            "status": {"podIPs": [{"ip": spec["ip"]}] if spec["ip"] else []},
        }
    elif kind in ("Namespace", "Node"):
        fields = {}
    elif kind == "ExternalEntity":
        fields = {"spec": {"externalNode": spec["node"]}}
    return row(kind, short, space, labels=labels, **fields)


def pairs(told: Told, policy: PublishedPolicy) -> dict[tuple[str, int], set[tuple[Who, Who]]]:
    """As the oracle has them; a rule that names nobody is there with none."""
    members: dict[tuple[str, str], set[Who]] = {}
    for entry in told.of(Membership):
        members.setdefault(entry.group, set()).add(entry.who)
    found: dict[tuple[str, int], set[tuple[Who, Who]]] = {}
    for rule in policy.policy.rules:
        own = rule.applied_to_groups or policy.policy.applied_to_groups
        side = rule.from_ if rule.direction == "In" else rule.to
        others = {who for name in side.address_groups for who in members.get(("addressgroups", name), ())}
        others |= {cidr(block.cidr) for block in side.ip_blocks}
        whom = {who for name in own for who in members.get(("appliedtogroups", name), ())}
        found.setdefault((rule.direction, rule.priority), set()).update(
            (one, two) for one in whom for two in others
        )
    return {place: some for place, some in found.items() if some}


def cidr(network: Any) -> str:
    address = ipaddress.IPv6Address(network.ip)
    return f"{address.ipv4_mapped or address}/{network.prefix_length}"


def agree(told: Told, oracle: Oracle) -> None:
    wanted = {
        name: oracle.told(name.rpartition("/")[0], spec)
        for kind in ("ClusterNetworkPolicy", "NetworkPolicy")
        for name, spec in oracle.all(kind).items()
    }
    found = {}
    for policy in told.of(PublishedPolicy):
        source = policy.policy.source_ref
        found[f"{source.namespace}/{source.name}"] = (pairs(told, policy), set(policy.nodes))
    assert found == {
        name: ({place: some for place, some in rules.items() if some}, nodes)
        for name, (rules, nodes) in wanted.items()
    }


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.large_base_example])
@given(START, STEPS)
def test_after_every_step_agents_know_who_is_whose_peer(start: tuple[Step, ...], steps: list[Step]) -> None:
    told, oracle = Told(), Oracle()
    for number, (kind, name, spec) in enumerate([*start, *steps]):
        if spec is None:
            oracle.objects.get(kind, {}).pop(name, None)
            gone = made(kind, name, EMPTY[kind])
            told.drop(type(gone), gone.key)
        else:
            oracle.objects.setdefault(kind, {})[name] = spec
            told.put(made(kind, name, spec))
        if number >= len(start) - 1:
            agree(told, oracle)
    anew = Told().put(
        *(made(kind, name, spec) for kind, found in oracle.objects.items() for name, spec in found.items())
    )
    assert network(told) == network(anew)


POLICY = {"priority": 1}
EMPTY: dict[str, dict[str, Any]] = {
    "Pod": {"node": "", "account": "", "ip": ""},
    "ExternalEntity": {"node": ""},
    "ClusterNetworkPolicy": POLICY,
    "NetworkPolicy": POLICY,
    **{kind: {} for kind in CONVERSIONS if kind in ("Namespace", "Node", "Service", "ClusterGroup", "Group")},
}


def network(told: Told) -> dict[Any, bytes]:
    """All but statuses, which are not erased when their object goes."""
    return {
        key: msgspec.msgpack.encode(entry)
        for key, entry in told.standing.items()
        if not isinstance(entry, Status)
    }
