"""The JSON that nft prints: read as values or refused, however deep, large or strange another program's rules are."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from antrea.antctl.doctor.checks import drops
from antrea.antctl.doctor.invalid_packets import invalid_packets
from antrea.antctl.doctor.state import Chain, NodeState
from antrea.antctl.kube_proxy.ruleset import commands, is_complete, leftover
from antrea.errors import Invalid
from antrea.host.invalid_drop import CONDITION
from antrea.outside.nftables.listing import lead_rows, statements

PLACE = {"family": "ip", "table": "nat"}


def listing(*rows: dict[str, Any]) -> str:
    return json.dumps({"nftables": [{"metainfo": {"json_schema_version": 1}}, *rows]})


def rule(*parts: object, chain: str = "PREROUTING", handle: object = 7) -> dict[str, Any]:
    return {"rule": {**PLACE, "chain": chain, "handle": handle, "expr": list(parts)}}


def chain(name: str) -> dict[str, Any]:
    return {"chain": {**PLACE, "name": name, "handle": 1}}


def test_tables_chains_and_jumps_of_kube_proxy_are_read() -> None:
    rows = lead_rows(
        listing(
            {"table": {"family": "ip6", "name": "kube-proxy", "handle": 1}},
            chain("KUBE-SERVICES"),
            chain("KUBE-POSTROUTING"),
            {"set": {**PLACE, "name": "mine", "elem": [1, {"range": ["a", "b"]}]}},
            rule({"match": {"left": 1}}, {"counter": None}, {"jump": {"target": "KUBE-SERVICES"}}),
            rule("notrack", None, {"goto": {"target": "MINE"}}),
            rule({"accept": None}, chain="KUBE-POSTROUTING"),
        )
    )
    assert is_complete(rows[2:], frozenset(("ip",)))
    assert commands(leftover(rows)).splitlines() == [
        "delete table ip6 kube-proxy",
        "delete rule ip nat PREROUTING handle 7",
        *(f"{way} chain ip nat {one}" for way in ("flush", "delete") for one in ("KUBE-SERVICES", "KUBE-POSTROUTING")),
    ]  # fmt: skip


def test_chains_that_lead_to_each_other_are_followed_to_the_end() -> None:
    """However long they are: the program that made them is another one."""
    names = [f"KUBE-SVC-{number:016}" for number in range(1500)]
    leads = [rule({"jump": {"target": then}}, chain=one) for one, then in pairwise(names)]
    circle = rule({"jump": {"target": names[0]}}, chain=names[-1])
    own = rule({"jump": {"target": names[0]}}, chain="MINE")
    found = leftover(lead_rows(listing(*map(chain, names), *leads, circle, own)))
    assert (found.chains, [one.chain for one in found.held]) == ((), ["MINE"])


BAD = {
    "no JSON": "nonsense",
    "no object": "[]",
    "no rows": "{}",
    "deep": '{"nftables":' + "[" * 5000,
    "deep in what is not read": '{"nftables":[{"set":' + '{"a":' * 5000,
    "a rule without a chain": listing({"rule": {"family": "ip", "table": "nat", "handle": 1, "expr": []}}),
    "a handle that is text": listing(rule(handle="7; flush ruleset")),
    "statements that are no list": listing({"rule": {**PLACE, "chain": "a", "handle": 1, "expr": {}}}),
    "a chain that is a number": listing(rule({"jump": {"target": 7}})),
    "a jump to nowhere": listing(rule({"goto": {}})),
    "a table that is a list": listing({"table": ["kube-proxy"]}, rule([])),
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_what_is_no_listing_is_refused(text: str) -> None:
    for read in (lead_rows, statements):
        with pytest.raises(Invalid, match="listing of nft"):
            read(text)


@pytest.mark.parametrize("part", [{}, {"accept": None, "drop": None}, {"match": []}, {"match": None}])
def test_a_statement_of_another_shape_is_refused(part: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="a statement"):
        statements(listing(rule(part)))


@pytest.mark.parametrize("right", [7, None, {"set": ["new"]}, ["new", 7], [{}]])
def test_the_doctor_reads_states_of_any_shape(right: object) -> None:
    match = {"match": {"left": {"ct": {"key": "state"}}, "right": right, "condition": 7}}
    (found,) = statements(listing(rule(match, {"xt": None}, {"drop": None})))
    assert drops(Chain("ip", "filter", "FORWARD", "forward", rules=(found,)), "antrea-gw0") == ""
    node = NodeState(
        "node-1", "", {}, conditions={CONDITION: "x"}, chains=(Chain("ip", "filter", "KUBE-FORWARD", rules=(found,)),)
    )  # fmt: skip
    assert [one.repair for one in invalid_packets(node)] == [""]
