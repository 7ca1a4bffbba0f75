"""Flows of rules on domain names, as text: the addresses of names, and what holds DNS answers back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
from policy_world import (
    NODE,
    applied,
    engine_of,
    flows,
    interface,
    member,
    named,
    native,
    port,
    rule,
)

from antrea.apis import controlplane as cp
from antrea.apis.annotation import AUDIT, ENFORCEMENT
from antrea.facts.node import ThisNode
from antrea.features.network_policy.agent.fqdn import FqdnAddress, FqdnPattern
from antrea.features.network_policy.agent.received import SentPolicy
from antrea.openflow.meter import POD_DNS_METERS, Meter, PacketInMeter

if TYPE_CHECKING:
    from antrea.engine import Engine

V4 = ThisNode("n1", ("10.10.0.0/24",), ("192.0.2.1",), ("192.0.2.1",))
WEB = interface("web", 7, "10.10.0.7")
POD = (WEB, *applied("g", member("web")))
NAMES = cp.NetworkPolicyPeer(fqdns=("Api.Example.COM.", "*.cdn.example"))
DENY = native("p", "g", rule("Out", NAMES, action="Drop"))
HELD = """
table=AntreaPolicyIngressRule,priority=64991,conj_id=1,reg1=0x7 actions=meter:1031,set_field:0x40000000/0xfe000000->reg0,resubmit(,AntreaPolicyIngressRule)
table=AntreaPolicyIngressRule,priority=64993,reg0=0x40000000/0xfe000000 actions=meter:258,controller(id=32776,reason=no_match,userdata=02,max_len=65535,pause),goto_table:IngressMetric
table=AntreaPolicyIngressRule,priority=64991,ct_state=+rpl+trk,tcp,tp_src=53 actions=conjunction(1,1/2)
table=AntreaPolicyIngressRule,priority=64991,ct_state=+rpl+trk,udp,tp_src=53 actions=conjunction(1,1/2)
table=AntreaPolicyIngressRule,priority=64991,reg1=0x7 actions=conjunction(1,2/2)
"""
RULE = """
table=AntreaPolicyEgressRule,priority=N,conj_id=2 actions=set_field:0x2->reg3,set_field:0x400/0x400->reg0,goto_table:EgressMetric
table=AntreaPolicyEgressRule,priority=N,ip,nw_src=10.10.0.7 actions=conjunction(2,1/2)
table=EgressMetric,priority=200,reg0=0x400/0x400,reg3=0x2 actions=drop
"""


def made(*rows: object, node: ThisNode = V4) -> list[str]:
    found = flows(*rows, node=node)  # type: ignore[arg-type]
    return [re.sub(r"(?<=priority=)(?!6499[13]|1?[29]0[0,])\d+", "N", line) for line in found]


def lines(*texts: str) -> list[str]:
    return sorted(line for text in texts for line in text.strip().splitlines())


def peer_of(address: str, kind: str = "ip,nw_dst") -> str:
    return f"table=AntreaPolicyEgressRule,priority=N,{kind}={address} actions=conjunction(2,2/2)"


def test_a_rule_on_names_without_addresses_matches_nothing_and_holds_answers_to_its_pods() -> None:
    assert made(*POD, DENY) == lines(RULE, HELD)


def meters(engine: Engine) -> dict[int, int]:
    """The rates of those that DNS answers pass."""
    found = (one for one in engine.standing().values() if isinstance(one, Meter))
    return {one.id: one.rate for one in found if one.id != PacketInMeter.NETWORK_POLICY}


def test_addresses_of_both_patterns_are_peers_of_the_rule() -> None:
    rows = (FqdnAddress("api.example.com", "198.51.100.7"), FqdnAddress("*.cdn.example", "198.51.100.8"))
    wanted = lines(RULE, HELD, peer_of("198.51.100.7"), peer_of("198.51.100.8"))
    assert made(*POD, DENY, *rows) == wanted


def test_an_address_of_a_pods_own_server_counts_for_rules_that_deny_and_for_that_pod_alone() -> None:
    own = FqdnAddress("api.example.com", "198.51.100.7", WEB.pod)
    other = (interface("db", 8, "10.10.0.8"), *applied("g", member("db")))
    (found,) = [line for line in made(*POD, *other, DENY, own) if "198.51.100.7" in line]
    assert found == peer_of("198.51.100.7", "ip,nw_src=10.10.0.7,nw_dst")
    for action in ("Allow", "Pass"):
        opens = native("p", "g", rule("Out", NAMES, action=action))
        assert not [line for line in made(*POD, *other, opens, own) if "198.51.100.7" in line]
    stranger = FqdnAddress("api.example.com", "198.51.100.7", "shop/none")
    assert made(*POD, DENY, stranger) == made(*POD, DENY)


def test_a_pattern_says_whether_any_rule_with_it_denies() -> None:
    facts, engine = engine_of(V4, *POD, native("p", "g", rule("Out", NAMES, action="Allow")))
    engine.plan()
    assert {row.denies for row in facts.all(FqdnPattern)} == {False}
    facts.put(
        native(
            "q",
            "g",
            rule("Out", cp.NetworkPolicyPeer(fqdns=("*.cdn.example",)), action="Reject"),
            priority=6.0,
        )
    )
    engine.plan()
    assert {row.pattern: row.denies for row in facts.all(FqdnPattern)} == {
        "api.example.com": False,
        "*.cdn.example": True,
    }


def test_an_address_of_a_family_that_pods_do_not_have_is_no_flow() -> None:
    assert made(*POD, DENY, FqdnAddress("api.example.com", "2001:db8::7")) == lines(RULE, HELD)


def test_both_families_hold_answers_and_have_peers() -> None:
    found = made(*POD, DENY, FqdnAddress("api.example.com", "2001:db8::7"), node=NODE)
    assert peer_of("2001:db8::7", "ipv6,ipv6_dst") in found
    held = [line for line in found if "64991,ct_state" in line]
    assert [re.search(r"(tcp6?|udp6?)", line).group() for line in held] == ["tcp", "tcp6", "udp", "udp6"]  # type: ignore[union-attr]


def test_an_address_of_names_that_two_rules_match_is_in_both() -> None:
    other = native("q", "g", rule("Out", cp.NetworkPolicyPeer(fqdns=("*",)), action="Allow"), priority=6.0)
    rows = (FqdnAddress("api.example.com", "198.51.100.7"), FqdnAddress("*", "198.51.100.7"))
    found = [line for line in made(*POD, DENY, other, *rows) if "198.51.100.7" in line]
    assert len(found) == 2  # each at the priority of its rule
    assert all("/2)" in line for line in found)


def test_names_take_part_where_ports_are_numbers() -> None:
    ports = native("p", "g", rule("Out", NAMES, port("http"), port(443), action="Drop"))
    found = made(*POD, ports, FqdnAddress("api.example.com", "198.51.100.7"))
    assert (
        "table=AntreaPolicyEgressRule,priority=N,ip,nw_dst=198.51.100.7 actions=conjunction(2,2/3)" in found
    )
    assert "table=AntreaPolicyEgressRule,priority=N,tcp,tp_dst=443 actions=conjunction(2,3/3)" in found


def test_pods_that_no_rule_on_names_is_for_get_their_answers_at_once() -> None:
    other = interface("db", 8, "10.10.0.8")
    found = made(
        *POD, other, *applied("h", member("db")), DENY, native("q", "h", rule("Out", cp.NetworkPolicyPeer()))
    )
    assert [line for line in found if "64991,reg1" in line] == [lines(HELD)[-2]]


def test_without_rules_on_names_nothing_is_held() -> None:
    facts, engine = engine_of(V4, *POD, DENY)
    engine.plan()
    assert [row.pattern for row in facts.all(FqdnPattern)] == ["*.cdn.example", "api.example.com"]
    assert meters(engine) == {PacketInMeter.DNS: 5000, POD_DNS_METERS + WEB.ofport: 500}
    facts.drop(type(DENY), DENY.key)
    engine.plan()
    assert facts.all(FqdnPattern) == []
    assert not [line for line in named(engine.standing().values()) if re.search("6499[13]", line)]
    assert meters(engine) == {}


def test_answers_that_audited_rules_alone_wait_for_are_copied_and_go_on() -> None:
    metadata = msgspec.structs.replace(DENY.policy.metadata, annotations={ENFORCEMENT: AUDIT})
    would = SentPolicy(msgspec.structs.replace(DENY.policy, metadata=metadata))
    facts, engine = engine_of(V4, *POD, would)
    engine.plan()
    standing = engine.standing().values()
    copied = (
        "table=AntreaPolicyIngressRule,priority=64992,ct_state=+rpl+trk,{},reg1=0x7,tp_src=53 actions=group:N"
    )
    texts = [re.sub(r"group:\d+", "group:N", line) for line in named(standing)]
    found = [line for line in texts if "6499" in line and "64990" not in line]
    assert found == [copied.format(kind) for kind in ("tcp", "udp")]
    assert [line for line in texts if "meter:1031" in line or "meter:258" in line] == [
        f"table=Output,priority=200,reg0={mark}0000/0xfe600000{of} actions={actions}"
        for mark, of, actions in (
            ("0x2040", ",reg1=0x7", "meter:1031,set_field:0x40000000/0xfe000000->reg0,resubmit(,Output)"),
            ("0x4040", "", "meter:258,controller(id=32776,reason=no_match,userdata=02,max_len=65535)"),
        )
    ]
    assert meters(engine) == {PacketInMeter.DNS: 5000, POD_DNS_METERS + WEB.ofport: 500}
    assert not [line for line in texts if "pause" in line]
    facts.put(FqdnAddress("api.example.com", "198.51.100.7"))
    assert peer_of("198.51.100.7") in [
        re.sub(r"(?<=priority=)\d+", "N", line) for line in named(engine.plan().put)
    ]
    # an enforced rule on names for the same Pod holds them
    facts.put(native("q", "g", rule("Out", NAMES, action="Drop"), priority=6.0))
    engine.plan()
    found = [line for line in named(engine.standing().values()) if "6499" in line and "64990" not in line]
    assert found == lines(HELD)
