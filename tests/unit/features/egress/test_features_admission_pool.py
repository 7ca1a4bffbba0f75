"""What pools and Egresses may say: one row per rule, with the whole message."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from admission_world import OK, World, facts_of, named, webhook
from hypothesis import given
from hypothesis import strategies as st
from pool_range_world import INFO, NET, RANGES, SOME, UPDATES

from antrea.apis.crd.pool import ExternalIPPool
from antrea.errors import Invalid
from antrea.features.external_ip_pool.pool import POOLS, PoolRow, pool_row
from antrea.features.framework.admission import Review
from antrea.features.framework.ip_range import Span, TakenRanges, check_inside

if TYPE_CHECKING:
    from types import FrameType


def external(*ranges: dict[str, Any], info: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "ipRanges": list(ranges),
        "nodeSelector": {},
        **({"subnetInfo": info} if info is not None else {}),
    }


OTHER = pool_row(msgspec.convert(named(external({"cidr": "10.6.0.0/30"}), "other"), ExternalIPPool))


@pytest.mark.parametrize(("ranges", "info", "said"), RANGES.values(), ids=RANGES.keys())
def test_ranges_get_this_answer(ranges: list[dict[str, Any]], info: dict[str, Any], said: str) -> None:
    assert World().decide("/validate/externalippool", named(external(*ranges, info=info))) == said


def test_pools_of_external_addresses_do_not_overlap() -> None:
    world = World(OTHER)
    new = external(NET, {"start": "10.6.0.3", "end": "10.6.0.3"})
    said = (
        world.decide("/validate/externalippool", named(new)),
        world.decide("/validate/externalippool", named(new, "other")),
    )
    assert said == (
        "spec.ipRanges[1]: range [10.6.0.3-10.6.0.3] overlaps with range [10.6.0.0/30] of ExternalIPPool other",
        OK,
    )


def test_a_pool_has_addresses_with_which_nodes_can_send_and_a_gateway_that_a_router_can_have() -> None:
    def said(info: dict[str, Any] | None, *ranges: dict[str, Any]) -> str:
        return World().decide("/validate/externalippool", named(external(*ranges, info=info)))

    useless = {
        "0.0.0.0/0": "unspecified addresses (0.0.0.0/8)",
        "127.7.0.0/24": "loopback addresses (127.0.0.0/8)",
        "255.255.255.0/24": "broadcast addresses (255.255.255.255/32)",
        "169.254.0.0/16": "the host's and switch's own addresses (169.254.0.0/24)",
        "fe80::/64": "link-local addresses (fe80::/10)",
        "::ffff:10.0.0.0/120": "IPv4-mapped addresses (::ffff:0:0/96)",
    }
    assert said(None, {"cidr": "169.254.100.0/30"}) == OK, "upstream's test/e2e has such pools"
    for cidr, what in useless.items():
        assert said(None, {"cidr": cidr}) == (
            f"spec.ipRanges[0]: range [{cidr}] has {what}, with which no Node can send"
        )
    gateways = {
        "10.5.0.0": "10.5.0.0 is the first or last address of 10.5.0.0/24: no router has it",
        "10.5.0.255": "10.5.0.255 is the first or last address of 10.5.0.0/24: no router has it",
    }
    for gateway, why in gateways.items():
        assert said({"gateway": gateway, "prefixLength": 24}, SOME) == f"spec.subnetInfo.gateway: {why}"
    inside = said({"gateway": "10.5.0.21", "prefixLength": 24}, NET, SOME)
    assert inside == (
        f"{OK}; spec.subnetInfo.gateway: 10.5.0.21 lies in spec.ipRanges[1]: no Egress is given it"
    )
    assert said(None) == f"{OK}; spec.ipRanges: is empty, so the pool has no address to give"


def test_what_a_pool_had_before_it_was_looked_at_stays() -> None:
    stored = named(external({"cidr": "224.7.0.0/24"}, info={"gateway": "224.7.0.0", "prefixLength": 24}))
    grown = named(external({"cidr": "224.7.0.0/24"}, {"cidr": "224.7.0.0/30"}))
    pool = World().decide(
        "/validate/externalippool", {**stored, "metadata": {"name": "x", "labels": {}}}, stored
    )
    assert pool == OK
    assert "overlaps" in World().decide("/validate/externalippool", grown, stored)
    egress = named({"appliedTo": {}, "egressIP": "224.7.0.1"})
    wider = named({"appliedTo": {"podSelector": {}}, "egressIP": "224.7.0.1"})
    assert World().decide("/validate/egress", wider, egress) == OK


def test_ranges_may_come_but_not_go() -> None:
    def pool(*ranges: dict[str, Any]) -> dict[str, Any]:
        return named(external(*ranges, info=INFO))

    for ranges, before, said in UPDATES:
        assert World().decide("/validate/externalippool", pool(*ranges), pool(*before)) == said


NOT_QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
EGRESSES: dict[str, tuple[dict[str, Any], str]] = {
    "several addresses": ({"egressIPs": ["10.6.0.1", "fd00::1"]}, OK),
    "several pools": ({"externalIPPools": ["other", "other", "other"]}, OK),
    "one address of its pool, one of none": (
        {"egressIPs": ["10.6.0.3", "10.9.9.9"], "externalIPPools": ["other", ""]},
        OK,
    ),
    "an address that is to come": ({"egressIPs": ["", "fd00::1"], "externalIPPools": ["other", ""]}, OK),
    "lists of different lengths": (
        {"egressIPs": ["10.6.0.1"], "externalIPPools": ["other", "other"]},
        "spec.egressIPs: 1 addresses and 2 pools: each entry of one belongs to that of the other",
    ),
    "an entry without anything": (
        {"egressIPs": ["10.9.9.9", ""]},
        "spec.egressIPs[1]: has neither an address nor a pool to be given one of",
    ),
    "one address twice": (
        {"egressIPs": ["fd00::1", "fd00:0::1"]},
        "spec.egressIPs[1]: IP fd00:0::1 is that of spec.egressIPs[0]",
    ),
    "one of several outside its pool": (
        {"egressIPs": ["10.6.0.3", "10.6.0.4"], "externalIPPools": ["other", "other"]},
        "spec.egressIPs[1]: IP 10.6.0.4 is not within the IP range",
    ),
    "one of several pools that is not there": (
        {"egressIPs": ["10.6.0.3", "10.6.0.4"], "externalIPPools": ["other", "nowhere"]},
        "spec.externalIPPools[1]: ExternalIPPool nowhere does not exist",
    ),
    "a rate in words": (
        {"bandwidth": {"rate": "fast", "burst": "1M"}},
        f"spec.bandwidth.rate: Rate fast in Egress x is invalid: {NOT_QUANTITY}",
    ),
    "a burst in words": (
        {"bandwidth": {"rate": "1.5Gi", "burst": "1 M"}},
        f"spec.bandwidth.burst: Burst 1 M in Egress x is invalid: {NOT_QUANTITY}",
    ),
    "bandwidth": ({"egressIP": "1.1.1.1", "bandwidth": {"rate": "500k", "burst": "1e6"}}, OK),
    "nothing": (
        {"externalIPPool": ""},
        f"{OK}; spec: names neither an address nor an ExternalIPPool to be given one of, so it does nothing",
    ),
    "an address that is none": ({"egressIP": "01.2.3.4"}, "spec.egressIP: IP 01.2.3.4 is not valid"),
    "an address of a group": (
        {"egressIP": "224.0.0.1"},
        "spec.egressIP: IP 224.0.0.1 is one of multicast addresses (224.0.0.0/4), with which no Node can send",
    ),
    "an address of one link": (
        {"egressIPs": ["1.1.1.1", "fe80::1"]},
        "spec.egressIPs[1]: IP fe80::1 is one of link-local addresses (fe80::/10), with which no Node can send",
    ),
    "a selector without sense": (
        {
            "egressIP": "1.1.1.1",
            "appliedTo": {
                "namespaceSelector": {
                    "matchExpressions": [
                        {"key": "a", "operator": "In"},
                        {"key": "a/b", "operator": "Exists", "values": ["x"]},
                        {"key": "a", "operator": "NotIn", "values": ["x"]},
                    ]
                },
            },
        },
        (
            f"{OK}; spec.appliedTo.namespaceSelector.matchExpressions[0].values: In without values: nothing is selected;"
            " spec.appliedTo.namespaceSelector.matchExpressions[1].values: they count for nothing with Exists"
        ),
    ),
    "a selector of what no label has": (
        {"egressIP": "1.1.1.1", "appliedTo": {"podSelector": {"matchLabels": {64 * "a": "c"}}}},
        (
            f"spec.appliedTo.podSelector.matchLabels: Invalid label key: '{64 * 'a'}':"
            " name part must be no more than 63 characters"
        ),
    ),
    "a destination with bits of a host": (
        {"egressIP": "1.1.1.1", "destinations": {"cidrs": ["192.0.2.9/24"]}},
        f"{OK}; spec.destinations.cidrs[0]: 192.0.2.9/24 counts as 192.0.2.0/24",
    ),
    "a destination with a zone": (
        {"egressIP": "1.1.1.1", "destinations": {"cidrs": ["fe80::%a,b/64"]}},
        "spec.destinations.cidrs[0]: invalid cidr fe80::%a,b/64",
    ),
    "exceptions from everything": (
        {"egressIP": "1.1.1.1", "destinations": {"except": ["0.0.0.0/0"]}},
        f"{OK}; spec.destinations.except: leaves nothing that the Egress is for",
    ),
    "exceptions from all destinations": (
        {
            "externalIPPool": "other",
            "destinations": {"cidrs": ["192.0.2.0/24", "fd00::/64"], "except": ["192.0.0.0/16", "fd00::/8"]},
        },
        f"{OK}; spec.destinations.except: leaves nothing that the Egress is for",
    ),
    "exceptions from some": (
        {"externalIPPool": "other", "destinations": {"except": ["0.0.0.0/0"]}},
        OK,
    ),
    "destinations": (
        {"egressIP": "1.1.1.1", "destinations": {"cidrs": ["192.0.2.0/24"], "except": ["192.0.2.9/32"]}},
        OK,
    ),
    "a destination in words": (
        {"destinations": {"cidrs": ["192.0.2.0/24"], "except": ["192.0.2.0/33"]}},
        "spec.destinations.except[0]: invalid cidr 192.0.2.0/33",
    ),
    "destinations of the other family": (
        {"egressIP": "1.1.1.1", "destinations": {"cidrs": ["fd00::/8"], "except": ["192.0.2.9/32"]}},
        (
            f"{OK}; spec.destinations.cidrs[0]: fd00::/8 is not of the family of 1.1.1.1, it changes nothing;"
            " spec.destinations.cidrs: none is of the family of 1.1.1.1, so nothing leaves with it"
        ),
    ),
    "a rate of nothing": (
        {"bandwidth": {"rate": "0", "burst": "1M"}},
        "spec.bandwidth.rate: Rate 0 in Egress x is invalid: it must be 1k to 4294967295k",
    ),
    "a rate below nothing": (
        {"bandwidth": {"rate": "-5M", "burst": "1M"}},
        "spec.bandwidth.rate: Rate -5M in Egress x is invalid: it must be 1k to 4294967295k",
    ),
    "more than a meter counts": (
        {"bandwidth": {"rate": "1M", "burst": "5T"}},
        "spec.bandwidth.burst: Burst 5T in Egress x is invalid: it must be 1k to 4294967295k",
    ),
    "a burst without room for a packet": (
        {"egressIP": "1.1.1.1", "bandwidth": {"rate": "1M", "burst": "8k"}},
        f"{OK}; spec.bandwidth.burst: frames of more than 1000 bytes never pass, 13k is room for one of 1514",
    ),
    "an address alone": ({"egressIP": "1.1.1.1"}, OK),
    "a pool alone": ({"externalIPPool": "other"}, OK),
    "an address of the pool": ({"egressIP": "10.6.0.3", "externalIPPool": "other"}, OK),
    "no address": ({"egressIP": "x", "externalIPPool": "other"}, "spec.egressIP: IP x is not valid"),
    "an address outside": (
        {"egressIP": "10.6.0.4", "externalIPPool": "other"},
        "spec.egressIP: IP 10.6.0.4 is not within the IP range",
    ),
    "an address of another family": (
        {"egressIP": "::a06:1", "externalIPPool": "other"},
        "spec.egressIP: IP ::a06:1 is not within the IP range",
    ),
    "a pool that is not there": (
        {"egressIP": "10.6.0.1", "externalIPPool": "nowhere"},
        "spec.externalIPPool: ExternalIPPool nowhere does not exist",
    ),
}


@pytest.mark.parametrize(("spec", "said"), EGRESSES.values(), ids=EGRESSES.keys())
def test_an_egress_gets_this_answer(spec: dict[str, Any], said: str) -> None:
    assert World(OTHER).decide("/validate/egress", named({"appliedTo": {}, **spec})) == said


KNOWN = {"egress.antrea.io/preferred-nodes": "n1", "egress.antrea.io/failback": "never"}
WISHES: dict[str, tuple[dict[str, str], list[str]]] = {
    "known": (KNOWN, []),
    "back at once": ({"egress.antrea.io/failback": "immediate", "other.io/x": "y"}, []),
    "no such Node": (
        {"egress.antrea.io/preferred-nodes": "n1, n7,../pods,N1"},
        [
            f"annotation egress.antrea.io/preferred-nodes: there is no Node {name!r}"
            for name in ("n7", "../pods", "N1")
        ],
    ),
    "no such value": (
        {"egress.antrea.io/failback": "later"},
        [
            (
                "annotation egress.antrea.io/failback: 'later' is not immediate, when-idle or never,"
                " it counts as immediate"
            ),
        ],
    ),
    "an end to lost connections": ({"egress.antrea.io/lost-connections": "reset"}, []),
    "no such end": (
        {"egress.antrea.io/lost-connections": "drop"},
        [
            (
                "annotation egress.antrea.io/lost-connections: 'drop' is not continue or reset,"
                " it counts as continue"
            ),
        ],
    ),
    "connections that survive": ({"egress.antrea.io/survive": "ports"}, []),
    "no such survival": (
        {"egress.antrea.io/survive": "port"},
        ["annotation egress.antrea.io/survive: 'port' is not ports, sync or none, it counts as none"],
    ),
    "copies of connections": ({"egress.antrea.io/survive": "sync"}, []),
    "both survival and an end": (
        {"egress.antrea.io/survive": "ports", "egress.antrea.io/lost-connections": "reset"},
        ["annotation egress.antrea.io/survive has no effect: egress.antrea.io/lost-connections is reset"],
    ),
    "back when nobody uses it": ({"egress.antrea.io/failback": "when-idle"}, []),
    "no such annotation": (
        {"egress.antrea.io/prefered-node": "n1", "egress.antrea.io/x": ""},
        [
            "annotation egress.antrea.io/prefered-node is not known: did you mean egress.antrea.io/preferred-nodes?",
            "annotation egress.antrea.io/x is not known",
        ],
    ),
}


@pytest.mark.parametrize(("annotations", "warnings"), WISHES.values(), ids=WISHES.keys())
def test_what_an_egress_wishes_in_vain_is_named(annotations: dict[str, str], warnings: list[str]) -> None:
    world = World(OTHER, objects={"/api/v1/nodes/n1": {"metadata": {"name": "n1"}}})
    wanted = named({"appliedTo": {}, "externalIPPool": "other"})
    wishes = {**wanted, "metadata": {"name": "x", "annotations": annotations}}
    assert world.decide("/validate/egress", wishes) == "; ".join([OK, *warnings])
    assert world.decide("/validate/egress", wishes, wanted) == "; ".join([OK, *warnings])
    assert world.decide("/validate/egress", wishes, wishes) == OK


def test_wishes_for_an_address_that_no_pool_gives_are_in_vain() -> None:
    world = World(OTHER, objects={"/api/v1/nodes/n1": {"metadata": {"name": "n1"}}})
    wishes = named({"appliedTo": {}, "egressIP": "1.1.1.1"})
    wishes["metadata"]["annotations"] = KNOWN
    said = "annotations egress.antrea.io/... have no effect without spec.externalIPPool"
    assert world.decide("/validate/egress", wishes) == f"{OK}; {said}"


@pytest.mark.parametrize(
    ("spec", "annotations", "said"),
    [
        ({"survive": "sync", "externalIPPool": "other"}, {}, ""),
        ({"survive": "sync"}, {}, "spec.survive: 'sync'"),
        ({}, {"egress.antrea.io/survive": "sync"}, "annotation egress.antrea.io/survive: 'sync'"),
        (
            {"survive": "none"},
            {"egress.antrea.io/survive": "ports"},
            "annotation egress.antrea.io/survive has no effect: spec.survive is none",
        ),
        (
            {"survive": "ports"},
            {"egress.antrea.io/lost-connections": "reset"},
            "spec.survive has no effect: egress.antrea.io/lost-connections is reset",
        ),
    ],
)
def test_a_way_to_survive_without_effect_is_named(
    spec: dict[str, Any], annotations: dict[str, str], said: str
) -> None:
    wanted = named(
        {"appliedTo": {}, **({"egressIP": "1.1.1.1"} | spec if "externalIPPool" not in spec else spec)}
    )
    wanted["metadata"]["annotations"] = annotations
    warning = f"{said} has no effect without spec.externalIPPool" if said.endswith("'sync'") else said
    assert World(OTHER).decide("/validate/egress", wanted) == "; ".join(filter(None, [OK, warning]))


def test_a_bandwidth_that_stands_is_not_judged_by_its_size_again() -> None:
    old = named({"appliedTo": {}, "egressIP": "1.1.1.1", "bandwidth": {"rate": "0", "burst": "0"}})
    new = named({"appliedTo": {}, "egressIP": "1.1.1.2", "bandwidth": {"rate": "0", "burst": "0"}})
    assert World().decide("/validate/egress", new, old) == OK


DROPPED = (
    "status: dropped, it does not choose a Node; those that are to have the address first are named"
    " by the annotation egress.antrea.io/preferred-nodes"
)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({}, OK),
        (
            {"egressNode": "node-2"},
            f"{OK}; {DROPPED}",
        ),
    ],
)
def test_a_status_that_a_user_gives_gets_a_warning(status: dict[str, str], said: str) -> None:
    egress = {**named({"appliedTo": {}, "egressIP": "1.1.1.1"}), "status": status}
    assert World().decide("/mutate/egress", egress) == said
    mutate = webhook("/mutate/egress").mutate
    assert mutate
    assert list(mutate(facts_of(), Review("CREATE", egress))) == []


def test_an_address_that_did_not_change_is_not_checked_again() -> None:
    old = named({"appliedTo": {}, "egressIP": "9.9.9.9", "externalIPPool": "gone"})
    new = named({"appliedTo": {"podSelector": {}}, "egressIP": "9.9.9.9", "externalIPPool": "gone"})
    assert World().decide("/validate/egress", new, old) == OK


def test_a_pool_that_our_watch_has_not_seen_yet_is_looked_up() -> None:
    world = World(objects={f"{POOLS}/fresh": named(external({"cidr": "10.7.0.0/30"}), "fresh")})
    spec = {"appliedTo": {}, "egressIP": "10.7.0.1", "externalIPPool": "fresh"}
    assert (world.decide("/validate/egress", named(spec)), world.asked) == (OK, [f"{POOLS}/fresh"])


def test_ranges_that_were_stored_before_they_were_checked_count_as_none() -> None:
    pool = msgspec.convert(named(external({"start": "x", "end": "y"}, NET), "old"), ExternalIPPool)
    assert [span.text for span in pool_row(pool).spans] == ["10.5.0.0/28"]


def spans(*pairs: tuple[int, int]) -> list[Span]:
    return [Span(f"{first}-{last}", 4, first, last) for first, last in pairs]


PAIRS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 8)).map(lambda p: (p[0], p[0] + p[1])))


@given(pairs=PAIRS)
def test_the_first_overlap_in_order_is_the_one_that_is_told(pairs: list[tuple[int, int]]) -> None:
    made = spans(*pairs)
    slow = next(
        ((i, j) for i, one in enumerate(made) for j, other in enumerate(made[:i]) if one.overlaps(other)),
        None,
    )
    said = ""
    try:
        check_inside(made, None)
    except Invalid as error:
        said = str(error)
    i, j = slow or (0, 0)
    words = f"spec.ipRanges[{i}]: range [{made[i].text}] overlaps with range [{made[j].text}]" if slow else ""
    assert said == words


@given(others=PAIRS, one=st.tuples(st.integers(0, 60), st.integers(0, 8)))
def test_ranges_of_others_are_found_as_by_looking_at_each(
    others: list[tuple[int, int]], one: tuple[int, int]
) -> None:
    made, [mine] = spans(*others), spans((one[0], one[0] + one[1]))
    slow = next((number for number, other in enumerate(made) if mine.overlaps(other)), None)
    assert TakenRanges(made).first_over(mine) == slow


def comparisons(ranges: int, others: int) -> int:
    """How often two ranges are compared to decide on a pool of `ranges` beside `others`."""
    chance = random.Random(ranges)
    texts = [
        {"cidr": f"{10 + n // 65536}.{n // 256 % 256}.{n % 256}.0/30"}
        for n in chance.sample(range(200_000), ranges)
    ]
    world = World(*(PoolRow(f"p{n}", tuple(spans((n * 4, n * 4 + 3)))) for n in range(others)))
    count = 0

    def look(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code is Span.overlaps.__code__

    sys.setprofile(look)
    try:
        assert world.decide("/validate/externalippool", named(external(*texts))) == OK
    finally:
        sys.setprofile(None)
    return count


def test_the_work_on_a_pool_grows_with_its_ranges_and_not_with_their_square() -> None:
    few, many = comparisons(500, 500), comparisons(2000, 2000)
    assert few > 0
    assert many < 6 * few
