"""Configuration of FRR: what is written, how what FRR prints is read, and which commands make up the difference."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antrea.errors import Invalid
from antrea.host.bgp import (
    BfdOnlySession,
    BfdTimers,
    BgpImports,
    BgpNeighbor,
    BgpPrefix,
    BgpSpeaker,
    Password,
)
from antrea.outside.frr.configuration import bfd_tree, bgp_tree, changes, export_name, import_name, parse
from antrea.outside.frr.daemon import RefusedLine, concealed, refused_line
from antrea.outside.frr.vty import MAX_COMMAND, Answer, checked

SPEAKER = BgpSpeaker(64512, "10.7.0.1")
ROUTER = ("router bgp 64512",)
IPV4 = (*ROUTER, "address-family ipv4 unicast")
FAST = BfdTimers(100, 100, 3)
NEIGHBOR = BgpNeighbor(address="10.7.0.9", asn=64513, port=1790, ttl=3, password=Password("s3c"), bfd=FAST)
PRINTED = """
Current configuration:
!
frr version 10.3
frr defaults traditional
hostname x
!
router bgp 64512
 bgp router-id 10.7.0.1
 no bgp default ipv4-unicast
 bgp confederation identifier 65000
 bgp confederation peers 64514 64515
 neighbor 10.7.0.8 remote-as 64513
 neighbor 10.7.0.8 timers 3 9
 !
 address-family ipv4 unicast
  network 10.10.0.0/24
  network 203.0.113.5/32
  neighbor 10.7.0.8 activate
 exit-address-family
exit
!
route-map antrea-import deny 10
exit
!
route-map other permit 10
 set metric 5
exit
!
bfd
 profile antrea-100-100-3
  receive-interval 100
 exit
 !
exit
!
end
"""
PARSED = {
    ROUTER: [
        "bgp router-id 10.7.0.1",
        "no bgp default ipv4-unicast",
        "bgp confederation identifier 65000",
        "bgp confederation peers 64514",
        "bgp confederation peers 64515",
        "neighbor 10.7.0.8 remote-as 64513",
        "neighbor 10.7.0.8 timers 3 9",
    ],
    IPV4: ["network 10.10.0.0/24", "network 203.0.113.5/32", "neighbor 10.7.0.8 activate"],
    ("route-map antrea-import deny 10",): [],
    ("bfd",): [],
    ("bfd", "profile antrea-100-100-3"): ["receive-interval 100"],
}


def test_what_frr_prints_is_read_as_places_with_their_lines() -> None:
    assert parse(PRINTED) == PARSED


def test_a_configuration_that_stands_needs_no_command() -> None:
    tree = bgp_tree(SPEAKER, [NEIGHBOR], [BgpPrefix("10.10.0.0/24"), BgpPrefix("fd00::/64")])
    assert changes(tree, tree) == []
    assert {line for lines in tree.values() for line in lines} >= {
        "neighbor 10.7.0.9 port 1790",
        "neighbor 10.7.0.9 password s3c",
        "neighbor 10.7.0.9 ebgp-multihop 3",
        "neighbor 10.7.0.9 graceful-restart",
        "neighbor 10.7.0.9 bfd profile antrea-100-100-3",
        "network fd00::/64",
    }


def test_a_session_begins_after_all_networks_are_there() -> None:
    written = [line for _, line in changes({}, bgp_tree(SPEAKER, [NEIGHBOR], [BgpPrefix("10.10.0.0/24")]))]
    assert written[-1] == "neighbor 10.7.0.9 activate"
    assert written.index("network 10.10.0.0/24") < len(written) - 1


def test_what_is_not_wanted_goes_first_and_neighbors_go_whole() -> None:
    wanted = {
        ROUTER: [
            "bgp router-id 10.7.0.2",
            "no bgp default ipv4-unicast",
            "neighbor 10.7.0.9 remote-as 64513",
        ],
        IPV4: ["network 203.0.113.5/32"],
    }
    assert changes(PARSED, wanted) == [
        (ROUTER, "no bgp confederation identifier 65000"),
        (ROUTER, "no bgp confederation peers 64514"),
        (ROUTER, "no bgp confederation peers 64515"),
        (ROUTER, "neighbor 10.7.0.8 shutdown"),
        (ROUTER, "no neighbor 10.7.0.8"),
        (IPV4, "no network 10.10.0.0/24"),
        ((), "no route-map antrea-import deny 10"),
        ((), "no bfd"),
        (ROUTER, "bgp router-id 10.7.0.2"),
        (ROUTER, "neighbor 10.7.0.9 remote-as 64513"),
    ]


def test_another_value_takes_the_place_of_the_one_before() -> None:
    before = bgp_tree(SPEAKER, [NEIGHBOR], [])
    after = bgp_tree(
        SPEAKER,
        [
            BgpNeighbor(
                address="10.7.0.9",
                asn=64514,
                port=179,
                ttl=3,
                graceful_restart=False,
                bfd=BfdTimers(300, 300, 4),
            )
        ],
        [],
    )
    assert changes(before, after) == [
        (ROUTER, "no neighbor 10.7.0.9 port 1790"),
        (ROUTER, "no neighbor 10.7.0.9 password s3c"),
        (ROUTER, "neighbor 10.7.0.9 remote-as 64514"),
        (ROUTER, "neighbor 10.7.0.9 graceful-restart-disable"),
        (ROUTER, "neighbor 10.7.0.9 bfd profile antrea-300-300-4"),
    ]


def test_without_a_speaker_nothing_is_left() -> None:
    now = bgp_tree(SPEAKER, [NEIGHBOR], [BgpPrefix("10.10.0.0/24")])
    assert changes(now, bgp_tree(None, [], [])) == [
        (ROUTER, "bgp shutdown"),
        ((), "no router bgp 64512"),
        ((), "no route-map antrea-import deny 10"),
        ((), "no route-map antrea-export permit 10"),
    ]


def test_another_as_number_is_another_speaker_and_the_one_before_goes_first() -> None:
    now = bgp_tree(SPEAKER, [], [])
    wanted = bgp_tree(BgpSpeaker(64999, "10.7.0.1"), [], [])
    assert [line for _, line in changes(now, wanted)][:2] == ["bgp shutdown", "no router bgp 64512"]


def test_neighbors_with_the_same_attributes_share_a_route_map() -> None:
    plain = BgpNeighbor(address="10.7.0.7", asn=64513)
    first = BgpNeighbor(address="10.7.0.8", asn=64513, communities=((64512, 100), (65535, 65281)))
    second = BgpNeighbor(address="10.7.0.9", asn=64513, communities=((64512, 100), (65535, 65281)))
    preferred = BgpNeighbor(address="10.7.0.10", asn=64512, local_preference=0)
    tree = bgp_tree(SPEAKER, [plain, first, second, preferred], [])
    maps = {
        context[0]: lines
        for context, lines in tree.items()
        if context[0].startswith("route-map antrea-export")
    }
    assert sorted(maps.values()) == [
        [],
        ["set community 64512:100 no-export"],
        ["set local-preference 0"],
    ]
    # all maps exist before a neighbor is contacted
    places = list(tree)
    assert max(places.index((name,)) for name in maps) < places.index(ROUTER)
    assert parse("\n".join(f"{name}\n {lines[0]}\nexit" for name, lines in maps.items() if lines)) == {
        (name,): lines for name, lines in maps.items() if lines
    }


def test_routers_that_watch_by_bfd_alone() -> None:
    sessions = [
        BfdOnlySession(address="10.7.0.9", timers=FAST, shutdown=True),
        BfdOnlySession(address="10.8.0.9", local="10.7.0.1", hops=4),
    ]
    assert bfd_tree([NEIGHBOR], sessions) == {
        ("bfd",): [],
        ("bfd", "profile antrea-100-100-3"): ["receive-interval 100", "transmit-interval 100"],
        ("bfd", "peer 10.7.0.9"): ["receive-interval 100", "transmit-interval 100", "shutdown"],
        ("bfd", "peer 10.8.0.9 multihop local-address 10.7.0.1"): ["minimum-ttl 252"],
    }
    assert bfd_tree([], []) == {}


@pytest.mark.parametrize("command", ["", "a\nb", "a\rb", "a\0b", "a|b", "é", "x" * (MAX_COMMAND + 1)])
def test_a_command_of_several_lines_is_refused(command: str) -> None:
    with pytest.raises(Invalid, match="command to FRR"):
        checked(command)


@given(st.text(max_size=40))
def test_no_text_becomes_a_second_command(text: str) -> None:
    try:
        line = checked(f"neighbor 10.7.0.9 password {text}")
    except Invalid:
        return
    assert line.isprintable()
    assert line.isascii()


def test_a_password_is_in_no_log() -> None:
    assert concealed("neighbor 10.7.0.9 password s3c ret") == "neighbor 10.7.0.9 password ..."
    assert concealed("neighbor 10.7.0.9 port 179") == "neighbor 10.7.0.9 port 179"
    assert "s3c" not in repr(NEIGHBOR)


def test_the_reason_of_a_refusal_is_one_line() -> None:
    assert Answer(0, "fine").why_not == ""
    assert Answer(13, "% Unknown\n command: x\n").why_not == "Unknown command: x"
    assert Answer(2, "").why_not == "status 2"


def test_a_refusal_has_no_password_whatever_frr_repeats() -> None:
    command = "neighbor 10.7.0.9 password s3c ret"
    refused = refused_line(command, f"[BGP] Unknown command: {command}")
    assert refused == RefusedLine(
        "neighbor 10.7.0.9 password ...", "[BGP] Unknown command: neighbor 10.7.0.9 password ..."
    )
    assert refused_line("network 10.0.0.0/8", "no") == RefusedLine("network 10.0.0.0/8", "no")


def test_filters_are_lists_named_by_what_they_have() -> None:
    filtered = BgpNeighbor(
        address="10.7.0.9",
        asn=64513,
        networks=("198.51.100.1/32", "203.0.113.0/24"),
        imports=BgpImports(("198.51.0.0/16",), default_route=True, maximum=7),
    )
    tree = bgp_tree(SPEAKER, [filtered], [])
    lists = [place[0] for place in tree if place[0].startswith("ip prefix-list antrea-")]
    assert [line.partition(" seq ")[2] for line in lists] == [
        "5 permit 198.51.100.1/32",
        "10 permit 203.0.113.0/24 le 32",
        "5 permit 198.51.0.0/16 le 32",
        "10 permit 0.0.0.0/0",
    ]
    assert "neighbor 10.7.0.9 maximum-prefix 7 restart 5" in tree[IPV4]
    maps = {place[0].split()[1]: lines for place, lines in tree.items() if place[0].startswith("route-map ")}
    assert maps[import_name(filtered)] == [f"match ip address prefix-list {lists[2].split()[2]}"]
    assert maps[export_name(filtered)] == [f"match ip address prefix-list {lists[0].split()[2]}"]
    # another filter has another name: its lists are there before the session uses them
    other = bgp_tree(SPEAKER, [msgspec.structs.replace(filtered, networks=("203.0.113.0/25",))], [])
    commands = [command for _, command in changes(tree, other)]
    uses = next(command for command in commands if command.endswith(" out"))
    makes = next(command for command in commands if "permit 203.0.113.0/25" in command)
    assert commands.index(makes) < commands.index(uses)
    printed = "\n".join(
        line
        for place, lines in tree.items()
        if len(place) == 1
        for line in (place[0], *(f" {x}" for x in lines))
    )
    assert {place: lines for place, lines in tree.items() if len(place) == 1} == parse(printed)


def test_a_filter_that_lets_nothing_pass_denies_all() -> None:
    nothing = BgpNeighbor(address="2001:db8::9", asn=64513, networks=())
    tree = bgp_tree(SPEAKER, [nothing], [])
    assert tree[("route-map antrea-export-nothing deny 10",)] == []
    six = BgpNeighbor(address="2001:db8::9", asn=64513, imports=BgpImports((), default_route=True))
    lists = [place[0] for place in bgp_tree(SPEAKER, [six], []) if place[0].startswith("ipv6 prefix-list")]
    assert [line.partition(" seq ")[2] for line in lists] == ["5 permit ::/0"]
