"""MetalLB beside us in BGP mode: a router of FRR has its addresses by BGP, and ours by ARP, and clients behind it reach both."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from admission_object import crd
from frr_router import configuration, routing
from metallb import (
    NODES,
    OURS,
    THEIR_CLASS,
    addresses,
    answering,
    fetch,
    inside,
    metallb,
    owner,
    service,
    thing,
)
from quiet_pod import SERVING, quiet_pods

from lab.process import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from lab.cluster import Lab

pytestmark = [pytest.mark.wide, pytest.mark.timeout(1800)]

THEIRS = "203.0.113.35"
"""In no network of a Node: without a route no router finds it."""
ROUTER, ROUTER_AS, NODES_AS = "172.30.0.1", 64513, 64512
THINGS = (
    thing("IPAddressPool", {"addresses": [f"{THEIRS}/32"]}),
    thing("BGPAdvertisement", {"ipAddressPools": ["theirs"]}),
    thing("BGPPeer", {"myASN": NODES_AS, "peerASN": ROUTER_AS, "peerAddress": ROUTER}, "v1beta2"),
)


def next_hops(lab: Lab) -> set[str]:
    """By which the router goes to their address, as BGP told it."""
    words = ["ip", "-j", "route", "show", THEIRS, "proto", "bgp"]
    found: list[dict[str, Any]] = json.loads(inside(lab, "gateway", words) or "[]")
    return {hop["gateway"] for route in found for hop in route.get("nexthops", [route])}


def ours_moves(lab: Lab) -> None:
    """While its Node is cordoned it is at another one, and a client behind the router reaches both."""
    home = owner(lab)
    lab.api.kubectl("cordon", home)
    try:
        wait_for("ours elsewhere", lambda: owner(lab) not in ("", home), seconds=60)
        wait_for("one answer for ours", lambda: answering(lab, OURS) == [owner(lab)], seconds=60)
        assert all(fetch(lab, "outside", ip) for ip in (OURS, THEIRS))
    finally:
        lab.api.kubectl("uncordon", home)


def become_local(lab: Lab, name: str, address: str) -> None:
    """With externalTrafficPolicy Local each goes to the Node of the one Pod, by its own way."""
    local = json.dumps({"spec": {"externalTrafficPolicy": "Local"}})
    for one in ("ours", "theirs"):
        lab.api.kubectl("patch", "service", one, "-p", local)
    wait_for("theirs by its Node", lambda: next_hops(lab) == {address}, seconds=60)
    wait_for("ours at its Node", lambda: owner(lab) == name, seconds=60)
    wait_for("one answer for ours", lambda: answering(lab, OURS) == [name], seconds=60)
    assert all(fetch(lab, "outside", ip) == "serves-a" for ip in (OURS, THEIRS))


def test_a_router_has_their_addresses_by_bgp_and_finds_ours_by_arp(lab: Lab, tmp_path: Path) -> None:
    nodes = {lab.topology.machine(name).address("eth0", 4): name for name in NODES}
    router = configuration(ROUTER_AS, ROUTER, dict.fromkeys(nodes, NODES_AS))
    pool = {"ipRanges": [{"start": OURS, "end": OURS}], "nodeSelector": {}}
    lab.api.apply(json.dumps(crd("ExternalIPPool", "ours", pool)))
    with (
        quiet_pods(lab, {"serves-a": "node-1", "serves-b": "node-2"}, SERVING),
        routing(lab, "gateway", router),
        metallb(lab, tmp_path, (f"--lb-class={THEIR_CLASS}",), THINGS),
    ):
        lab.api.kubectl("label", "pod", "serves-a", "serves-b", "app=balanced")
        lab.api.apply(service("ours", "ours"))
        lab.api.apply(service("theirs", "", THEIR_CLASS))
        # with their class our annotation has no effect, and their pool has no second address
        lab.api.apply(service("both", "ours", THEIR_CLASS))
        wanted = {"ours": [OURS], "theirs": [THEIRS], "both": []}
        wait_for("the addresses", lambda: addresses(lab) == wanted, seconds=120)
        wait_for("routes by all Nodes", lambda: next_hops(lab) == set(nodes), seconds=60)
        wait_for("a Node for ours", lambda: owner(lab), seconds=60)
        for ip in (OURS, THEIRS):
            for machine in ("gateway", "outside"):
                wait_for(f"{ip} for {machine}", partial(fetch, lab, machine, ip), seconds=60)
        assert answering(lab, OURS) == [owner(lab)]

        ours_moves(lab)
        assert next_hops(lab) == set(nodes)

        lab.api.kubectl("label", "pod", "serves-b", "app-")
        become_local(lab, "node-1", next(ip for ip, name in nodes.items() if name == "node-1"))

        # what theirs gave up no route leads to; ours stays
        lab.api.kubectl("delete", "service", "both", "theirs")
        wait_for("no route to theirs", lambda: next_hops(lab) == set(), seconds=60)
        assert fetch(lab, "outside", OURS) == "serves-a"
        assert not fetch(lab, "outside", THEIRS)
    lab.api.kubectl("delete", "externalippool", "ours")
