"""Marks of packets that the host's rules look at, and the places of these rules: each is for one thing."""

from __future__ import annotations

from itertools import combinations

from antrea.features.egress.agent import subnet as egress
from antrea.features.egress.agent.hash_ring import MAX_SUBNETS
from antrea.features.proxy import dsr_no_tunnel
from antrea.features.service_external_ip.subnet import MASK
from antrea.openflow.fields import EGRESS_RETURN, HOST_LOCAL_SOURCE, PEER_PASSED, SNAT_PKT_MARK
from antrea.outside.netlink import held_address, kept_route

KUBE_PROXY = 0xC000
"""What kube-proxy marks to be masqueraded, and to be dropped."""


def test_no_two_marks_share_a_bit() -> None:
    fields = (SNAT_PKT_MARK, PEER_PASSED, EGRESS_RETURN, HOST_LOCAL_SOURCE)
    marks = [*(one.mask for one in fields), MASK, held_address.MARK, kept_route.MARK, KUBE_PROXY]
    assert [(f"{one:#x}", f"{other:#x}") for one, other in combinations(marks, 2) if one & other] == []


def test_each_rule_by_a_mark_has_its_priority_and_its_table() -> None:
    priorities = [held_address.PRIORITY, dsr_no_tunnel.RULE_PRIORITY, egress.RULE_PRIORITY]
    assert len(set(priorities)) == len(priorities)
    tables = [held_address.ROUTES, kept_route.ROUTES, dsr_no_tunnel.TABLE]
    assert len(set(tables)) == len(tables)
    assert not set(tables) & set(range(egress.FIRST_TABLE, egress.FIRST_TABLE + MAX_SUBNETS))
