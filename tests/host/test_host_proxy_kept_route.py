"""A connection of the Node to a Service by the switch goes on when its address becomes one of the Node's own."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from test_host_proxy_held_address import ECHO, talks

from antrea.features.proxy.agent_part.takeover_remains import TakeoverRemains
from antrea.outside.netlink.ipvs_connection import stay_as_they_are, tracked_ends
from antrea.outside.netlink.kept_route import keep, kept_addresses
from lab.namespace import connect
from lab.process import wait_for

if TYPE_CHECKING:
    from conftest import Namespaces

SERVICE = {4: "10.96.0.9", 6: "fd00:10:96::9"}
VIA = {4: "169.254.0.253", 6: "fc01::aabb:ccdd:eeff"}
LINK = """
ip link add antrea-gw0 type veth peer name eth0 netns {pod} && ip link set antrea-gw0 up && ip -n {pod} link set eth0 up &&
ip address add 10.10.0.1/24 dev antrea-gw0 && ip address add fd00:10::1/64 dev antrea-gw0 nodad &&
ip -n {pod} address add 10.10.0.7/24 dev eth0 && ip -n {pod} address add fd00:10::7/64 dev eth0 nodad &&
ip -n {pod} address add 10.96.0.9/32 dev lo && ip -n {pod} address add fd00:10:96::9/128 dev lo &&
ip -n {pod} address add 169.254.0.253/32 dev eth0 && ip -n {pod} address add fc01::aabb:ccdd:eeff/128 dev eth0 nodad &&
ip route add 10.96.0.9 via 169.254.0.253 dev antrea-gw0 onlink &&
ip route add fd00:10:96::9 via fc01::aabb:ccdd:eeff dev antrea-gw0 onlink &&
nft add table inet tracked && nft add chain inet tracked in '{{ type filter hook input priority 0; }}' &&
nft add rule inet tracked in ct state new accept && sysctl -qw net.ipv4.conf.all.rp_filter=1
"""
STATE = "ip rule; ip -6 rule; sysctl net.ipv4.conf.antrea-gw0.src_valid_mark"
IPVS = """
ip link add name kube-ipvs0 type veth peer name other && ip link set kube-ipvs0 up && ip link set other up &&
ip address add 10.96.0.9/32 dev kube-ipvs0 && ip address add fd00:10:96::9/128 dev kube-ipvs0 nodad
"""


def assign(netns: Namespaces) -> None:
    """Make the Service's addresses the Node's own. The kernel adds the local route of IPv6 once the new link has a carrier."""
    netns.sh(IPVS)
    for address in SERVICE.values():
        wait_for(
            f"{address} is local",
            lambda address=address: "lo" in netns.sh(f"ip route get {address}").split(),  # type: ignore[misc]
            seconds=10,
        )


@pytest.mark.parametrize("version", [4, 6])
def test_connections_keep_their_route_and_new_ones_are_the_nodes_own(netns: Namespaces, version: int) -> None:
    pod = netns.make()
    netns.sh(LINK.format(pod=pod))
    rules = netns.sh(STATE)
    with netns.serving(pod, ECHO), socket.create_connection((SERVICE[version], 8080), 10) as stream:
        assert talks(stream, b"before")
        keep("antrea-gw0", VIA.values())
        assert set(kept_addresses()) == set(SERVICE.values())
        assert talks(stream, b"kept")
        assert (6, *stream.getsockname()[:2], SERVICE[version], 8080) in tracked_ends()
        assign(netns)
        for number in range(20):
            assert talks(stream, b"after %d" % number)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((SERVICE[version], 8080), 10)
        remains = TakeoverRemains("antrea-gw0", proxy_all=False)
        for _ in range(3):
            remains.check()
        assert talks(stream, b"later")
        stream.shutdown(socket.SHUT_WR)
        assert stream.recv(9) == b""
    wait_for("the end", lambda: not stay_as_they_are([SERVICE[version]]), seconds=5)
    TakeoverRemains("antrea-gw0", proxy_all=True).check()
    remains.check()
    assert set(kept_addresses()) == set(SERVICE.values())
    remains.check()
    assert kept_addresses() == []
    assert netns.sh(STATE) == rules
    assert "antrea-kept" not in netns.sh("nft list tables")


MASQUERADE = "nft add chain inet tracked post '{ type nat hook postrouting priority 100; }' && nft add rule inet tracked post masquerade"
CLIENT = """
ip link add eth0 type veth peer name eth0 netns {client} && ip link set eth0 up && ip -n {client} link set eth0 up &&
ip address add 192.0.2.1/24 dev eth0 && ip address add 2001:db8::1/64 dev eth0 nodad &&
ip -n {client} address add 192.0.2.7/24 dev eth0 && ip -n {client} address add 2001:db8::7/64 dev eth0 nodad &&
ip -n {client} route add default via 192.0.2.1 && ip -n {client} -6 route add default via 2001:db8::1 &&
ip -n {pod} route add default via 10.10.0.1 && ip -n {pod} -6 route add default via fd00:10::1 &&
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 &&
nft add chain inet tracked raw '{{ type filter hook prerouting priority raw; }}' && nft add rule inet tracked raw notrack
"""


@pytest.mark.parametrize("version", [4, 6])
def test_connections_that_the_host_does_not_track_keep_their_route_by_their_ends(
    netns: Namespaces, version: int
) -> None:
    pod, client = netns.make(), netns.make()
    netns.sh(f"{LINK.format(pod=pod).strip()} && {CLIENT.format(pod=pod, client=client).strip()}")
    service = (SERVICE[version], 8080)
    with netns.serving(pod, ECHO), ExitStack() as stack:
        streams = [
            stack.enter_context(connect(Path(netns.path(client)), service, seconds=10)) for _ in range(2)
        ]
        assert [talks(stream, b"before") for stream in streams] == [True, True]
        ends = (6, *streams[0].getsockname()[:2], *service)
        keep("antrea-gw0", VIA.values(), [ends, (6, *streams[0].getsockname()[:2], "192.0.2.99", 80)])
        assign(netns)
        assert talks(streams[0], b"after")
        with pytest.raises(ConnectionResetError):
            talks(streams[1], b"unknown")
        netns.sh(
            "nft delete chain inet tracked raw && " + MASQUERADE
        )  # as kube-proxy does what it has tracked
        assert talks(streams[0], b"later")
        assert ends not in tracked_ends()
        remains = TakeoverRemains("antrea-gw0", proxy_all=False)
        for _ in range(3):
            remains.check(frozenset(SERVICE.values()))
        assert kept_addresses()


NODE = {4: "192.0.2.1", 6: "2001:db8::1"}
NODE_PORT = {4: "169.254.0.252", 6: "fc01::aabb:ccdd:eefe"}
TRANSLATED = """
nft delete chain inet tracked raw && nft -f - <<EOF &&
table inet node-ports {{
  chain asked {{ type nat hook prerouting priority dstnat - 1; tcp dport 30180 jump to-switch; }}
  chain sent {{ type nat hook output priority -101; tcp dport 30180 jump to-switch; }}
  chain to-switch {{
    ip daddr 192.0.2.1 dnat ip to 169.254.0.252
    ip6 daddr 2001:db8::1 dnat ip6 to fc01::aabb:ccdd:eefe
  }}
}}
EOF
ip -n {pod} address add 169.254.0.252/32 dev lo && ip -n {pod} address add fc01::aabb:ccdd:eefe/128 dev lo &&
ip route add 169.254.0.252 via 169.254.0.253 dev antrea-gw0 onlink &&
ip route add fc01::aabb:ccdd:eefe via fc01::aabb:ccdd:eeff dev antrea-gw0 onlink
"""


@pytest.mark.parametrize("version", [4, 6])
def test_connections_to_node_ports_which_the_host_translates_go_on(netns: Namespaces, version: int) -> None:
    """Of a process of the Node and of a host outside; the switch tracks them with the address that the host has them go to."""
    pod, client = netns.make(), netns.make()
    parts = (LINK, CLIENT, TRANSLATED)
    netns.sh(" && ".join(part.format(pod=pod, client=client).strip() for part in parts))
    to = (NODE[version], 30180)
    with netns.serving(pod, ECHO.replace("8080", "30180")), ExitStack() as stack:
        streams = [stack.enter_context(socket.create_connection(to, 10))]
        streams.append(stack.enter_context(connect(Path(netns.path(client)), to, seconds=10)))
        assert [talks(stream, b"before") for stream in streams] == [True, True]
        ends = [(6, *stream.getsockname()[:2], NODE_PORT[version], 30180) for stream in streams]
        keep("antrea-gw0", VIA.values(), ends)
        assert NODE_PORT[version] in kept_addresses()
        assign(netns)
        assert [talks(stream, b"after") for stream in streams] == [True, True]


def test_without_any_route_to_a_service_nothing_changes(netns: Namespaces) -> None:
    rules = netns.sh("ip rule; ip -6 rule")
    netns.sh("ip link add antrea-gw0 type veth peer name more && ip link set antrea-gw0 up")
    keep("antrea-gw0", VIA.values())
    assert netns.sh("ip rule; ip -6 rule; nft list tables") == rules
