"""An Egress of several addresses: which of them each Pod leaves with, where they are, and what the status says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wide_pool import wide_pool

from antrea.apis.annotation import FAILBACK
from antrea.apis.crd import egress as crd
from antrea.apis.crd.part import AppliedToPods, Metadata
from antrea.apis.egress_address import EGRESSES
from antrea.apis.status import Items, Status
from antrea.config.agent import AgentConfig
from antrea.engine import Engine, Facts
from antrea.facts.egress import Egress, EgressLimit, EgressMark, EgressOwner, EgressPod, UnusedAddress
from antrea.facts.member import AgentNode, GossipMember, Quorum
from antrea.facts.node import LocalAddress, ThisNode
from antrea.facts.unrealized import Unrealized
from antrea.features.egress.agent import owner
from antrea.features.egress.agent.address import HELD_ADDRESSES
from antrea.features.egress.agent.feature import egress_rows
from antrea.features.egress.agent.hash_ring import Ring, RingRequest, place
from antrea.features.egress.agent.multi_address import egresses_of
from antrea.features.egress.agent.owner import NO_MAJORITY, NO_ROOM, homes_of
from antrea.features.egress.agent.status import RecordAssignmentFailed, egress_status
from antrea.features.external_ip_pool.agent import FEATURE as POOL_MEMBERS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

NODES = tuple(f"n{number}" for number in range(1, 7))
PODS = tuple(f"shop/web-{number}" for number in range(200))
IPS = ("192.0.2.40", "192.0.2.41", "192.0.2.42", "2001:db8::40", "2001:db8::41")
POOLS = ("four",) * 3 + ("six",) * 2
FOURS = IPS[:3]


def described(ips: Iterable[str] = IPS, pools: Iterable[str] = POOLS, **holders: str) -> tuple[Egress, ...]:
    """Rows of Egress `web` as agents read it; `holders` by the last part of the address."""
    ips = tuple(ips)
    at = [crd.AddressStatus(ip, holders[f"at{ip[-2:]}"]) for ip in ips if f"at{ip[-2:]}" in holders]
    spec = crd.EgressSpec(AppliedToPods(), egress_ips=ips, external_ip_pools=tuple(pools))
    meta = Metadata(name="web", uid="u1", creation_timestamp="1")
    return egress_rows(crd.Egress(spec, meta, crd.EgressStatus(addresses=tuple(at))))


def known(*rows: object) -> Facts:
    facts = Facts()
    for row in (ThisNode("n1"), wide_pool("four"), wide_pool("six"), *rows):
        facts.put(row)  # type: ignore[arg-type]
    return facts


def told(facts: Facts) -> Facts:
    """Indexes follow a pass."""
    Engine(facts, ()).plan()
    return facts


def selected(alive: Collection[str], pods: Iterable[str] = PODS) -> dict[str, list[str]]:
    """The addresses of each Pod, while Nodes can be found for these alone."""
    owners = [EgressOwner(r.key, "n2" if r.ip in alive else "", NO_ROOM) for r in described()]
    facts = told(known(*described(), *owners, *(EgressPod("web", pod) for pod in pods)))
    return {pod: [row.ip for _, row in egresses_of(facts, pod)] for pod in pods}


@settings(max_examples=25, deadline=None)
@given(st.sets(st.sampled_from(IPS)), st.sampled_from(IPS))
def test_each_pod_has_one_living_address_per_family_and_a_loss_moves_its_own_pods_alone(
    alive: set[str], lost: str
) -> None:
    before, after = selected(alive | {lost}), selected(alive - {lost})
    for found, living in ((before, alive | {lost}), (after, alive - {lost})):
        for ips in found.values():
            assert [":" in ip for ip in ips] == [False, True]
            assert all(
                ip in living or not living & {one for one in IPS if (":" in one) == (":" in ip)} for ip in ips
            )
    same_family = {ip for ip in alive - {lost} if (":" in ip) == (":" in lost)}
    for pod, ips in before.items():
        kept = [ip for ip in ips if ip != lost and (same_family or (":" in ip) != (":" in lost))]
        assert set(kept) <= set(after[pod])


def test_pods_are_spread_evenly() -> None:
    found = [ips[0] for ips in selected(IPS).values()]
    assert all(45 < found.count(ip) < 90 for ip in FOURS)


def test_the_oldest_egress_decides_alone_even_if_none_of_its_addresses_lives() -> None:
    other = Egress("api", "u2", "192.0.2.99", created="2")
    owners = [EgressOwner(row.key, "", NO_ROOM) for row in described()]
    pods = [EgressPod(name, "shop/web-1") for name in ("web", "api")]
    facts = told(known(*described(), other, *owners, *pods))
    assert [row.name for _, row in egresses_of(facts, "shop/web-1")] == ["web", "web"]


@pytest.mark.parametrize(
    ("row", "lives"),
    [
        (EgressOwner("web 1", "n2"), True),
        (EgressOwner("web 1", "", NO_MAJORITY), True),
        (EgressOwner("web 1", "", NO_ROOM), False),
    ],
)
def test_an_address_of_a_pool_lives_unless_it_is_known_that_no_node_can_have_it(
    row: EgressOwner, *, lives: bool
) -> None:
    first = EgressOwner("web", "", NO_ROOM)
    facts = told(
        known(*described(FOURS[:2], POOLS[:2]), first, row, *(EgressPod("web", pod) for pod in PODS))
    )
    found = {ip.ip for pod in PODS for _, ip in egresses_of(facts, pod)}
    assert found == ({FOURS[1]} if lives else set(FOURS[:2]))


@pytest.mark.parametrize(
    ("holders", "alive"),
    [({"at40": "n2"}, {FOURS[0]}), ({"at41": "n2", "at42": "n3"}, {FOURS[1]}), ({"at42": "n1"}, set(FOURS))],
)
def test_an_address_without_a_pool_lives_on_this_node_or_with_a_member_that_does(
    holders: dict[str, str], alive: set[str]
) -> None:
    members = (GossipMember("n2", alive=True), GossipMember("n3", alive=False))
    pods = [EgressPod("web", pod) for pod in PODS]
    facts = told(known(*described(FOURS, (), **holders), *members, *pods))
    assert {row.ip for pod in PODS for _, row in egresses_of(facts, pod)} == alive
    facts.put(LocalAddress(FOURS[2], "eth0"))
    told(facts)
    if len(alive) == 1:
        assert {row.ip for pod in PODS for _, row in egresses_of(facts, pod)} == alive | {FOURS[2]}


def wishes(number: int = 3, **fields: object) -> list[RingRequest]:
    return [
        RingRequest("1", f"web {n}", f"192.0.2.{40 + n}", "p", apart="web", **fields)  # type: ignore[arg-type]
        for n in range(number)
    ]


def placed(alive: Collection[str], wanted: list[RingRequest], most: int = 9) -> dict[str, str]:
    pools = {"p": [sorted(alive)]}
    return place(wanted, pools, lambda _: most, homes_of(wanted, {"p": NODES}))


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 6), st.sets(st.sampled_from(NODES)), st.sampled_from(NODES))
def test_a_node_that_dies_moves_its_own_addresses_alone_and_takes_those_back(
    number: int, alive: set[str], lost: str
) -> None:
    wanted = wishes(number)
    before, after = placed(alive | {lost}, wanted), placed(alive - {lost}, wanted)
    moved = {name for name in before if before[name] != after[name]}
    assert all(before[name] == lost for name in moved)
    assert (set(after.values()) <= alive - {lost}) == bool(alive - {lost})


@given(st.integers(2, 6))
def test_each_has_a_node_of_its_own_and_who_must_go_looks_for_a_free_one(number: int) -> None:
    wanted = wishes(number)
    found = placed(NODES, wanted)
    assert len(set(found.values())) == number
    if number < len(NODES):
        for lost in found.values():
            assert len(set(placed(set(NODES) - {lost}, wanted).values())) == number


def test_the_first_address_is_where_the_ring_alone_has_it_and_preferences_are_shared_out() -> None:
    assert placed(NODES, wishes())["web 0"] == Ring(NODES).pick("192.0.2.40")
    found = placed(NODES, wishes(preferred=("n5", "n2")))
    assert (found["web 0"], found["web 1"]) == ("n5", "n2")
    assert placed({"n3"}, wishes()) == dict.fromkeys(("web 0", "web 1", "web 2"), "n3")
    assert sorted(placed({"n3", "n4"}, wishes(), most=1).values()) == ["", "n3", "n4"]


def test_an_agent_derives_an_owner_for_each_address() -> None:
    facts = known(
        AgentConfig(),
        Quorum(has=True, alive=6, of=6),
        *(wide_pool(pool, ()) for pool in ("four", "six")),
        *(AgentNode(name, (), ()) for name in NODES),
        *(GossipMember(name, alive=True) for name in NODES[1:]),
        *described(),
    )
    Engine(facts, (*owner.FEATURE.units, *POOL_MEMBERS.units)).plan()
    owners = {row.egress: row.node for row in facts.all(EgressOwner)}
    assert owners.keys() == {"web", "web 1", "web 2", "web 3", "web 4"}
    assert len({owners[key] for key in ("web", "web 1", "web 2")}) == 3
    assert owners["web 3"] != owners["web 4"]


def stated(*rows: object) -> list[Status]:
    marks = [EgressMark(row.ip, 7) for row in rows if isinstance(row, LocalAddress)]
    facts = told(known(*rows, *marks))
    told_of = (said for row in facts.all(Egress) for said in egress_status(facts, row))
    return [said for said in told_of if isinstance(said, Status)]


def shown(fields: tuple[tuple[str, str], ...], *items: tuple[str, str]) -> Status:
    """What n1 says, without conditions."""
    return Status(
        path=f"{EGRESSES}/web",
        kind="Egress",
        manager="antrea-agent-n1",
        ahead=True,
        fields=fields,
        items=Items(
            "addresses",
            "egressIP",
            tuple((("egressIP", ip), ("egressNode", node)) for ip, node in items),
            FOURS[:2],
        ),
    )


def test_a_node_says_which_of_the_addresses_it_has_and_the_first_as_others_their_only_one() -> None:
    rows = described(FOURS[:2], POOLS[:2])
    here = [LocalAddress(ip, "antrea-egress0") for ip in FOURS[:2]]
    owners = EgressOwner("web", "n2"), EgressOwner("web 1", "n1")
    assert stated(*rows, *owners, here[0]) == []
    assert stated(*rows, *owners, *here) == [shown((), (FOURS[1], "n1"))]
    first = (("egressNode", "n1"), ("egressIP", FOURS[0]))
    (both,) = stated(*rows, EgressOwner("web", "n1"), owners[1], *here)
    assert msgspec.structs.replace(both, conditions=()) == shown(first, (FOURS[0], "n1"), (FOURS[1], "n1"))
    assert [one.status for one in both.conditions] == ["True"]


def test_an_address_of_several_waits_at_its_node_while_it_is_in_use_and_goes_home_when_it_is_idle() -> None:
    def agent(**words: str) -> tuple[Facts, tuple[Egress, ...]]:
        at = [crd.AddressStatus(ip, "n1", words.get(f"at{ip[-2:]}", "")) for ip in FOURS[:2]]
        spec = crd.EgressSpec(AppliedToPods(), egress_ips=FOURS[:2], external_ip_pools=POOLS[:2])
        meta = Metadata(name="web", uid="u1", creation_timestamp="1", annotations={FAILBACK: "when-idle"})
        rows = egress_rows(crd.Egress(spec, meta, crd.EgressStatus(addresses=tuple(at))))
        others = [AgentNode(name, (), ()) for name in NODES[:2]]
        facts = known(AgentConfig(), Quorum(has=True, alive=2, of=2), wide_pool("four", ()), *others)
        for row in (
            GossipMember("n2", alive=True),
            *rows,
            *(LocalAddress(ip, "antrea-egress0") for ip in FOURS[:2]),
        ):
            facts.put(row)
        Engine(facts, (*owner.FEATURE.units, *POOL_MEMBERS.units)).plan()
        return facts, rows

    # both are at n1, as n2 was away: one of them is at home there
    facts, rows = agent()
    owners = {row.egress: row for row in facts.all(EgressOwner)}
    assert [row.node for row in owners.values()] == ["n1", "n1"]
    (away,) = (row for row in rows if owners[row.key].home)
    assert owners[away.key].home == "n2"
    waits = (("egressIP", away.ip), ("egressNode", "n1"), ("failback", "waits"))
    (said,) = (said for row in rows for said in egress_status(facts, row) if isinstance(said, Status))
    assert said.items
    assert waits in said.items.items
    assert [len(item) for item in said.items.items if item != waits] == [2]
    # it stays while the status says so, and goes when that says that it is idle
    for word, node in (("waits", "n1"), ("idle", "n2")):
        facts, _ = agent(**{f"at{away.ip[-2:]}": word})
        found = facts.get(EgressOwner, away.key)
        assert found
        assert found.node == node
    facts, rows = agent()
    facts.put(UnusedAddress(away.ip))
    (said,) = (said for row in rows for said in egress_status(told(facts), row) if isinstance(said, Status))
    assert said.items
    assert (*waits[:2], ("failback", "idle")) in said.items.items


def test_one_node_says_that_an_address_is_nowhere() -> None:
    rows = described(FOURS[:2], POOLS[:2])
    lost = EgressOwner("web", "", NO_ROOM), EgressOwner("web 1", "n2")
    assert stated(*rows, *lost) == []
    (said,) = stated(*rows, *lost, Quorum(has=True, alive=1, of=1))
    nobody = (("egressNode", ""), ("egressIP", ""))
    assert msgspec.structs.replace(said, conditions=()) == shown(nobody, (FOURS[0], ""))
    (condition,) = said.conditions
    assert (condition.status, condition.message) == (
        "False",
        f"Failed to assign the IP to EgressNode: {FOURS[0]}: {NO_ROOM}",
    )


def test_a_node_says_which_of_several_addresses_its_host_does_not_take() -> None:
    rows = described(FOURS[:2], POOLS[:2])
    owners = EgressOwner("web", "n2"), EgressOwner("web 1", "n1")
    (said,) = stated(*rows, *owners, Unrealized(HELD_ADDRESSES.name, "web 1", "no"))
    assert said.items == shown((), (FOURS[1], "")).items
    (condition,) = said.conditions
    assert condition.message == (
        f"Failed to assign the IP to EgressNode: {FOURS[1]}: Node n1 cannot take {FOURS[1]}: no"
    )


@pytest.mark.parametrize(
    "rows",
    [
        (EgressOwner("web", "n1"), LocalAddress(FOURS[0], "antrea-egress0"), EgressMark(FOURS[0], 7)),
        (EgressOwner("web", "n1"), LocalAddress(FOURS[0], "antrea-egress0")),
        (EgressOwner("web", "n1"), Unrealized(HELD_ADDRESSES.name, "web", "no")),
        (EgressOwner("web", "", NO_ROOM), Quorum(has=True, alive=1, of=1)),
        (EgressOwner("web", "n2"), LocalAddress(FOURS[0], "antrea-egress0"), EgressMark(FOURS[0], 7)),
        (),
    ],
    ids=["here", "without a mark", "refused", "nowhere", "elsewhere", "not placed"],
)
def test_the_status_of_one_address_is_that_of_a_list_of_one_but_for_the_entry(
    rows: tuple[object, ...],
) -> None:
    def reported(spec: crd.EgressSpec) -> tuple[list[Status], list[RecordAssignmentFailed]]:
        (row,) = egress_rows(crd.Egress(spec, Metadata(name="web", uid="u1", creation_timestamp="1")))
        found = list(egress_status(told(known(row, *rows)), row))
        acts = [one for one in found if isinstance(one, RecordAssignmentFailed)]
        return [one for one in found if isinstance(one, Status)], acts

    who = AppliedToPods()
    one, acts = reported(crd.EgressSpec(who, egress_ip=FOURS[0], external_ip_pool="four"))
    many, more = reported(crd.EgressSpec(who, egress_ips=FOURS[:1], external_ip_pools=("four",)))
    assert all(status.items is None for status in one)
    without_entry = [msgspec.structs.replace(status, items=None) for status in many]
    text = msgspec.json.encode(without_entry).decode().replace(f"EgressNode: {FOURS[0]}: ", "EgressNode: ")
    assert text == msgspec.json.encode(one).decode()
    named = [(act.egress, act.message.replace(f"EgressNode: {FOURS[0]}: ", "EgressNode: ")) for act in more]
    assert named == [(act.egress, act.message) for act in acts]


def test_the_bandwidth_of_a_list_is_reported_also_while_one_of_its_addresses_is_missing() -> None:
    rows = [msgspec.structs.replace(row, limit=EgressLimit(1, 1)) for row in described(FOURS[:2], POOLS[:2])]
    owners = EgressOwner("web", "n1"), EgressOwner("web 1", "n1")
    refused = Unrealized(HELD_ADDRESSES.name, "web 1", "no")
    (said,) = stated(*rows, *owners, LocalAddress(FOURS[0], "antrea-egress0"), refused)
    assert [(one.type, one.status) for one in said.conditions] == [
        ("IPAssigned", "False"),
        ("BandwidthLimited", "False"),
    ]


def test_rows_of_an_egress_without_lists_are_what_they_were() -> None:
    spec = crd.EgressSpec(AppliedToPods(), egress_ip="2001:DB8::1", external_ip_pool="p")
    (row,) = egress_rows(crd.Egress(spec, Metadata(name="web")))
    assert (row.key, row.ip, row.pool, row.slot, row.of) == ("web", "2001:db8::1", "p", 0, 0)


@pytest.mark.parametrize(("said", "ip"), [("::ffff:192.0.2.1", "192.0.2.1"), ("192.0.2.01", "")])
def test_an_address_that_the_schema_lets_pass_or_has_let_pass_ends_no_agent_and_is_what_go_takes_it_for(
    said: str, ip: str
) -> None:
    (row,) = egress_rows(crd.Egress(crd.EgressSpec(AppliedToPods(), egress_ip=said), Metadata(name="web")))
    assert row.ip == ip
