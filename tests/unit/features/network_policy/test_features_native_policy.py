"""What agents are told of Antrea's own policies: rules, whom they are for, and to which Nodes they go."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from native_world import Told, named, node, pod, row, space

from antrea.apis import controlplane as cp
from antrea.apis.crd.tier import Tier
from antrea.apis.status import Status
from antrea.facts.cluster import Namespace, Pod
from antrea.features.grouping.publication import Membership, PublishedPolicy
from antrea.features.network_policy.controller.antrea_internal_policy import ClusterPolicy, NamespacedPolicy
from antrea.features.network_policy.controller.group import ClusterGroupObject
from antrea.features.network_policy.tier import TIERS

V4 = bytes(10) + b"\xff\xff"
WEB, DB = ({"matchLabels": {"app": name}} for name in ("web", "db"))
APPLIED, ADDRESS = "appliedtogroups", "addressgroups"
Rule = dict[str, Any]


def cluster(name: str = "p", **spec: Any) -> Any:
    return row(
        "ClusterNetworkPolicy", name, spec={"priority": 5, "appliedTo": [{"podSelector": WEB}], **spec}
    )


def local(name: str = "p", **spec: Any) -> Any:
    return row("NetworkPolicy", name, "ns", spec={"priority": 5, "appliedTo": [{"podSelector": WEB}], **spec})


def rules(told: Told, name: str = "p") -> list[Rule]:
    """As JSON would have them."""
    found: list[Rule] = msgspec.json.decode(msgspec.json.encode(told.policy(name).rules))
    return found


def peer(told: Told) -> Rule:
    """The peer of the one rule."""
    (rule,) = rules(told)
    side: Rule = rule["from" if rule["direction"] == "In" else "to"]
    return side


def block(cidr: tuple[int, ...], length: int, *holes: tuple[tuple[int, ...], int]) -> cp.IPBlock:
    return cp.IPBlock(
        cidr=cp.IPNet(ip=V4 + bytes(cidr), prefix_length=length),
        except_=tuple(cp.IPNet(ip=V4 + bytes(hole), prefix_length=bits) for hole, bits in holes),
    )


@pytest.mark.parametrize(
    ("given", "told"), [("5", b'"priority":5,'), ("5.0", b'"priority":5,'), ("5.5", b'"priority":5.5,')]
)
def test_a_whole_priority_is_told_without_a_fraction(given: str, told: bytes) -> None:
    found = Told().put(cluster(priority=msgspec.json.decode(given, type=float))).policy("p")
    assert told in msgspec.json.encode(found)
    assert told in msgspec.json.encode(msgspec.json.decode(msgspec.json.encode(found), type=cp.NetworkPolicy))


def test_a_policy_of_the_cluster_is_told_like_this() -> None:
    into = {
        "action": "Drop",
        "name": "no",
        "from": [{"podSelector": DB, "namespaceSelector": {}}, {"ipBlock": {"cidr": "10.0.0.0/8"}}],
        "ports": [{"port": 80, "endPort": 90}, {"protocol": "UDP", "sourcePort": 53}],
        "enableLogging": True,
        "logLabel": "label",
    }
    out = {"action": "Allow", "name": "yes", "l7Protocols": [{"http": {"path": "/a"}}]}
    found = Told().put(cluster(tier="securityops", ingress=[into], egress=[out])).policy("p")
    assert found == cp.NetworkPolicy(
        metadata=found.metadata,
        rules=(INTO, OUT),
        applied_to_groups=(named("podSelector=app=web"),),
        priority=5.0,
        tier_priority=100,
        source_ref=cp.NetworkPolicyReference(type="AntreaClusterNetworkPolicy", name="p", uid="uid-p"),
    )
    assert (found.metadata.name, found.metadata.uid, found.metadata.generation) == ("uid-p", "uid-p", 1)


NOBODY = cp.NetworkPolicyPeer()
EVERYBODY = cp.NetworkPolicyPeer(ip_blocks=(block((0, 0, 0, 0), 0), cp.IPBlock(cidr=cp.IPNet(ip=bytes(16)))))
INTO = cp.NetworkPolicyRule(
    direction="In",
    from_=cp.NetworkPolicyPeer(
        address_groups=(named("namespaceSelector= And podSelector=app=db"),),
        ip_blocks=(block((10, 0, 0, 0), 8),),
    ),
    to=NOBODY,
    services=(cp.Service(protocol="TCP", port=80, end_port=90), cp.Service(protocol="UDP", src_port=53)),
    action="Drop",
    enable_logging=True,
    name="no",
    log_label="label",
)
OUT = cp.NetworkPolicyRule(
    direction="Out",
    from_=NOBODY,
    to=EVERYBODY,
    action="Allow",
    enable_logging=False,
    name="yes",
    l7_protocols=(cp.L7Protocol(http=cp.HTTPProtocol(path="/a")),),
)


PEERS: dict[str, tuple[Rule, Rule]] = {
    "a ServiceAccount": (
        {"serviceAccount": {"name": "sa", "namespace": "x"}},
        {"addressGroups": [named("namespace=x And podSelector=internal.antrea.io/service-account=sa")]},
    ),
    "Nodes": ({"nodeSelector": WEB}, {"addressGroups": [named("nodeSelector=app=web")]}),
    "a name": ({"fqdn": "*.a.example"}, {"fqdns": ["*.a.example"]}),
    "a group that is not there": ({"group": "none"}, {}),
}


@pytest.mark.parametrize(("wanted", "told"), PEERS.values(), ids=PEERS.keys())
def test_peers_are_told_like_this(wanted: Rule, told: Rule) -> None:
    assert peer(Told().put(cluster(egress=[{"action": "Drop", "to": [wanted]}]))) == told


def test_peers_of_a_policy_of_a_namespace_are_its_own_unless_it_selects_others() -> None:
    world = Told().put(
        local(
            ingress=[
                {
                    "action": "Allow",
                    "from": [
                        {"podSelector": DB},
                        {"externalEntitySelector": DB},
                        {"podSelector": DB, "namespaceSelector": {}},
                    ],
                }
            ]
        )
    )
    assert peer(world)["addressGroups"] == [
        named("namespace=ns And podSelector=app=db"),
        named("eeSelector=app=db And namespace=ns"),
        named("namespaceSelector= And podSelector=app=db"),
    ]
    assert world.policy("p").applied_to_groups == (named("namespace=ns And podSelector=app=web"),)


def test_services_are_passed_on_those_of_the_own_namespace_by_default() -> None:
    wanted = [{"name": "a"}, {"name": "b", "namespace": "x"}, {"name": "far", "scope": "ClusterSet"}]
    world = Told().put(local(egress=[{"action": "Drop", "toServices": wanted}]))
    assert peer(world) == {"toServices": [{"name": "a", "namespace": "ns"}, {"name": "b", "namespace": "x"}]}


def test_protocols_without_ports_are_services_too() -> None:
    protocols = [
        {"icmp": {"icmpType": 8, "icmpCode": 0}},
        {"icmp": {}},
        {"igmp": {"igmpType": 17, "groupAddress": "224.0.0.1"}},
    ]
    world = Told().put(cluster(ingress=[{"action": "Allow", "protocols": protocols}]))
    assert rules(world)[0]["services"] == [
        {"protocol": "ICMP", "icmpType": 8, "icmpCode": 0},
        {"protocol": "ICMP"},
        {"protocol": "IGMP", "igmpType": 17, "groupAddress": "224.0.0.1"},
    ]


def test_a_named_port_of_everybody_needs_everybodys_numbers_when_it_is_theirs() -> None:
    rule = {"action": "Drop", "ports": [{"port": "http"}]}
    everybody = [named("namespaceSelector=")]
    world = Told().put(cluster(ingress=[rule], egress=[rule]))
    into, out = rules(world)
    assert ("addressGroups" in into["from"], out["to"]["addressGroups"]) == (False, everybody)


def test_a_tier_gives_its_priority_under_its_old_name_and_before_it_is_there_too() -> None:
    world = Told()
    for tier, priority in (("", 250), ("Emergency", 50), ("baseline", 253), ("gold", 250)):
        assert world.put(cluster(tier=tier)).policy("p").tier_priority == priority
    found = msgspec.convert({"metadata": {"name": "gold"}, "spec": {"priority": 20}}, Tier)
    row_of_tier = TIERS.row(found)
    assert world.put(row_of_tier).policy("p").tier_priority == 20
    assert world.drop(type(row_of_tier), "gold").policy("p").tier_priority == 250


def test_groups_of_a_rule_stand_in_the_rule_alone() -> None:
    accounts = [{"serviceAccount": {"name": name, "namespace": "x"}} for name in ("a", "b")]
    rule = {"action": "Drop", "appliedTo": accounts}
    world = Told().put(cluster(appliedTo=[], ingress=[rule]), pod("a-1", "x", "n2", account="a"))
    names = [
        named(f"namespace=x And podSelector=internal.antrea.io/service-account={name}") for name in ("a", "b")
    ]
    assert world.policy("p").applied_to_groups == ()
    assert rules(world)[0]["appliedToGroups"] == names
    assert world.nodes() == {"uid-p": ("n2",)}


def test_members_are_pods_entities_and_nodes_with_what_the_kind_of_group_needs() -> None:
    entity = row(
        "ExternalEntity",
        "e",
        "ns",
        labels={"app": "web"},
        spec={
            "endpoints": [{"ip": "192.0.2.1"}],
            "ports": [{"protocol": "TCP", "port": 22, "name": "ssh"}],
            "externalNode": "vm",
        },
    )
    lonely = row("ExternalEntity", "lonely", "ns", labels={"app": "web"}, spec={})
    entities = {"externalEntitySelector": WEB}
    world = Told().put(
        local(appliedTo=[entities], ingress=[{"action": "Drop", "from": [entities]}]),
        cluster(
            "q",
            appliedTo=[{"nodeSelector": WEB}],
            ingress=[{"action": "Drop", "from": [{"nodeSelector": WEB}]}],
        ),
        entity,
        lonely,
        node("n1", "172.16.0.2", "fd00::2", app="web"),
        node("n2", "172.16.0.3", app="db"),
    )
    ssh = (cp.NamedPort(port=22, name="ssh", protocol="TCP"),)
    one, other = (cp.ExternalEntityReference(name=name, namespace="ns") for name in ("e", "lonely"))
    first = cp.NodeReference(name="n1")
    addresses = (V4 + bytes((172, 16, 0, 2)), b"\xfd" + bytes(14) + b"\x02")
    assert {(entry.resource, entry.member, entry.node) for entry in world.of(Membership)} == {
        (APPLIED, cp.GroupMember(external_entity=one, ports=ssh), "vm"),
        (ADDRESS, cp.GroupMember(external_entity=one, ports=ssh, ips=(V4 + bytes((192, 0, 2, 1)),)), "vm"),
        (ADDRESS, cp.GroupMember(external_entity=other), ""),
        (APPLIED, cp.GroupMember(node=first), "n1"),
        (ADDRESS, cp.GroupMember(node=first, ips=addresses), "n1"),
    }
    assert {one.key: one.nodes for one in world.of(PublishedPolicy)} == {"uid-p": ("vm",), "uid-q": ("n1",)}


def test_a_policy_for_a_service_goes_to_all_nodes() -> None:
    applied = [{"service": {"name": "web", "namespace": "ns"}}]
    world = Told().put(cluster(appliedTo=applied, ingress=[{"action": "Drop"}]), node("n1"), node("n2"))
    assert world.nodes() == {"uid-p": ("n1", "n2")}
    service = cp.ServiceReference(name="web", namespace="ns")
    assert {(one.name, one.member) for one in world.of(Membership)} == {
        (named("ns/web"), cp.GroupMember(service=service))
    }


def pairs(told: Told, name: str = "p") -> list[tuple[list[str], list[str]]]:
    """Whom each rule is for, and its peers."""
    return [
        (one["appliedToGroups"], (one["from"] or one["to"])["addressGroups"]) for one in rules(told, name)
    ]


SELF: Rule = {"action": "Allow", "from": [{"namespaces": {"match": "Self"}}]}


def test_a_rule_for_the_own_namespace_is_one_rule_for_each_that_follows_namespaces() -> None:
    spaces = {"namespaceSelector": {"matchLabels": {"env": "prod"}}}
    world = Told().put(space("a", env="prod"), space("b", env="prod"), space("c"))
    rest = {"action": "Drop", "from": [{"namespaceSelector": {}}]}
    world.put(cluster(appliedTo=[spaces], ingress=[SELF, rest]))
    own = [([named(f"namespace={name}")],) * 2 for name in ("a", "b", "c")]
    everywhere = ([named("namespaceSelector=env=prod")], [named("namespaceSelector=")])
    assert pairs(world) == [*own[:2], everywhere]
    assert world.policy("p").applied_to_groups == ()
    assert pairs(world.put(space("c", env="prod"))) == [*own, everywhere]
    assert pairs(world.drop(Namespace, "a")) == [*own[1:], everywhere]


def test_a_rule_for_the_own_namespace_counts_all_that_the_policy_is_for() -> None:
    applied = [
        {"podSelector": WEB},
        {"podSelector": DB, "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "a"}}},
        {"serviceAccount": {"name": "sa", "namespace": "b"}},
    ]
    world = Told().put(space("a"), space("b"), cluster(appliedTo=applied, ingress=[SELF]))
    account = named("namespace=b And podSelector=internal.antrea.io/service-account=sa")
    web, database = (named(f"namespace=a And podSelector=app={one}") for one in ("web", "db"))
    assert pairs(world) == [
        ([web, database], [named("namespace=a")]),
        ([named("namespace=b And podSelector=app=web"), account], [named("namespace=b")]),
    ]


def test_a_rule_for_namespaces_with_the_same_labels_is_one_rule_for_each_set_of_values() -> None:
    world = Told().put(
        space("a", team="red", x="1"), space("b", team="red", x="1"), space("c", team="blue", x="1")
    )
    world.put(space("d", x="1"))
    same = {"action": "Allow", "to": [{"namespaces": {"sameLabels": ["team", "x"]}, "podSelector": DB}]}
    world.put(cluster(egress=[same]))
    spread = [named(f"namespace={one} And podSelector=app=web") for one in "abc"]
    peers = [named(f"namespaceSelector=team={team},x=1 And podSelector=app=db") for team in ("blue", "red")]
    assert pairs(world) == [(spread[2:], peers[:1]), (spread[:2], peers[1:])]


def test_a_group_splits_by_namespace_like_its_own_selector() -> None:
    world = Told().put(space("a", env="prod"), space("b"))
    group = {"podSelector": WEB, "namespaceSelector": {"matchLabels": {"env": "prod"}}}
    world.put(row("ClusterGroup", "g", spec=group), cluster(appliedTo=[{"group": "g"}], ingress=[SELF]))
    assert pairs(world) == [([named("namespace=a And podSelector=app=web")], [named("namespace=a")])]


def test_a_policy_that_goes_leaves_nothing() -> None:
    world = Told().put(cluster(ingress=[SELF]), local("q"), pod("w", "ns", app="web"), space("ns"))
    world.put(row("ClusterGroup", "g", spec={"podSelector": WEB}), cluster("r", appliedTo=[{"group": "g"}]))
    for kind, key in ((ClusterPolicy, "/p"), (ClusterPolicy, "/r"), (NamespacedPolicy, "ns/q")):
        world.drop(kind, key)
    world.drop(ClusterGroupObject, "g").drop(Namespace, "ns").drop(Pod, "ns/w")
    # what a status says is left as it is, and forgotten
    assert {kind for kind, _ in world.standing} == {Status}
    assert world.facts.empty


def test_a_block_that_cannot_be_read_is_nobody_in_rules_and_groups() -> None:
    odd = {"cidr": "10.0.0.0/8", "except": ["010.0.0.0/9"]}
    group = row("ClusterGroup", "g", spec={"ipBlocks": [{"cidr": "192.0.2.0/24"}, odd]})
    into = {"action": "Allow", "name": "a", "from": [{"ipBlock": odd}]}
    other = {"action": "Allow", "name": "b", "from": [{"group": "g"}]}
    told = Told().put(group, cluster(ingress=[into, other])).policy("p")
    assert [one.from_ for one in told.rules] == [
        NOBODY,
        cp.NetworkPolicyPeer(ip_blocks=(block((192, 0, 2, 0), 24),)),
    ]


def test_a_pod_is_in_its_groups_also_where_an_address_of_it_cannot_be_read() -> None:
    found = row(
        "Pod", "w", "ns", labels={"app": "web"},
        spec={"nodeName": "n1"}, status={"podIPs": [{"ip": "010.0.0.1"}, {"ip": "fd00::1"}]},
    )  # fmt: skip
    told = Told().put(
        space("ns"), found, cluster(ingress=[{"action": "Drop", "from": [{"podSelector": WEB}]}])
    )
    name = named("podSelector=app=web")
    members = {one.resource: one.member.ips for one in told.of(Membership)}
    assert members == {APPLIED: (), ADDRESS: (bytes.fromhex("fd00") + bytes(13) + b"\1",)}, name
    assert told.nodes()["uid-p"] == ("n1",)
