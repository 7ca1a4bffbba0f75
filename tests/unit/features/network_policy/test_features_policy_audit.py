"""Rules whose policies want a log: their flows are upstream's, and each packet is a line in upstream's format."""

from __future__ import annotations

import struct
from ipaddress import ip_address
from typing import TYPE_CHECKING

import msgspec
import pytest
from policy_world import (
    ANY,
    NODE,
    PIPELINE,
    applied,
    engine_of,
    flows,
    interface,
    member,
    native,
    policy,
    rule,
)

from antrea.apis import controlplane as cp
from antrea.facts.node import ThisNode
from antrea.features.network_policy.agent.audit import AuditRecord, audit_records
from antrea.features.network_policy.agent.fqdn import FqdnAddress
from antrea.features.network_policy.agent.received import SentPolicy
from antrea.openflow.packet import ICMP, TCP, UDP, packet
from antrea.openflow.packet_in import PacketIn

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.facts.fact import Fact

V4 = ThisNode("n1", ("10.10.0.0/24",), ("192.0.2.1",), ("192.0.2.1",))
WEB = interface("web", 7, "10.10.0.7")
FIRST = 2
"""Number of the first rule."""
ALLOW, DROP, REJECT, PASS = range(4)
DENY = 0x400


def logged(found: SentPolicy, *, label: str = "", name: str = "") -> SentPolicy:
    rules = tuple(
        msgspec.structs.replace(one, enable_logging=True, log_label=label, name=name)
        for one in found.policy.rules
    )
    return SentPolicy(msgspec.structs.replace(found.policy, rules=rules))


def actions(table: str, *rows: Fact) -> list[str]:
    """What this table's flows do that are no clauses."""
    found = flows(WEB, *applied("g", member("web")), *rows, node=V4)
    return [
        line.split(" actions=")[1]
        for line in found
        if line.startswith(f"table={table},") and "conjunction(" not in line and "controller(" not in line
    ]


def number(table: str) -> str:
    return f"{PIPELINE.id(table):#x}/0xff"


def test_what_isolates_tells_the_agent_if_a_rule_of_its_direction_is_logged() -> None:
    # this one is upstream's, in client_test.go
    wanted = (
        "set_field:0x800/0x1800->reg0,set_field:0x2000000/0xfe000000->reg0,set_field:0x400000/0x600000->reg0,"
        f"set_field:{number('IngressDefaultRule')}->reg2,goto_table:Output"
    )
    nobody = cp.NetworkPolicyPeer()
    both = policy("p", "g", rule("In", nobody), rule("Out", nobody))
    assert actions("IngressDefaultRule", logged(both)) == [wanted]
    assert actions("IngressDefaultRule", both) == ["drop"]
    inward = policy("quiet", "g", rule("In", nobody))
    assert actions("IngressDefaultRule", logged(policy("p", "g", rule("Out", nobody))), inward) == ["drop"]


def test_a_rule_of_kubernetes_sends_the_agent_what_it_lets_pass() -> None:
    (told,) = actions("IngressRule", logged(policy("p", "g", rule("In", ANY))))
    assert told == (
        "set_field:0x2->reg6,ct(commit,table=IngressMetric,zone=65520,exec(set_field:0x2/0xffffffff->ct_label)),"
        "set_field:0x0/0x1800->reg0,set_field:0x400000/0x600000->reg0,set_field:0x2000000/0xfe000000->reg0,"
        f"set_field:{number('IngressRule')}->reg2,goto_table:Output"
    )


@pytest.mark.parametrize(
    ("action", "told"),
    [
        ("Drop", "set_field:0x800/0x1800->reg0,set_field:0x2000000/0xfe000000->reg0"),
        ("Reject", "set_field:0x1000/0x1800->reg0,set_field:0x6000000/0xfe000000->reg0"),
    ],
)
def test_what_is_denied_is_counted_and_copied_to_the_agent(action: str, told: str) -> None:
    found = actions("AntreaPolicyIngressRule", logged(native("p", "g", rule("In", ANY, action=action))))
    start = f"set_field:0x2->reg3,set_field:0x400/0x400->reg0,{told},"
    assert found == [f"{start}set_field:{number('AntreaPolicyIngressRule')}->reg2,group:4"]


def test_what_is_passed_goes_on_while_a_copy_goes_to_the_agent() -> None:
    found = actions("AntreaPolicyEgressRule", logged(native("p", "g", rule("Out", ANY, action="Pass"))))
    start = "set_field:0x2->reg5,set_field:0x1800/0x1800->reg0,set_field:0x2000000/0xfe000000->reg0,"
    assert found == [f"{start}set_field:{number('AntreaPolicyEgressRule')}->reg2,group:1"]


def test_the_same_rule_with_a_log_and_without_is_two() -> None:
    same = rule("In", ANY)
    found = flows(
        WEB, *applied("g", member("web")), policy("a", "g", same), logged(policy("b", "g", same)), node=V4
    )
    assert sum("conj_id=" in line for line in found) == 2


def world(*rows: Fact) -> Facts:
    facts, engine = engine_of(NODE, WEB, *applied("g", member("web")), *rows)
    engine.plan()
    return facts


def said(
    facts: Facts, table: str, verdict: int, protocol: int = TCP, *, deny: int = DENY, conj: int = FIRST
) -> list[AuditRecord]:
    """Of a packet from 10.10.1.5 to 10.10.0.7, or back if the table is one of egress."""
    ends = [ip_address(ip).packed for ip in ("10.10.1.5", "10.10.0.7")]
    if "Egress" in table:
        ends.reverse()
    text = struct.pack("!BBHHHBBH", 0x45, 0, 60, 0, 0, 64, protocol, 0) + b"".join(ends)
    text += struct.pack("!HH", 53646, 80) + b"\x08" * 36
    registers = {0: verdict << 11 | deny, 2: PIPELINE.id(table)} | {
        3 if verdict in {DROP, REJECT} else 5 if "Egress" in table else 6: conj
    }
    found = PacketIn(b"\x01\x01", 20, 7, registers, b"\0" * 12 + b"\x08\0" + text)
    return list(audit_records(facts, found, packet(found.frame)))


def test_a_line_names_policy_rule_priority_pod_and_packet() -> None:
    one = logged(
        native("reject-it", "g", rule("In", ANY, action="Reject")), label="tcp-log-label", name="RejectTCP"
    )
    assert said(world(one), "AntreaPolicyIngressRule", REJECT) == [
        AuditRecord(
            "AntreaPolicyIngressRule AntreaClusterNetworkPolicy:reject-it RejectTCP Ingress Reject 32544 a/web"
            " 10.10.1.5 53646 10.10.0.7 80 TCP 60 tcp-log-label",
            repeats=True,
        )
    ]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (
            "a\n2026/11/21 AntreaPolicyIngressRule forged",
            "a\\n2026/11/21\\x20AntreaPolicyIngressRule\\x20forged",
        ),
        ("a\r\x1b[2K\u2028b\\n", "a\\r\\x1b[2K\\u2028b\\\\n"),
        ("erlaube-löschen", "erlaube-löschen"),
        ("x" * 1000, "x" * 253),
    ],
)
def test_a_name_makes_neither_lines_nor_fields(name: str, shown: str) -> None:
    (line,) = said(
        world(logged(native("p", "g", rule("In", ANY)), name=name)), "AntreaPolicyIngressRule", DROP
    )
    assert line.text.splitlines() == [line.text]
    assert line.text.split(" ")[2] == shown
    assert len(line.text.split(" ")) == 14


def test_what_has_no_ports_names_and_labels_says_so() -> None:
    one = logged(native("p", "g", rule("Out", ANY, action="Pass")))
    assert said(world(one), "AntreaPolicyEgressRule", PASS, ICMP, deny=0) == [
        AuditRecord(
            "AntreaPolicyEgressRule AntreaClusterNetworkPolicy:p <nil> Egress Pass 32544 a/web"
            " 10.10.0.7 <nil> 10.10.1.5 <nil> ICMP 60 <nil>",
            repeats=True,
        )
    ]


def test_a_line_ends_with_those_of_a_rules_names_that_have_the_receivers_address() -> None:
    names = cp.NetworkPolicyPeer(fqdns=("*.Example.com.", "api.example.com", "other.test"))
    one = logged(native("p", "g", rule("Out", names, action="Drop")), label="my-label")
    rows = [
        FqdnAddress(pattern, ip)
        for pattern, ip in (("*.example.com", "10.10.1.5"), ("api.example.com", "10.10.1.5"))
    ]
    (line,) = said(world(one, *rows, FqdnAddress("other.test", "10.10.1.6")), "AntreaPolicyEgressRule", DROP)
    assert line.text.endswith(" TCP 60 my-label fqdn=*.example.com,api.example.com")
    (line,) = said(world(one), "AntreaPolicyEgressRule", DROP)
    assert line.text.endswith(" TCP 60 my-label")


def test_kubernetes_policies_are_named_where_they_allow_each_with_its_line() -> None:
    same = rule("In", ANY)
    facts = world(logged(policy("one", "g", same)), logged(policy("two", "g", same)))
    assert said(facts, "IngressRule", ALLOW, UDP, deny=0) == [
        AuditRecord(
            f"IngressRule K8sNetworkPolicy:a/{name} <nil> Ingress Allow 190 a/web"
            " 10.10.1.5 53646 10.10.0.7 80 UDP 60 <nil>",
            repeats=False,
        )
        for name in ("one", "two")
    ]


def test_isolation_is_nobodys_and_a_rule_that_is_gone_has_no_line() -> None:
    facts = world()
    assert said(facts, "IngressDefaultRule", DROP, deny=0) == [
        AuditRecord(
            "IngressDefaultRule K8sNetworkPolicy <nil> Ingress Drop <nil> a/web 10.10.1.5 53646 10.10.0.7 80 TCP 60 <nil>",
            repeats=True,
        )
    ]
    assert said(facts, "AntreaPolicyIngressRule", DROP, conj=99) == []
    assert said(facts, "Classifier", DROP) == []
