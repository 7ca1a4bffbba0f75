"""Flows of policies are those that upstream's own tests expect ($ANTREA_SRC)."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from antrea.facts.node import ThisNode
from antrea.openflow.flow import Flow
from antrea.openflow.group import Group
from tests.unit.features.policy_world import (
    ANY,
    PIPELINE,
    applied,
    engine_of,
    interface,
    member,
    native,
    policy,
    port,
    rule,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.facts.fact import Fact

SOURCE = os.environ.get("ANTREA_SRC", "")
pytestmark = pytest.mark.skipif(not SOURCE, reason="ANTREA_SRC names no checkout of upstream")
V4 = ThisNode("n1", ("10.10.0.0/24",), ("192.0.2.1",), ("192.0.2.1",))
PODS = {"a": "192.168.1.40", "b": "192.168.1.50", "c": "192.168.1.51"}
FIRST = 10
"""Number of the first rule in upstream's test."""


def expected(begin: str, end: str) -> list[str]:
    """The flows in the text between two marks of upstream's test."""
    text = (Path(SOURCE) / "pkg/agent/openflow/network_policy_test.go").read_text(encoding="utf-8")
    part = text.split(begin, 1)[1].split(end, 1)[0]
    return re.findall(r'"cookie=0x1020000000000, (table=[^"]+)"', part)


def canonical(lines: Iterable[str]) -> set[tuple[frozenset[str], tuple[str, ...]]]:
    """Terms of a match in any order, conjunctions too; every address is no term."""
    found = set()
    for line in lines:
        match, actions = line.split(" actions=")
        terms = {term.strip() for term in match.split(",")} - {"nw_dst=0.0.0.0/0"}
        parts = re.findall(r"conjunction\([^)]*\)", actions)
        found.add((frozenset(terms), tuple(sorted(parts)) or (actions,)))
    return found


def flows(*rows: Fact) -> list[str]:
    """Ours of one Node, with upstream's numbers of rules, in the category of policies."""
    facts, engine = engine_of(V4)
    for number in range(1, FIRST - 1):
        facts.id("conjunction", f"taken-{number}")
    for row in rows:
        facts.put(row)
    engine.plan()
    found = (entry for entry in engine.standing().values() if isinstance(entry, Flow))
    return [flow.named(PIPELINE) for flow in found if "pkt_mark" not in ",".join(flow.match)]


def test_every_node_has_upstreams_flows() -> None:
    wanted = [
        *expected("if ovsMeterSupported {", "if externalNodeEnabled {"),
        *expected("initFlows := append(loggingFlows,", "return initFlows"),
    ]
    assert len(wanted) == 7 + 8
    assert canonical(flows()) == canonical(wanted)


def test_two_kubernetes_policies_that_share_pods_and_peers_are_upstreams_flows() -> None:
    wanted = expected(
        'name: "multiple K8s NetworkPolicy rules"', 'name: "multiple Antrea NetworkPolicy rules"'
    )
    assert len(wanted) == 14
    pods = [interface(name, number, ip) for number, (name, ip) in enumerate(PODS.items(), 1)]
    found = flows(
        *pods,
        policy("np1", "one", rule("Out", ANY)),
        policy("np2", "two", rule("Out", ANY, port(8080))),
        *applied("one", member("a"), member("b")),
        *applied("two", member("a"), member("c")),
    )
    assert canonical(found) - canonical(flows()) == canonical(wanted)


def test_what_is_logged_is_upstreams_flows_and_groups() -> None:
    text = (Path(SOURCE) / "pkg/agent/openflow/client_test.go").read_text(encoding="utf-8")
    wanted = re.findall(r'"cookie=0x1020000000000, (table=Ingress(?:Default)?Rule, [^"]+->reg2[^"]+)"', text)
    groups = re.findall(r'"(group_id=[1-4],type=all,bucket=[^"]+)"', text)
    assert (len(wanted), len(groups)) == (2, 4)
    loud = [rule("In", ANY, action="Drop"), rule("In", ANY)]
    native_rule, kube_rule = (msgspec.structs.replace(one, enable_logging=True) for one in loud)
    found = flows(
        interface("a", 100, PODS["a"]),
        native("acnp", "one", native_rule),
        policy("np", "one", kube_rule),
        *applied("one", member("a")),
    )

    def actions(lines: Iterable[str]) -> set[str]:
        """Of those that deny: tables and rules have other numbers here."""
        denying = [line.split(" actions=")[1] for line in lines if re.search("0x800/0x1800.*->reg2", line)]
        return {re.sub(r"0x[0-9a-f]+(?=->reg3|/0xff->reg2)", "N", one) for one in denying}

    assert actions(found) == actions(wanted)
    _, engine = engine_of(V4)
    ours = [entry.named(PIPELINE) for entry in engine.plan().put if isinstance(entry, Group)]
    assert [re.sub(r"resubmit\(,(\w+)\)", r"resubmit:\1", line) for line in ours] == groups
