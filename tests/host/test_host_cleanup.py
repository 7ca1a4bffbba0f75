"""What an uninstalled agent leaves on a Node: it goes, and the Node's card has its addresses and routes as before."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from netdev_switch import NetdevSwitch

from antrea.agent.node.bootstrap import take_over_card
from antrea.antctl.cleanup.node import clean
from antrea.antctl.cleanup.node_cleanup import Folders
from antrea.config.agent import AgentConfig
from antrea.engine import Facts
from antrea.facts.node import Transport
from antrea.features.node_network.agent import CHAINS, transport_entries
from antrea.host.address import Address
from antrea.host.link import Link
from antrea.host.nft import NftChain, NftShield
from antrea.host.route import Neighbour, ProxyNeighbour, Route, RoutingRule
from antrea.outside.netlink import held_address, kept_route, transport_interface
from antrea.outside.netlink.sink import NetlinkSink
from antrea.outside.nftables.sink import NftSink
from antrea.outside.ovsdb import write
from antrea.outside.ovsdb.client import Ovsdb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Namespaces

NODE = {4: "192.0.2.1", 6: "2001:db8:2::1"}
ROUTER = {4: "192.0.2.254", 6: "2001:db8:2::fe"}
FAR = {4: "198.51.100.1", 6: "2001:db8:99::1"}
"""Behind the router, by the default route."""
NEAR = {4: "203.0.113.0/24", 6: "2001:db8:77::/48"}
"""Networks that the card has routes of its own to."""
CONFLIST, FOREIGN = "10-antrea.conflist", "20-other.conflist"


class Node:
    """The namespace of the test, with one card and a router at its other end."""

    def __init__(self, netns: Namespaces, folder: Path) -> None:
        self.netns, self.router = netns, netns.make()
        self.folders = Folders._make(folder / name for name in Folders._fields)
        for path in self.folders:
            path.mkdir(exist_ok=True)
        netns.sh(f"ip link add eth0 type veth peer name eth0 netns {self.router}; ip link set eth0 up")
        netns.sh("ip link set eth0 up; ethtool -K eth0 tx off", self.router)
        for version, length in ((4, 24), (6, 64)):
            nodad = "nodad" if version == 6 else ""
            netns.sh(f"ip addr add {NODE[version]}/{length} dev eth0 {nodad}")
            netns.sh(f"ip addr add {ROUTER[version]}/{length} dev eth0 {nodad}", self.router)
            netns.sh(f"ip addr add {FAR[version]} dev lo", self.router)
            netns.sh(f"ip route add default via {ROUTER[version]}")
            netns.sh(f"ip route add {NEAR[version]} via {ROUTER[version]}")

    def network(self) -> dict[str, list[str]]:
        """Addresses of the card and routes, without what the kernel tells of their origin."""
        commands = {
            "addresses": "ip -o addr show dev eth0 scope global | awk '{print $4}'",
            "routes": "ip route; ip -6 route",
        }
        return {
            name: sorted(
                line.replace("proto static ", "").strip() for line in self.netns.sh(command).splitlines()
            )
            for name, command in commands.items()
        }

    def answers(self, version: int) -> bool:
        """Whether the router reaches the Node, and the Node the host behind the router."""
        into = self.netns.run(f"ping -c1 -W2 {NODE[version]}", self.router)
        out = self.netns.run(f"ping -c1 -W2 {FAR[version]}")
        assert into.returncode == out.returncode, (into, out)
        return into.returncode == 0

    def tables(self) -> list[str]:
        return self.netns.sh("nft list tables").splitlines()

    def links(self) -> set[str]:
        return {row["ifname"] for row in json.loads(self.netns.sh("ip -j link"))}

    def clean(self, *, dry_run: bool = False, logs: bool = False, code: int = 0) -> list[dict[str, Any]]:
        """Clean the Node; the lines that the program prints, without the last one of a success."""
        lines: list[str] = []
        ended = clean(self.folders, dry_run=dry_run, logs=logs, tell=lines.append)
        told: list[dict[str, Any]] = [json.loads(line) for line in lines]
        assert ended == code, told
        if not code:
            assert told.pop() == {"done": True}
        return told


@pytest.fixture
def node(netns: Namespaces) -> Iterator[Node]:
    # paths of sockets are short
    with tempfile.TemporaryDirectory(prefix="node-") as folder:
        yield Node(netns, Path(folder))


@pytest.fixture
def switch(node: Node) -> Iterator[NetdevSwitch]:
    """The switch of the Node, whose database is where the agent's is."""
    there = NetdevSwitch()
    shutil.rmtree(node.folders.run)
    node.folders.run.mkdir()
    (node.folders.run / "openvswitch").symlink_to(there.directory)
    there.start()
    yield there
    (node.folders.run / "openvswitch").unlink(missing_ok=True)
    there.stop()


async def take_over(switch: NetdevSwitch) -> None:
    """As an agent that starts: br-phy has the card, its addresses and its routes."""
    (card,) = [card for card in await transport_interface.cards() if card.name == "eth0"]
    link = Transport("eth0", "br-phy", card.mac, card.mtu, card.addresses, card.routes)
    db = await Ovsdb.connect(switch.socket)
    try:
        await take_over_card(db, link)
        await write.realized(db)
    finally:
        await db.close()
    facts = Facts()
    facts.put(AgentConfig(ovs_datapath_type="netdev"))
    entries = list(transport_entries(facts, link))
    shields = [entry for entry in entries if isinstance(entry, NftShield)]
    await NetlinkSink().apply([entry for entry in entries if not isinstance(entry, NftShield)], ())
    await NftSink().apply(shields, ())


async def test_the_card_gets_its_addresses_and_routes_back_from_br_phy(
    node: Node, switch: NetdevSwitch
) -> None:
    before = node.network()
    assert all(node.answers(version) for version in (4, 6))
    await take_over(switch)
    assert node.network()["addresses"] == []
    assert all(node.answers(version) for version in (4, 6))
    assert node.clean(code=1) == [
        {"failed": "", "why": "Open vSwitch of the agent's Pod still runs on this Node: wait until the Pod has ended"}
    ]  # fmt: skip
    assert all(node.answers(version) for version in (4, 6))
    for daemon in ("ovs-vswitchd", "ovsdb-server"):
        switch.kill(daemon)
    assert not any(node.answers(version) for version in (4, 6))
    would = node.clean(dry_run=True)
    assert not any(node.answers(version) for version in (4, 6))
    told = node.clean()
    assert would[0] == told[0]
    assert [line["removed"] for line in told] == [
        "bridge br-phy, whose addresses 192.0.2.1/24, 2001:db8:2::1/64 eth0 gets back",
        "nftables table netdev antrea",
        "device ovs-netdev",
        f"state files {node.folders.lib}",
        f"state files {node.folders.run}",
    ]
    assert node.network() == before
    assert all(node.answers(version) for version in (4, 6))
    assert (node.tables(), node.links()) == ([], {"lo", "eth0"})
    assert node.clean() == []


async def test_an_interrupted_return_of_the_card_is_continued(node: Node, switch: NetdevSwitch) -> None:
    before = node.network()
    await take_over(switch)
    for daemon in ("ovs-vswitchd", "ovsdb-server"):
        switch.kill(daemon)
    node.netns.sh("ip link set eth0 down; ip addr add 192.0.2.1/24 dev eth0")
    told = node.clean()
    assert told[0]["removed"].startswith("bridge br-phy")
    assert node.network() == before
    assert all(node.answers(version) for version in (4, 6))


async def test_a_card_that_is_gone_keeps_the_record_of_its_addresses(
    node: Node, switch: NetdevSwitch
) -> None:
    await take_over(switch)
    for daemon in ("ovs-vswitchd", "ovsdb-server"):
        switch.kill(daemon)
    node.netns.sh("ip link del eth0")
    (line,) = node.clean(code=1)
    assert "this Node has no interface eth0, whose addresses br-phy held" in line["why"]
    assert (node.folders.run / "openvswitch/conf.db").exists()


async def leave_traces(node: Node) -> None:
    """What an agent makes, by its own sinks."""
    # this machine's kernel may have no dummy devices
    for pair in (
        ("antrea-gw0", "genev_sys_6081"),
        ("antrea-ext.5", "antrea-l7-tap0"),
        ("antrea-egress0", "vxlan_sys_4789"),
    ):
        node.netns.sh(f"ip link add {pair[0]} type veth peer name {pair[1]}")
    await NetlinkSink().apply(
        [
            Link("antrea-gw0", 1400),
            Address("antrea-gw0", "10.10.0.1/24"),
            Address("antrea-gw0", "fd00:10::1/64"),
            Address("eth0", "192.0.2.40/32", category=3),
            Route(dst="10.10.1.0/24", dev="antrea-gw0", via="10.10.1.1", onlink=True),
            Route(dst="198.51.100.0/24", dev="eth0", via=ROUTER[4], table=101, category=4),
            Neighbour(dev="antrea-gw0", ip="fd00:10:1::1", mac="aa:bb:cc:dd:ee:ff"),
            ProxyNeighbour(dev="eth0", ip="2001:db8:2::40"),
            RoutingRule(family=4, mark=1, mask=0xFF, table=101, priority=299, category=4),
            RoutingRule(family=6, mark=1, mask=0xFF, table=101, priority=299, category=4),
        ],
        (),
    )
    chains = [NftChain(name=name, hook=hook) for name, hook in CHAINS.items()]
    await NftSink().apply([*chains, NftShield("antrea-gw0")], ())


async def test_traces_of_the_agent_go_and_those_of_others_stay(node: Node) -> None:
    node.netns.sh(
        "nft add table inet other; ip rule add fwmark 2 lookup 7; ip link add other0 type veth peer name other1"
    )
    for name in (CONFLIST, FOREIGN):
        (node.folders.cni_config / name).write_text("{}")
    for name in ("antrea", "loopback"):
        (node.folders.cni_bin / name).write_text("")
    before, rules = node.network(), node.netns.sh("ip rule; ip -6 rule")
    await leave_traces(node)
    node.netns.sh(
        "ip link add antrea-earlier0 type veth peer name antrea-ingress0; ip link set antrea-earlier0 up"
    )
    held_address.hold(["10.96.0.1", "fd00:10:96::1"])
    node.netns.sh("ip addr add 10.96.7.1/32 dev antrea-gw0")
    node.netns.sh("ip link set antrea-gw0 up; ip route add 10.96.8.8 via 10.10.0.9 dev antrea-gw0")
    kept_route.keep("antrea-gw0", ["10.10.0.9"])
    assert node.tables() == [
        "table inet other", "table inet antrea", "table netdev antrea", "table inet antrea-earlier", "table inet antrea-kept",
    ]  # fmt: skip
    told = [line["removed"] for line in node.clean()]
    assert told[:4] == [
        f"CNI configuration {node.folders.cni_config / CONFLIST}",
        f"CNI plugin {node.folders.cni_bin / 'antrea'}",
        "kept routes to Services",
        "held addresses of Services",
    ]
    assert node.tables() == ["table inet other"]
    assert node.network() == before
    assert node.netns.sh("ip rule; ip -6 rule") == rules
    assert "lookup 7" in rules
    assert node.netns.sh("ip route show table all | grep -c ' 10.10' || true").strip() == "0"
    assert node.links() == {"lo", "eth0", "other0", "other1"}
    assert [path.name for path in node.folders.cni_config.iterdir()] == [FOREIGN]
    assert [path.name for path in node.folders.cni_bin.iterdir()] == ["loopback"]
    assert (node.folders.log.exists(), node.folders.lib.exists(), node.folders.run.exists()) == (
        True,
        False,
        False,
    )
    assert [line["removed"] for line in node.clean(logs=True)] == [f"logs {node.folders.log}"]
    assert node.clean(logs=True) == []


async def test_a_dry_run_removes_nothing(node: Node) -> None:
    (node.folders.cni_config / CONFLIST).write_text("{}")
    await leave_traces(node)
    # without addresses that the kernel makes when a device comes up, and marks of a device whose peer is down
    state = (
        "ip -o link | cut -d: -f2; ip -o addr show scope global; ip route show table all | sed 's/ linkdown//';"
        "ip rule; ip -6 rule; nft list ruleset"
    )
    before = node.netns.sh(state)
    subjects = [line["removed"] for line in node.clean(dry_run=True)]
    assert f"CNI configuration {node.folders.cni_config / CONFLIST}" in subjects
    assert {"2 x RoutingRule", "2 x Route", "3 x Address", "device antrea-gw0"} <= set(subjects)
    assert (node.netns.sh(state), (node.folders.cni_config / CONFLIST).exists()) == (before, True)
