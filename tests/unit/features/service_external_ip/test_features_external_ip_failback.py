"""An external IP of a Service that its Node keeps from better ones: for ever, or until no connection uses it."""

from __future__ import annotations

from typing import Any

import pytest
from external_ip_node import IP, NODES, Node, service
from hypothesis import given, settings
from hypothesis import strategies as st

from antrea.agent.node.cluster_feed import kept_addresses
from antrea.apis.annotation import NodeAnnotation
from antrea.facts.egress import UnusedAddress
from antrea.facts.external_ip import ExternalIPOwner
from antrea.facts.member import HIGHEST_NUMBER, MAX_KEPT, AgentNode, GossipMember, KeptAddress
from antrea.facts.service import Service
from antrea.features.egress.agent.hash_ring import ring
from antrea.features.service_external_ip.failback import RecordFailbackWaits

HOME = ring(frozenset(NODES)).pick(IP)
NEXT = ring(frozenset(NODES) - {HOME}).pick(IP)


NAMES_AND_WAYS = [(name, way) for name in NODES for way in ("write", "deliver", "cordon")]


class Cluster:
    """Agents of three Nodes, and the annotations of these, which all of them read."""

    def __init__(self, failback: str) -> None:
        self.nodes = {name: Node(name) for name in NODES}
        self.kept: dict[str, str] = {}
        self.tell(service(failback=failback))
        self.settle()

    def tell(self, *rows: Any) -> None:
        for node in self.nodes.values():
            node.put(*rows)

    def settle(self) -> None:
        """Until no agent writes anything new."""
        while True:
            written = {name: text for node in self.nodes.values() for name, text in _annotation(node)}
            if written == {name: self.kept.get(name, "") for name in written}:
                return
            self.kept |= written
            for name, text in written.items():
                self.tell(AgentNode(name, ("192.0.2.9",), ("192.0.2.9",), kept=kept_addresses(text)))

    def lose(self, name: str) -> Node:
        for other in self.nodes.values():
            other.put(GossipMember(name, alive=False))
        gone = self.nodes.pop(name)
        self.settle()
        return gone

    def bring_back(self, name: str) -> None:
        """Its agent starts anew, and lists Nodes and Services like every other."""
        for other in self.nodes.values():
            other.put(GossipMember(name, alive=True))
        node = self.nodes[name] = Node(name)
        source = next(other for other in self.nodes.values() if other is not node)
        for kind in (AgentNode, Service):
            node.put(*source.facts.all(kind))
        self.settle()

    def owner(self) -> str:
        """All agents agree."""
        (found,) = {node.owner() for node in self.nodes.values()}
        return found


def _annotation(node: Node) -> list[tuple[str, str]]:
    node.plan()
    found = node.engine.standing().values()
    return [(one.node, one.value) for one in found if isinstance(one, NodeAnnotation)]


@pytest.mark.parametrize(
    ("failback", "after"), [("", HOME), ("immediate", HOME), ("never", NEXT), ("when-idle", NEXT)]
)
def test_an_address_goes_home_to_a_node_that_is_back_unless_it_is_to_stay(failback: str, after: str) -> None:
    cluster = Cluster(failback)
    assert cluster.owner() == HOME
    cluster.lose(HOME)
    assert cluster.owner() == NEXT
    cluster.bring_back(HOME)
    assert cluster.owner() == after
    cluster.lose(after)
    assert cluster.owner() != after


def test_who_took_an_address_last_keeps_it_whoever_had_it_before() -> None:
    cluster = Cluster("never")
    assert cluster.kept[HOME] == f"{IP}=1"
    cluster.lose(HOME)
    assert cluster.kept == {HOME: f"{IP}=1", NEXT: f"{IP}=2"} | dict.fromkeys(set(NODES) - {HOME, NEXT}, "")
    cluster.bring_back(HOME)
    assert cluster.kept[HOME] == ""
    cluster.lose(NEXT)
    last = cluster.owner()
    assert cluster.kept[last] == f"{IP}=3"
    cluster.bring_back(NEXT)
    assert cluster.owner() == last


def test_an_address_that_waits_goes_home_when_its_node_sees_no_connection_and_not_before() -> None:
    cluster = Cluster("when-idle")
    cluster.lose(HOME)
    cluster.bring_back(HOME)
    rows = {node.facts.get(ExternalIPOwner, "shop/web") for node in cluster.nodes.values()}
    assert rows == {ExternalIPOwner("shop/web", IP, "p", NEXT, keeps=True, home=HOME)}
    told = [act.message for act in cluster.nodes[NEXT].acts if isinstance(act, RecordFailbackWaits)]
    assert told == [
        f"{IP} stays at Node {NEXT} until no connection has used it for 10 s; then it goes to Node {HOME}"
    ]
    cluster.nodes[HOME].put(UnusedAddress(IP))
    cluster.settle()
    assert cluster.owner() == NEXT
    cluster.nodes[NEXT].put(UnusedAddress(IP))
    assert _annotation(cluster.nodes[NEXT]) == [(NEXT, f"{IP}=2:idle")]
    cluster.settle()
    assert cluster.owner() == HOME
    assert cluster.kept | {"n": ""} == dict.fromkeys(NODES, "") | {HOME: f"{IP}=3", "n": ""}


def test_if_the_better_node_is_gone_before_an_idle_address_is_there_it_stays() -> None:
    cluster = Cluster("when-idle")
    cluster.lose(HOME)
    cluster.bring_back(HOME)
    cluster.nodes[NEXT].put(UnusedAddress(IP))
    cluster.lose(HOME)
    assert cluster.owner() == NEXT
    assert cluster.kept[NEXT] == f"{IP}=2"


@pytest.mark.parametrize("failback", ["never", "when-idle"])
def test_an_address_that_stays_still_leaves_a_node_that_is_cordoned(failback: str) -> None:
    cluster = Cluster(failback)
    (kept,) = kept_addresses(cluster.kept[HOME])
    cluster.tell(AgentNode(HOME, ("192.0.2.9",), ("192.0.2.9",), cordoned=True, kept=(kept,)))
    assert cluster.owner() == NEXT


def test_an_agent_that_starts_keeps_its_addresses_until_it_has_seen_who_else_has_them() -> None:
    node = Node(NEXT)
    kept = (KeptAddress(IP, 4), KeptAddress("192.0.2.99", 1))
    node.put(AgentNode(NEXT, ("192.0.2.9",), ("192.0.2.9",), kept=kept))
    assert _annotation(node) == [(NEXT, f"{IP}=4,192.0.2.99=1")]
    node.facts.replace(Service, [service(failback="never")])
    node.facts.synced(Service)
    assert node.owner() == NEXT
    assert _annotation(node) == [(NEXT, f"{IP}=4")]


def test_of_services_that_share_an_address_the_oldest_with_a_wish_decides() -> None:
    node = Node()
    node.put(
        service("new", created="2", failback="when-idle"),
        service("old", created="1", failback="never"),
        AgentNode(NEXT, ("192.0.2.9",), ("192.0.2.9",), kept=(KeptAddress(IP, 1, idle=True),)),
    )
    assert {node.owner("old"), node.owner("new")} == {NEXT}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", ()),
        (f"{IP}=1,2001:DB8::1=2:idle,2001:db8::1=2:idle", (KeptAddress(IP, 1), KeptAddress("2001:db8::1", 2, idle=True))),
        (f"{IP}=1:lazy,{IP},{IP}=-1,{IP}=9999999999,x=1, ,192.0.2.400=1,=,::=", ()),
        (",".join([f"{IP}=1"] * (MAX_KEPT + 5)), (KeptAddress(IP, 1),) * MAX_KEPT),
    ],
)  # fmt: skip
def test_what_a_node_writes_into_its_annotation_is_read_as_far_as_it_is_one(
    text: str, kept: tuple[KeptAddress, ...]
) -> None:
    assert kept_addresses(text) == kept


def test_a_node_that_claims_the_highest_number_keeps_no_one_from_taking_over() -> None:
    cluster = Cluster("never")
    del cluster.nodes[NEXT]  # it runs something else
    cluster.tell(AgentNode(NEXT, ("192.0.2.9",), ("192.0.2.9",), kept=(KeptAddress(IP, HIGHEST_NUMBER),)))
    assert cluster.owner() == NEXT
    cluster.tell(GossipMember(NEXT, alive=False))
    cluster.settle()
    assert cluster.owner() == HOME
    assert kept_addresses(cluster.kept[HOME]) == (KeptAddress(IP, HIGHEST_NUMBER),)


def test_of_those_that_claim_an_address_a_lost_one_does_not_count() -> None:
    node, other = Node(HOME), next(name for name in NODES if name not in (HOME, NEXT))
    node.put(service(failback="never"))
    for name, number in ((other, 1), (NEXT, 5)):
        node.put(AgentNode(name, ("192.0.2.9",), ("192.0.2.9",), kept=(KeptAddress(IP, number),)))
    assert node.owner() == NEXT
    node.put(GossipMember(NEXT, alive=False))
    assert node.owner() == other


class Api:
    """Node objects whose writes are read later, by each agent at its own time, and always in their order."""

    def __init__(self, nodes: dict[str, Node]) -> None:
        self.nodes = nodes
        self.log: list[tuple[str, str]] = []
        self.read = dict.fromkeys(nodes, 0)
        self.written = dict.fromkeys(nodes, "")
        self.cordoned: set[str] = set()

    def write(self, name: str) -> bool:
        """What the agent wants written by now; False: nothing new."""
        ((_, text),) = _annotation(self.nodes[name])
        if text == self.written[name]:
            return False
        self.written[name] = text
        self.log.append((name, text))
        return True

    def deliver(self, name: str) -> bool:
        """The next event of the watch; False: there is none."""
        if self.read[name] == len(self.log):
            return False
        about, text = self.log[self.read[name]]
        self.read[name] += 1
        self.nodes[name].put(
            AgentNode(
                about,
                ("192.0.2.9",),
                ("192.0.2.9",),
                cordoned=about in self.cordoned,
                kept=kept_addresses(text),
            )
        )
        return True

    def cordon(self, name: str, *, on: bool) -> None:
        (self.cordoned.add if on else self.cordoned.discard)(name)
        self.log.append((name, self.written[name]))

    def settle(self) -> None:
        for _ in range(100):
            if not any(
                [self.deliver(name) for name in self.nodes] + [self.write(name) for name in self.nodes]
            ):
                return
        raise AssertionError("never at rest")


@settings(max_examples=60, deadline=None)
@given(order=st.lists(st.tuples(st.sampled_from(NAMES_AND_WAYS), st.booleans()), max_size=60))
def test_claims_come_to_rest_in_whatever_order_they_are_read(
    order: list[tuple[tuple[str, str], bool]],
) -> None:
    api = Api({name: Node(name) for name in NODES})
    for node in api.nodes.values():
        node.put(service(failback="never"))
    api.settle()
    for (name, way), on in order:
        if way == "cordon":
            api.cordon(name, on=on)
        else:
            (api.write if way == "write" else api.deliver)(name)
    for name in NODES:
        api.cordon(name, on=name == HOME)
    api.settle()
    (owner,) = {node.owner() for node in api.nodes.values()}
    assert owner != HOME
    assert [name for name in NODES if api.written[name]] == [owner]
    api.cordon(HOME, on=False)
    api.settle()
    assert {node.owner() for node in api.nodes.values()} == {owner}
