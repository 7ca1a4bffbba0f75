"""Faults of a node, seen from the cluster and from its neighbours; each test repairs what it broke."""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING

import pytest
from agent_node import antctl

from antrea.errors import Invalid, Unavailable
from lab import cluster, fault, node
from lab.process import run, wait_for

if TYPE_CHECKING:
    from lab.cluster import Lab


FOUND = 4.25
"""Seconds within which one of two agents finds the other dead. docs/membership.md"""


def reaches(lab: Lab, address: str) -> bool:
    try:
        node.execute(lab.record, "node-1", "ping", "-c", "1", "-W", "1", address)
    except Unavailable:
        return False
    return True


def members(lab: Lab) -> dict[str, str]:
    """Whose agents live, as node-1 says."""
    return {
        row["nodeName"]: row["status"]
        for row in json.loads(antctl(lab, "node-1", "get", "memberlist", "-o", "json"))
    }


def kubelet_answers(lab: Lab) -> bool:
    ask = "curl -s -m 1 http://127.0.0.1:10248/healthz || true"
    return node.execute(lab.record, "node-2", "sh", "-c", ask) == "ok"


def test_a_node_without_power_is_gone_and_comes_back_with_its_disk(lab: Lab) -> None:
    node.execute(lab.record, "node-2", "sh", "-c", "echo kept > /var/tmp/disk; echo lost > /run/memory")
    fault.inject(lab, "node-2", "power-off")
    began = time.monotonic()
    off = (reaches(lab, "172.30.0.12"), "node-2" in lab.record.processes())
    wait_for("node-1 to know", lambda: members(lab)["node-2"] == "Dead", seconds=60)
    print(f"found after {time.monotonic() - began:.1f} s, where docs/membership.md says {FOUND} s")
    fault.inject(lab, "node-2", "power-on")
    wait_for("the kubelet of node-2", lambda: kubelet_answers(lab), seconds=60)

    assert off == (False, False)
    wait_for("a ping", lambda: reaches(lab, "172.30.0.12"), seconds=60)
    left = node.execute(lab.record, "node-2", "sh", "-c", "cat /var/tmp/disk /run/memory 2>/dev/null; true")
    assert left == "kept\n"


def test_a_cut_link_isolates_one_card_and_heals(lab: Lab) -> None:
    fault.inject(lab, "node-2", "cut-link", link="eth1")
    cut = reaches(lab, "172.31.0.12")
    wait_for("the other card", lambda: reaches(lab, "172.30.0.12"), seconds=60)
    fault.inject(lab, "node-2", "heal-link", link="eth1")

    assert not cut
    wait_for("the healed cable", lambda: reaches(lab, "172.31.0.12"), seconds=60)


def test_a_paused_node_answers_pings_of_its_kernel_but_runs_nothing(lab: Lab) -> None:
    fault.inject(lab, "node-2", "pause")
    try:
        health = cluster.enter(lab, "node-1", ["curl", "-sk", "-m", "1", "https://172.30.0.12:10250/healthz"])
        with pytest.raises(Unavailable, match="ended with 28"):  # curl(1): operation timeout
            run(health)
        wait_for("its kernel", lambda: reaches(lab, "172.30.0.12"), seconds=60)
    finally:
        fault.inject(lab, "node-2", "resume")
    wait_for("its answer", lambda: said(health), seconds=60)


def said(words: list[str]) -> str:
    """What the command printed; nothing if it failed."""
    with contextlib.suppress(Unavailable):
        return run(words)
    return ""


@pytest.mark.parametrize(
    ("machine", "link", "why"),
    [
        ("node-9", None, "machine: 'node-9' is none of control, node-1, node-2, gateway, outside"),
        ("gateway", None, "node: gateway is a router, not a node"),
        ("node-1", "eth7", "link: 'eth7' is none of eth0, eth1"),
    ],
)
def test_what_cannot_be_broken_is_named(lab: Lab, machine: str, link: str | None, why: str) -> None:
    with pytest.raises(Invalid) as error:
        fault.inject(lab, machine, "cut-link", link=link)

    assert str(error.value) == why
