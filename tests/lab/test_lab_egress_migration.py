"""An Egress IP moves when the node selector of its pool changes: at once, the Node that loses it has it no longer, and neighbors learn of it.

The steps and addresses of upstream's TestEgress/testEgressUpdateNodeSelector, whose program needs a build of upstream. The pool's addresses
belong to no network of the Nodes: they are answered for on the transport interface.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import pytest
from admission_object import crd
from own_lab import own_lab

from lab import node
from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

pytestmark = [pytest.mark.wide, pytest.mark.timeout(900)]

CANDIDATES, OBSERVER = ("node-1", "node-2"), "node-3"
RANGES = {4: "169.254.100.0/30", 6: "2021:3::aaa1/124"}
TRANSPORT = "br-phy"
"""The transport interface on the userspace datapath; the lab's card eth1 is its port."""
MOVE_SECONDS = 10.0
"""Upstream's test has 1 s on a machine of its own."""


@pytest.fixture(scope="module")
def three() -> Iterator[Lab]:
    with own_lab("mig", Settings(nodes=3, family="dual")) as lab:
        yield lab


def pool(version: int, *names: str) -> str:
    here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [*names]}]}
    spec = {"ipRanges": [{"cidr": RANGES[version]}], "nodeSelector": here}
    return json.dumps(crd("ExternalIPPool", "migrates", spec))


def has(lab: Lab, where: str, ip: str) -> bool:
    return f" {ip}/" in node.execute(lab.record, where, "ip", "-o", "address")


def neighbor(lab: Lab, ip: str) -> str:
    """The MAC address that the third Node has for the address; empty if it has none."""
    shown = node.execute(lab.record, OBSERVER, "ip", "-json", "neigh", "show", "to", ip, "dev", TRANSPORT)
    return next((row.get("lladdr", "") for row in json.loads(shown)), "")


def ask(lab: Lab, ip: str) -> str:
    """As `neighbor`, after a packet to the address."""
    node.execute(lab.record, OBSERVER, "sh", "-c", f"ping -c 1 -W 1 {ip} || true")
    return neighbor(lab, ip)


def mac(lab: Lab, where: str) -> str:
    [found] = json.loads(node.execute(lab.record, where, "ip", "-json", "link", "show", "dev", TRANSPORT))
    return str(found["address"])


def check_moved(lab: Lab, ip: str, to: str, before: str) -> None:
    """The status names Node `to`, which has the address; the other one does not, from the moment on at which the status says so.

    A neighbor that knew the former MAC address has the new one, without asking again.
    """

    def status() -> str:
        return lab.api.kubectl("get", "egress", "migrates", "-o", "jsonpath={.status.egressNode}")

    wait_for(f"the status with {to}", lambda: status() == to, seconds=MOVE_SECONDS, step=0.02)
    assert not has(lab, before, ip), "the Node that loses the address still has it"
    assert has(lab, to, ip)
    wait_for("the next MAC address at the neighbor", lambda: neighbor(lab, ip) == mac(lab, to), seconds=5)
    assert ask(lab, ip) == mac(lab, to)


@pytest.mark.parametrize("version", [4, 6])
def test_an_egress_ip_moves_at_once_when_the_node_selector_changes(three: Lab, version: int) -> None:
    """Shrink the pool to the Node that does not have the address, then widen it again."""
    lab = three
    lab.api.apply(pool(version, *CANDIDATES))
    selector = {"podSelector": {"matchLabels": {"foo": "bar"}}}
    lab.api.apply(
        json.dumps(crd("Egress", "migrates", {"appliedTo": selector, "externalIPPool": "migrates"}))
    )
    shown = "jsonpath={.status.egressNode} {.status.egressIP}"
    found = partial(lab.api.kubectl, "get", "egress", "migrates", "-o", shown)
    home, ip = wait_for("a holder", lambda: found().split(), seconds=60)
    other = next(name for name in CANDIDATES if name != home)
    route = ("ip", "route", "{}", ip, "dev", TRANSPORT)
    node.execute(lab.record, OBSERVER, *(word.format("replace") for word in route))
    try:
        assert has(lab, home, ip)
        wait_for("an answer to a neighbor", lambda: ask(lab, ip) == mac(lab, home), seconds=30)
        for names, to, before in (((other,), other, home), (CANDIDATES, home, other)):
            lab.api.apply(pool(version, *names))
            check_moved(lab, ip, to, before)
    finally:
        node.execute(lab.record, OBSERVER, *(word.format("del") for word in route))
        lab.api.kubectl("delete", "egress", "migrates")
        lab.api.kubectl("delete", "externalippool", "migrates")
