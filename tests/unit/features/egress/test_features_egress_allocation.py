"""Addresses of pools: which there are, who has which, and what statuses say; expected values as upstream has them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antrea.apis.crd.egress import Egress
from antrea.apis.crd.part import Condition
from antrea.apis.crd.pool import ExternalIPPool
from antrea.apis.egress_address import EgressAddress
from antrea.apis.status import Status
from antrea.engine import Engine, Facts
from antrea.facts.external_ip import FencedLeadership, PendingAllocation
from antrea.features.egress.controller.allocation import UNITS
from antrea.features.egress.controller.feature import egress_row
from antrea.features.external_ip_pool.address import free, total
from antrea.features.external_ip_pool.controller import FEATURE
from antrea.features.external_ip_pool.pool import PoolRow, pool_row
from antrea.features.framework.address import canonical
from antrea.features.framework.event import RecordEvent

EGRESSES, POOLS = "/apis/crd.antrea.io/v1beta1/egresses", "/apis/crd.antrea.io/v1beta1/externalippools"
ALLOCATED = Condition("IPAllocated", "True", reason="Allocated", message="EgressIP is successfully allocated")


def pool(name: str, *ranges: str, uid: str = "u1", generation: int = 1) -> Any:
    spec = {
        "ipRanges": [
            {"cidr": text} if "/" in text else dict(zip(("start", "end"), text.split("-"), strict=True))
            for text in ranges
        ],
        "nodeSelector": {},
    }
    meta = {"name": name, "uid": uid, "generation": generation}
    return pool_row(msgspec.convert({"metadata": meta, "spec": spec}, ExternalIPPool))


def egress(name: str, pool: str = "", address: str = "", **more: Any) -> Any:
    spec = {"appliedTo": {}, "externalIPPool": pool, "egressIP": address}
    meta = {"name": name, "uid": f"uid-{name}", "generation": more.get("generation", 1)}
    meta |= {"creationTimestamp": more.get("since", "")}
    conditions = [{"type": "IPAllocated", "status": more["judged"]}] if "judged" in more else []
    return egress_row(
        msgspec.convert({"metadata": meta, "spec": spec, "status": {"conditions": conditions}}, Egress)
    )


def refusal(why: str) -> Condition:
    message = f"Cannot allocate EgressIP from ExternalIPPool: {why}"
    return Condition("IPAllocated", "False", reason="AllocationError", message=message)


def about(name: str, condition: Condition) -> Status:
    return Status(
        path=f"{EGRESSES}/{name}", kind="Egress", manager="antrea-controller", conditions=(condition,)
    )


def full(name: str, total: int, used: int) -> Status:
    fields = (("usage.total", total), ("usage.used", used))
    return Status(path=f"{POOLS}/{name}", kind="ExternalIPPool", manager="antrea-controller", fields=fields)


def wanted(*rows: Any) -> set[Any]:
    """All that is wanted of the leader over these rows."""
    facts = Facts()
    for row in (FencedLeadership(), *rows):
        facts.put(row)
    engine = Engine(facts, [*UNITS, *FEATURE.units])
    engine.plan()
    assert not engine.errors.standing
    return set(engine.standing().values())


def gives(name: str, address: str, **more: Any) -> EgressAddress:
    usual: dict[str, Any] = {
        "uid": f"uid-{name}",
        "generation": 1,
        "pool": "p",
        "pool_uid": "u1",
        "pool_generation": 1,
    }
    return EgressAddress(egress=name, address=address, **(usual | more))


@pytest.mark.parametrize(
    ("text", "many", "first", "last"),
    [
        ("10.50.0.0/29", 6, "10.50.0.1", "10.50.0.6"),
        ("10.60.0.2-10.60.0.4", 3, "10.60.0.2", "10.60.0.4"),
        ("10.60.1.0/30", 2, "10.60.1.1", "10.60.1.2"),
        ("10.70.0.9-10.70.0.9", 1, "10.70.0.9", "10.70.0.9"),
        ("fd00:50::/125", 7, "fd00:50::1", "fd00:50::7"),
        ("10.0.0.7/29", 6, "10.0.0.1", "10.0.0.6"),
        ("10.0.0.0/31", 0, "", ""),
        ("10.0.0.0/32", 0, "", ""),
        ("fd00::/128", 0, "", ""),
        ("10.0.0.0/8", 65535, "10.0.0.1", "10.0.255.255"),
        ("fd00::/64", 65536, "fd00::1", "fd00::1:0"),
        ("10.0.0.0-10.9.0.0", 65536, "10.0.0.0", "10.0.255.255"),
    ],
)
def test_a_range_has_the_addresses_that_hosts_can_have_and_at_most_65536(
    text: str, many: int, first: str, last: str
) -> None:
    spans = pool("p", text).spans
    found = [*free(spans, lambda *_: ())]
    assert (total(spans), len(found)) == (many, many)
    assert not many or (found[0], found[-1]) == (first, last)


def test_addresses_of_all_ranges_are_given_in_their_order_and_those_that_are_taken_are_left_out() -> None:
    spans = pool("p", "10.0.0.5-10.0.0.6", "10.0.0.0/30", "fd00::/127").spans
    taken = {(4, 10 << 16): [(10 << 24) + 5, (10 << 24) + 2]}
    assert [*free(spans, lambda family, block: taken.get((family, block), ()))] == [
        "10.0.0.6",
        "10.0.0.1",
        "fd00::1",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("FD00:0::1", "fd00::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("x", ""),
        ("", ""),
    ],
)
def test_an_address_is_written_in_one_way(text: str, shown: str) -> None:
    assert canonical(text) == shown


def test_the_oldest_gets_the_lowest_and_the_pool_says_how_full_it_is() -> None:
    rows = [egress("new", "p", since="2"), egress("old", "p", since="1"), egress("has", "p", "10.0.0.1")]
    assert wanted(pool("p", "10.0.0.0/29"), *rows) == {
        gives("old", "10.0.0.2"), gives("new", "10.0.0.3"), about("has", ALLOCATED), full("p", 6, 1),
    }  # fmt: skip


def test_the_address_of_the_pools_router_is_given_to_nobody_unless_it_asks_for_it() -> None:
    one = msgspec.structs.replace(pool("p", "10.0.0.0/29"), gateway="10.0.0.1")
    rows = [egress("a", "p", since="1"), egress("asks", "p", "10.0.0.1", since="2")]
    assert wanted(one, rows[0]) == {gives("a", "10.0.0.2"), full("p", 6, 0)}
    assert wanted(one, *rows) == {gives("a", "10.0.0.2"), about("asks", ALLOCATED), full("p", 6, 1)}
    subnet = {"gateway": "FD00::1", "prefixLength": 64}
    found = {"metadata": {"name": "p"}, "spec": {"ipRanges": [], "nodeSelector": {}, "subnetInfo": subnet}}
    assert pool_row(msgspec.convert(found, ExternalIPPool)).gateway == "fd00::1"


def test_a_pool_of_both_families_is_used_range_by_range() -> None:
    rows = [egress("a", "p", since="1"), egress("b", "p", since="2")]
    found = wanted(pool("p", "10.0.0.1-10.0.0.1", "fd00::/126"), *rows)
    assert found == {gives("a", "10.0.0.1"), gives("b", "fd00::1"), full("p", 4, 0)}


def test_while_another_replica_leads_nothing_is_wanted() -> None:
    facts = Facts()
    for row in (pool("p", "10.0.0.0/29"), egress("a", "p"), egress("b", judged="True")):
        facts.put(row)
    engine = Engine(facts, [*UNITS, *FEATURE.units])
    engine.plan()
    assert engine.standing() == {}


def test_an_exhausted_pool_is_told_to_those_that_wait_and_a_freed_address_goes_to_the_first_of_them() -> None:
    one = pool("p", "10.0.0.9-10.0.0.9")
    has, first, second = (
        egress("has", "p", "10.0.0.9"),
        egress("w1", "p", since="1"),
        egress("w2", "p", since="2"),
    )
    none = refusal("cannot allocate IP in any range")
    assert wanted(one, has, first, second) == {
        about("has", ALLOCATED), about("w1", none), about("w2", none), full("p", 1, 1),
    }  # fmt: skip
    assert wanted(one, first, second) == {gives("w1", "10.0.0.9"), about("w2", none), full("p", 1, 0)}


def test_an_address_that_a_static_egress_names_is_not_given_and_does_not_count_as_used() -> None:
    rows = [egress("static", "", "10.0.0.1"), egress("a", "p")]
    assert wanted(pool("p", "10.0.0.1-10.0.0.2"), *rows) == {gives("a", "10.0.0.2"), full("p", 2, 0)}


def test_of_two_that_name_one_address_the_older_has_it() -> None:
    rows = [egress("b", "p", "10.0.0.1", since="1"), egress("a", "p", "10.0.0.1", since="2")]
    what = "error when allocating IP 10.0.0.1 for Egress a from ExternalIPPool p"
    assert wanted(pool("p", "10.0.0.0/29"), *rows) == {
        about("b", ALLOCATED),
        about("a", refusal(f"{what}: cannot allocate IP 10.0.0.1 in any range (Egress/b has it)")),
        full("p", 6, 1),
    }


def test_the_broadcast_address_of_a_pool_cannot_be_had_and_is_not_taken_away() -> None:
    what = "error when allocating IP 10.0.0.7 for Egress a from ExternalIPPool p"
    assert wanted(pool("p", "10.0.0.0/29"), egress("a", "p", "10.0.0.7")) == {
        about("a", refusal(f"{what}: cannot allocate IP 10.0.0.7 in any range")),
        full("p", 6, 0),
    }


def test_an_address_beyond_those_that_are_given_may_be_asked_for() -> None:
    assert wanted(pool("p", "10.0.0.0/8"), egress("a", "p", "10.200.0.1")) == {
        about("a", ALLOCATED), full("p", 65535, 1),
    }  # fmt: skip


def test_an_address_of_a_pool_that_is_gone_is_given_up() -> None:
    assert wanted(egress("a", "p", "10.0.0.1"), egress("b", "p")) == {
        gives("a", "", takes=True, pool_uid="", pool_generation=0),
        about("a", refusal("ExternalIPPool p does not exist")),
        about("b", refusal("ExternalIPPool p does not exist")),
    }


def test_an_address_that_its_pool_has_no_more_is_exchanged_or_given_up() -> None:
    rows = [egress("a", "p", "10.9.9.9", since="1"), egress("b", "p", "10.9.9.8", since="2")]
    assert wanted(pool("p", "10.0.0.1-10.0.0.1"), *rows) == {
        gives("a", "10.0.0.1", takes=True),
        gives("b", "", takes=True),
        about("b", refusal("cannot allocate IP in any range")),
        full("p", 1, 0),
    }


def test_an_egress_that_has_left_its_pools_says_nothing_of_them() -> None:
    rows = [egress("left", "", "10.0.0.1", judged="True"), egress("never", "", "10.0.0.2")]
    assert wanted(*rows) == {about("left", Condition("IPAllocated"))}


def test_what_is_being_written_stays_with_its_egress_as_long_as_that_is_the_same() -> None:
    two = pool("p", "10.0.0.1-10.0.0.2")
    rows = [egress("a", "p", since="1"), egress("b", "p", since="2")]
    kept = PendingAllocation("Egress/b", "uid-b", 1, "10.0.0.1")
    assert wanted(two, kept, *rows) == {gives("a", "10.0.0.2"), gives("b", "10.0.0.1"), full("p", 2, 0)}
    for outlived in (
        PendingAllocation("Egress/b", "uid-x", 1, "10.0.0.1"),
        PendingAllocation("Egress/b", "uid-b", 0, "10.0.0.1"),
    ):
        assert wanted(two, outlived, *rows) == {
            gives("a", "10.0.0.1"), gives("b", "10.0.0.2"), full("p", 2, 0),
        }  # fmt: skip


def test_an_event_tells_when_the_condition_turns_and_only_then() -> None:
    facts = Facts()
    engine = Engine(facts, [*UNITS, *FEATURE.units])

    def told(*rows: Any) -> list[Any]:
        for row in rows:
            facts.put(row)
        return engine.plan().acts

    def event(reason: str, message: str, *, warning: bool) -> RecordEvent:
        return RecordEvent(
            "a", message, "crd.antrea.io/v1beta1", "Egress", "a", "uid-a", reason, message, warning=warning
        )

    missing = "Cannot allocate EgressIP from ExternalIPPool: ExternalIPPool p does not exist"
    none = "Cannot allocate EgressIP from ExternalIPPool: cannot allocate IP in any range"
    given = "EgressIP 10.0.0.1 is allocated from ExternalIPPool p"
    at_once = (
        pool("q", "10.0.1.1-10.0.1.1"),
        msgspec.structs.replace(egress("z", "q", "10.0.1.1"), judged=""),
    )
    assert told(FencedLeadership(), *at_once) == []
    assert told(egress("a", "p")) == [event("AllocationError", missing, warning=True)]
    assert told(egress("a", "p", judged="False")) == []
    assert told(pool("p", "10.0.0.1-10.0.0.1")) == []
    allocated = told(egress("a", "p", "10.0.0.1", judged="False", generation=2))
    assert allocated == [event("Allocated", given, warning=False)]
    assert told(egress("a", "p", "10.0.0.1", judged="True", generation=2)) == []
    other = egress("b", "p", "10.0.0.1", judged="True")
    assert told(other, egress("a", "p", judged="True", generation=3)) == [
        event("AllocationError", none, warning=True)
    ]


class Counted(Facts):
    """Counts what units ask for, and the rows of the answers."""

    asked = 0

    def get(self, kind: Any, key: str = "self") -> Any:
        self.asked += 1
        return super().get(kind, key)

    def by(self, kind: Any, index: str, value: Any) -> Any:
        rows = super().by(kind, index, value)
        self.asked += 1 + len(rows)
        return rows


def test_giving_an_address_costs_little_more_in_a_pool_that_has_given_many() -> None:
    def cost(many: int) -> int:
        facts = Counted()
        engine = Engine(facts, [*UNITS, *FEATURE.units])
        facts.put(FencedLeadership())
        facts.put(pool("p", "10.0.0.0/16"))
        for number in range(1, many + 1):
            facts.put(egress(f"e{number}", "p", f"10.0.{number // 256}.{number % 256}"))
        engine.plan()
        facts.asked = 0
        facts.put(egress("new", "p"))
        plan = engine.plan()
        assert [entry.address for entry in plan.put] == [f"10.0.{(many + 1) // 256}.{(many + 1) % 256}"]
        facts.put(egress("new", "p", plan.put[0].address, generation=2))
        engine.plan()
        return facts.asked

    assert cost(2000) - cost(10) <= 4 * 2000 // 256


def test_a_condition_that_somebody_else_took_out_of_the_list_is_written_again() -> None:
    facts = Facts()
    for row in (FencedLeadership(), pool("p", "10.0.0.0/29"), egress("a", "p", "10.0.0.1", judged="True")):
        facts.put(row)
    engine = Engine(facts, [*UNITS, *FEATURE.units])
    engine.plan()
    facts.put(msgspec.structs.replace(egress("a", "p", "10.0.0.1"), lost=True))
    (again,) = (one for one in engine.plan().put if isinstance(one, Status))
    assert again.conditions[0] == ALLOCATED
    facts.put(egress("a", "p", "10.0.0.1", judged="True"))
    assert [one for one in engine.plan().put if isinstance(one, Status)] == [about("a", ALLOCATED)]


def test_a_status_without_the_condition_on_the_address_is_known() -> None:
    def lost(*types: str) -> bool:
        conditions = [{"type": one, "status": "True"} for one in types]
        found = {"metadata": {"name": "a"}, "spec": {"appliedTo": {}}, "status": {"conditions": conditions}}
        return egress_row(msgspec.convert(found, Egress)).lost

    assert [lost(), lost("IPAssigned"), lost("IPAssigned", "IPAllocated")] == [False, True, False]


def test_ranges_that_cannot_be_read_are_named_in_a_condition_of_their_pool() -> None:
    odd = pool("p", "10.6.0.0/30", "10.6.1.0/33", "10.6.2.9-10.6.2.1", "x" * 999 + "/8", "y/8", "z/8")
    (judged,) = conditions(odd)
    assert (judged.type, judged.status, judged.reason) == ("RangesValid", "False", "InvalidRange")
    assert judged.message.startswith(
        "no address of these ranges is given, correct them: spec.ipRanges[1].cidr: invalid cidr 10.6.1.0/33;"
        " spec.ipRanges[2].end: range start 10.6.2.9 should not be greater than range end 10.6.2.1; spec.ipRanges[3]"
    )
    assert judged.message.endswith("x; and 2 more")
    assert len(judged.message) < 500
    assert full("p", 2, 0) in wanted(odd)


def test_the_condition_goes_when_all_ranges_can_be_read() -> None:
    sound = pool("p", "10.6.0.0/30")
    assert conditions(sound) == ()
    before = msgspec.structs.replace(sound, reported_invalid=True)
    assert conditions(before) == (Condition("RangesValid"),)


@pytest.mark.parametrize(
    ("kind", "unanswered", "invalid"), [("GatewayAnswers", True, False), ("RangesValid", False, True)]
)
def test_a_pool_knows_its_conditions_apart(kind: str, unanswered: bool, invalid: bool) -> None:
    status = {"conditions": [{"type": kind, "status": "False"}]}
    row = pool_row(
        msgspec.convert({"spec": {"ipRanges": [], "nodeSelector": {}}, "status": status}, ExternalIPPool)
    )
    assert (row.unanswered, row.reported_invalid) == (unanswered, invalid)


def conditions(row: PoolRow) -> tuple[Condition, ...]:
    """What the controller says of a pool."""
    return tuple(condition for one in wanted(row) if isinstance(one, Status) for condition in one.conditions)
