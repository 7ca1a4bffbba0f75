"""Which Node each agent derives for an Egress's address, as members, labels, pools and the majority change."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

import msgspec
import pytest
from wide_pool import wide_pool

from antrea.agent.node.cluster_feed import cluster_node
from antrea.apis.core import Node, NodeAddress, NodeSpec, NodeStatus, ObjectMeta
from antrea.apis.crd import egress as crd
from antrea.apis.crd.part import LabelSelector, Metadata
from antrea.apis.crd.pool import ExternalIPPool, ExternalIPPoolSpec, IPRange
from antrea.config.agent import AgentConfig
from antrea.config.agent_sections import Egress as EgressSection
from antrea.engine import Engine, Facts
from antrea.facts.egress import Egress, EgressOwner
from antrea.facts.member import AgentLeaving, AgentNode, GossipMember, KeptAddress, PoolSelector, Quorum
from antrea.facts.node import ThisNode
from antrea.features.egress.agent.feature import egress_row
from antrea.features.egress.agent.hash_ring import Ring
from antrea.features.egress.agent.owner import FEATURE, NO_MAJORITY, NO_ROOM
from antrea.features.egress.agent.status import failed
from antrea.features.external_ip_pool.agent import FEATURE as POOL_MEMBERS
from antrea.features.external_ip_pool.agent import pool_selector
from antrea.features.framework.gate import EnabledGates

if TYPE_CHECKING:
    from antrea.facts.fact import Fact

NAMES = ["n1", "n2", "n3"]
POOL = wide_pool("pool", (("egress", "=", ("yes",)),))
GATES = EnabledGates("agent", frozenset({"Egress", "EgressSeparateSubnet"}))
ADDRESS = "172.18.181.40"
FIRST = Ring(NAMES).pick(ADDRESS)
SECOND = Ring([name for name in NAMES if name != FIRST]).pick(ADDRESS)


def node(name: str, *, labelled: bool = True, most: int | None = None) -> AgentNode:
    ip = f"192.0.2.{name[1:]}"
    return AgentNode(name, (ip,), (ip,), (("egress", "yes"),) if labelled else (), most)


def web(name: str = "web", ip: str = ADDRESS, created: str = "1") -> Egress:
    return Egress(name, f"uid-{name}", ip, "pool", created)


class Agent:
    """The units of one Node, with all members alive and a majority."""

    def __init__(self, name: str, *rows: Fact) -> None:
        self.name = name
        self.facts = Facts()
        self.engine = Engine(self.facts, (*FEATURE.units, *POOL_MEMBERS.units))
        members = (GossipMember(other, alive=True) for other in NAMES if other != name)
        quorum = Quorum(has=True, alive=3, of=3)
        for row in (ThisNode(name), AgentConfig(), POOL, quorum, *map(node, NAMES), *members, web(), *rows):
            self.facts.put(row)

    def put(self, *rows: Fact) -> None:
        for row in rows:
            self.facts.put(row)

    @property
    def owners(self) -> dict[str, EgressOwner]:
        self.engine.plan()
        return {row.egress: row for row in self.facts.all(EgressOwner)}

    @property
    def owner(self) -> EgressOwner | None:
        return self.owners.get("web")


def test_egress_owner_is_the_same_on_every_node() -> None:
    assert [Agent(name).owner for name in NAMES] == [EgressOwner("web", FIRST)] * 3


def test_egress_owner_is_the_next_node_when_the_first_dies_and_the_first_again_when_it_returns() -> None:
    agent = Agent(SECOND)
    agent.put(GossipMember(FIRST, alive=False))
    assert agent.owner == EgressOwner("web", SECOND)
    agent.put(GossipMember(FIRST, alive=True))
    assert agent.owner == EgressOwner("web", FIRST)


def test_egress_owner_is_not_this_node_without_a_majority_but_may_be_another() -> None:
    agent = Agent(FIRST)
    agent.put(Quorum(has=False, alive=3, of=3))
    assert agent.owner == EgressOwner("web", "", NO_MAJORITY)
    other = Agent(SECOND)
    other.put(Quorum(has=False, alive=3, of=3))
    assert other.owner == EgressOwner("web", FIRST)


def test_egress_owner_has_the_labels_that_the_pool_asks_for() -> None:
    agent = Agent(FIRST)
    agent.put(node(FIRST, labelled=False))
    assert agent.owner == EgressOwner("web", SECOND)
    for name in NAMES:
        agent.put(node(name, labelled=False))
    assert agent.owner == EgressOwner("web", "", NO_ROOM)
    # parity: test/e2e/egress_test.go testEgressCRUD
    assert failed(NO_ROOM).message == "Failed to assign the IP to EgressNode: no Node available"
    agent.put(wide_pool("pool", ()))
    assert agent.owner == EgressOwner("web", FIRST)


def test_egress_owner_is_a_cordoned_node_only_if_no_other_has_room() -> None:
    agent = Agent(FIRST)

    def cordon(*names: str) -> None:
        agent.put(*(msgspec.structs.replace(node(name), cordoned=name in names) for name in NAMES))

    cordon(FIRST)
    assert agent.owner == EgressOwner("web", SECOND)
    cordon(*NAMES)
    assert agent.owner == EgressOwner("web", FIRST)
    cordon(*(name for name in NAMES if name != SECOND))
    agent.put(node(SECOND, most=0))
    assert agent.owner == EgressOwner("web", FIRST)


def test_egress_owner_is_a_node_that_leaves_only_if_no_other_can_at_all() -> None:
    agent = Agent(FIRST, AgentLeaving())
    assert agent.owner == EgressOwner("web", SECOND)
    agent.put(GossipMember(SECOND, alive=False, left=True))
    third = next(name for name in NAMES if name not in (FIRST, SECOND))
    agent.put(msgspec.structs.replace(node(third), cordoned=True))
    assert agent.owner == EgressOwner("web", third)
    agent.put(GossipMember(third, alive=False))
    assert agent.owner == EgressOwner("web", FIRST)


def test_egress_owner_is_gone_with_its_node_its_pool_and_its_address() -> None:
    agent = Agent(SECOND)
    agent.facts.drop(AgentNode, FIRST)
    assert agent.owner == EgressOwner("web", SECOND)
    agent.put(web(ip=""))
    assert agent.owners == {}
    agent.put(web())
    assert agent.owners.keys() == {"web"}
    agent.facts.drop(PoolSelector, "pool")
    assert agent.owners == {}


def test_egress_owner_has_room_by_configuration_or_by_the_nodes_annotation() -> None:
    one = AgentConfig(egress=EgressSection(max_egress_ips_per_node=1))
    egresses = [web(f"e{number}", f"10.0.0.{number}", str(number)) for number in range(5)]
    agent = Agent("n1", one, *egresses)
    agent.facts.drop(Egress, "web")
    assert sorted(row.node for row in agent.owners.values()) == ["", "", *NAMES]
    assert [agent.owners[f"e{number}"].why for number in (3, 4)] == [NO_ROOM] * 2
    agent.put(node("n2", most=2))
    assert sorted(row.node for row in agent.owners.values()) == ["", "n1", "n2", "n2", "n3"]
    agent.put(node("n3", most=0))
    assert sorted(row.node for row in agent.owners.values()) == ["", "", "n1", "n2", "n2"]


def test_egress_owner_of_a_subnet_has_a_routing_table_left_for_it() -> None:
    pools = [wide_pool(f"p{n}", POOL.nodes, f"10.{n}.0.1", 24, 181) for n in range(21)]
    rows = [Egress(f"e{n:02}", f"u{n}", f"10.{n}.0.9", f"p{n}", f"{n:02}") for n in range(21)]
    others = [node(name, labelled=False) for name in NAMES[1:]]
    agent = Agent("n1", GATES, *pools, *rows, *others)
    agent.facts.drop(Egress, "web")
    expected = {row.name: EgressOwner(row.name, "n1") for row in rows}
    assert agent.owners == expected | {"e20": EgressOwner("e20", "", NO_ROOM)}
    agent.put(node("n2"))
    assert agent.owners.keys() == expected.keys()
    assert {row.node for row in agent.owners.values()} == {"n1", "n2"}
    # without the gate all of them are of the Nodes' own subnet
    agent.put(node("n2", labelled=False), EnabledGates("agent", frozenset({"Egress"})))
    assert agent.owners == expected


def test_egress_owner_is_a_preferred_node_or_who_has_it_if_it_stays() -> None:
    agent = Agent(FIRST, msgspec.structs.replace(web(), preferred=("n9", SECOND)))
    assert agent.owner == EgressOwner("web", SECOND)
    stays = msgspec.structs.replace(web(), stays=True, node=SECOND, held=ADDRESS)
    agent.put(stays)
    assert agent.owner == EgressOwner("web", SECOND)
    agent.put(msgspec.structs.replace(stays, preferred=(FIRST,)))
    assert agent.owner == EgressOwner("web", SECOND)
    agent.put(msgspec.structs.replace(stays, held="172.18.181.41"))
    assert agent.owner == EgressOwner("web", FIRST)
    agent.put(stays, GossipMember(SECOND, alive=False))
    assert agent.owner == EgressOwner("web", FIRST)


def test_an_egress_is_read_as_the_api_has_it_its_address_in_one_form() -> None:
    found = {
        "metadata": {
            "name": "a",
            "uid": "u",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {
                "egress.antrea.io/preferred-nodes": " n2,n1 , n2,",
                "egress.antrea.io/failback": "never",
                "egress.antrea.io/lost-connections": " reset",
            },
        },
        "spec": {"appliedTo": {}, "egressIP": "FD00:0::1", "externalIPPool": "p"},
        "status": {"egressNode": "n2", "egressIP": "FD00::0:1"},
    }
    assert egress_row(msgspec.convert(found, crd.Egress)) == Egress(
        "a",
        "u",
        "fd00::1",
        "p",
        "2026-01-01T00:00:00Z",
        "n2",
        "fd00::1",
        ("n2", "n1"),
        stays=True,
        resets=True,
    )


def test_a_pool_is_read_by_its_node_selector() -> None:
    selector = LabelSelector(match_labels={"egress": "yes"})
    ranges = (IPRange(cidr="192.0.2.0/30"), IPRange(start="fd00::1", end="fd00::2"), IPRange(cidr="none"))
    spec = ExternalIPPoolSpec(ip_ranges=ranges, node_selector=selector)
    four, six = int(ip_address("192.0.2.0")), int(ip_address("fd00::"))
    given = ((4, four + 1, four + 2), (6, six + 1, six + 2))
    found = pool_selector(ExternalIPPool(spec=spec, metadata=Metadata(name="pool")))
    assert found == msgspec.structs.replace(POOL, ranges=given)


def kubernetes_node(labels: dict[str, str], annotations: dict[str, str], cidrs: tuple[str, ...]) -> Node:
    addresses = (NodeAddress("InternalIP", "192.0.2.1"), NodeAddress("Hostname", "n1"))
    meta = ObjectMeta(name="n1", labels=labels, annotations=annotations)
    return Node(meta, NodeSpec(pod_cidrs=cidrs), NodeStatus(addresses))


def test_a_node_is_a_member_if_it_runs_linux_and_has_addresses_for_pods() -> None:
    cidrs = ("10.10.0.0/24",)
    labels = {"kubernetes.io/os": "linux", "egress": "yes"}
    annotations = {
        "node.antrea.io/transport-addresses": "198.51.100.1, fd00::1",
        "node.antrea.io/max-egress-ips": "7",
        "service.antrea.io/kept-external-ips": "192.0.2.40=3:idle",
    }
    assert cluster_node(kubernetes_node(labels, annotations, cidrs)) == AgentNode(
        "n1",
        ("192.0.2.1",),
        ("198.51.100.1", "fd00::1"),
        (("egress", "yes"), ("kubernetes.io/os", "linux")),
        7,
        cidrs,
        kept=(KeptAddress("192.0.2.40", 3, idle=True),),
    )
    plain = cluster_node(kubernetes_node({}, {"node.antrea.io/max-egress-ips": "many"}, cidrs))
    assert plain == AgentNode("n1", ("192.0.2.1",), ("192.0.2.1",), pod_cidrs=cidrs)
    windows = cluster_node(kubernetes_node({"kubernetes.io/os": "windows"}, {}, cidrs))
    assert windows is not None
    assert not windows.gossips
    assert cluster_node(kubernetes_node(labels, {}, ())) is None
    cordoned = msgspec.structs.replace(
        kubernetes_node(labels, {}, cidrs), spec=NodeSpec(pod_cidrs=cidrs, unschedulable=True)
    )
    found = cluster_node(cordoned)
    assert found is not None
    assert found.cordoned


FLOW = "flow add table=0 priority=65000 actions=normal"


@pytest.mark.parametrize(
    "end", [f"1.2.3.4->tun_dst\n{FLOW}", f"fe80::1%a\n{FLOW}", "fe80::1%eth0", "rubbish", "1.2.3.4 "]
)
def test_of_what_a_node_writes_addresses_alone_get_into_the_flows_of_others(end: str) -> None:
    found = cluster_node(
        kubernetes_node({}, {"node.antrea.io/transport-addresses": f"{end},FD00::1"}, ("10.10.0.0/24",))
    )
    assert found is not None
    assert found.transport_ips == (("1.2.3.4",) if end == "1.2.3.4 " else ()) + ("fd00::1",)
    node = kubernetes_node({}, {}, ("10.10.0.0/24",))
    addresses = (NodeAddress("InternalIP", end), *node.status.addresses, NodeAddress("InternalIP", "FD00::1"))
    found = cluster_node(msgspec.structs.replace(node, status=NodeStatus(addresses)))
    assert found is not None
    assert found.ips == ("192.0.2.1", "fd00::1")


def test_lists_that_a_node_writes_are_read_up_to_a_bound() -> None:
    """All agents read them at each change of the Node; they may have 256 KiB."""
    ends = ",".join(f"198.51.{number // 250}.{number % 250 + 1}" for number in range(10_000))
    annotations = {"node.antrea.io/transport-addresses": ends, "node.antrea.io/keep-ssh": "22," * 80_000}
    found = cluster_node(kubernetes_node({}, annotations, ("10.10.0.0/24",)))
    assert found is not None
    assert len(found.transport_ips) == 8
    assert found.ssh_ports == ()


@pytest.mark.parametrize("said", ["many", "-1", "9" * 5000])
def test_a_limit_of_a_node_that_is_no_number_is_none_and_ends_no_agent(said: str) -> None:
    found = cluster_node(kubernetes_node({}, {"node.antrea.io/max-egress-ips": said}, ("10.10.0.0/24",)))
    assert found is not None
    assert found.most_egress_ips is None


@pytest.mark.parametrize("said", [None, 300, 10])
def test_of_300_addresses_that_one_node_is_to_hold_the_oldest_have_room_and_the_others_say_that_there_is_none(
    said: int | None,
) -> None:
    rows = [
        web(f"e{number}", f"10.9.{number // 100}.{number % 100}", f"2026-{number:03}")
        for number in range(300)
    ]
    agents = [Agent(name, *rows, node("n2", labelled=False), node("n3", labelled=False)) for name in NAMES]
    for agent in agents:
        agent.facts.drop(Egress, "web")
        agent.put(node("n1", most=said))
    room = min(said or 255, 255)
    expected = {row.name: EgressOwner(row.name, "n1") for row in rows[:room]}
    expected |= {row.name: EgressOwner(row.name, "", NO_ROOM) for row in rows[room:]}
    assert [agent.owners == expected for agent in agents] == [True] * 3
    # one that goes makes room for the oldest of those that wait
    agents[0].facts.drop(Egress, "e3")
    assert agents[0].owners[f"e{room}"] == EgressOwner(f"e{room}", "n1")
    assert agents[0].owners[f"e{room + 1}"] == EgressOwner(f"e{room + 1}", "", NO_ROOM)
