"""A connection that IPVS translated goes on by connection tracking, while new ones to the address of its Service take another way."""

from __future__ import annotations

import socket
import struct
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from antrea.antctl.kube_proxy.handover import rules
from antrea.features.proxy.agent_part.takeover_remains import TakeoverRemains
from antrea.outside.netlink.conntrack import FAMILY, NETFILTER, bodies, question
from antrea.outside.netlink.held_address import (
    DEVICE,
    MARK,
    PRIORITY,
    give_up,
    goes_on,
    held_addresses,
    hide,
    hold,
    release,
)
from antrea.outside.netlink.ipvs import VirtualServer
from antrea.outside.netlink.ipvs_connection import IpvsConnection, parse, translate_by_tracking
from antrea.outside.netlink.message import ASK, Request, attribute, attribute_rows
from antrea.outside.netlink.socket import Rtnl
from antrea.outside.netlink.translated_connection import translated_connections
from lab.process import wait_for

if TYPE_CHECKING:
    from conftest import Namespaces

SERVICE = {4: "10.96.0.9", 6: "fd00:10:96::9"}
POD = {4: "10.10.0.7", 6: "fd00:10::7"}
DEVICES = "ip link add name antrea-earlier0 type veth peer name more"
"""In place of a dummy device, which this machine's kernel may lack."""
LINK = """
ip link add antrea-gw0 type veth peer name eth0 netns {pod} && ip link set antrea-gw0 up && ip -n {pod} link set eth0 up &&
ip address add 10.10.0.1/24 dev antrea-gw0 && ip address add fd00:10::1/64 dev antrea-gw0 nodad &&
ip -n {pod} address add 10.10.0.7/24 dev eth0 && ip -n {pod} address add fd00:10::7/64 dev eth0 nodad &&
ip link add name kube-ipvs0 type veth peer name other && ip address add 10.96.0.9/32 dev kube-ipvs0 &&
ip address add fd00:10:96::9/128 dev kube-ipvs0 nodad && ip link set kube-ipvs0 up && ip link set other up &&
nft -f - <<EOF
table inet ours {{ chain out {{ type nat hook output priority -101; }}; }}
table inet theirs {{
  chain out {{
    type nat hook output priority -100
    ip daddr 10.96.0.9 tcp dport 80 dnat ip to 10.10.0.7:8080
    ip6 daddr fd00:10:96::9 tcp dport 80 dnat ip6 to [fd00:10::7]:8080
  }}
  chain post {{
    type nat hook postrouting priority srcnat
    oifname antrea-gw0 masquerade fully-random
  }}
}}
EOF
"""
ECHO = """
import socketserver
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(line)
class Server(socketserver.ThreadingTCPServer):
    address_family, daemon_threads = 10, True
with Server(("::", 8080), Echo) as server:
    print("listening", flush=True)
    server.serve_forever()
"""
STATUS, TRANSLATED = 3, 0x30
"""An attribute of an entry, and bits that IPVS does not set."""


def as_ipvs_leaves_it(body: bytes) -> bytes:
    rows = dict(attribute_rows(body[4:]))
    rows[STATUS] = (int.from_bytes(rows[STATUS], "big") & ~TRANSLATED).to_bytes(4, "big")
    return body[:4] + b"".join(attribute(*row) for row in rows.items())


def tracked(version: int) -> list[IpvsConnection]:
    listed = (parse(as_ipvs_leaves_it(body), version) for body in bodies(question(version, None)))
    return [one for one in listed if one is not None]


def forget(version: int) -> None:
    """As the kernel does with each connection of a virtual server that is deleted."""
    with Rtnl(NETFILTER) as kernel:
        kernel.ask(Request(1 << 8 | 2, ASK, struct.pack("=BBH", FAMILY[version], 0, 0)))


def talks(stream: socket.socket, word: bytes) -> bool:
    stream.sendall(word + b"\n")
    return stream.recv(99) == word + b"\n"


@pytest.mark.parametrize("version", [4, 6])
def test_a_connection_of_the_node_to_its_own_address_goes_on_when_it_is_gone(
    netns: Namespaces, version: int
) -> None:
    pod = netns.make()
    netns.sh(f"{DEVICES} && {LINK.format(pod=pod)}")
    service = SERVICE[version]
    with netns.serving(pod, ECHO), socket.create_connection((service, 80), 10) as stream:
        assert stream.getsockname()[0] == service
        assert talks(stream, b"before")
        (one,) = tracked(version)
        assert (str(one.service[0]), str(one.endpoint[0])) == (service, POD[version])
        assert one.answered[0] != one.source[0]

        netns.sh(f"nft delete table inet theirs && ip route add {service} via {POD[version]}")
        hold({service})
        assert talks(stream, b"with both")
        netns.sh("ip link delete kube-ipvs0")
        hide()
        forget(version)
        translate_by_tracking([one])
        translate_by_tracking([one])  # also where an entry stands
        for number in range(20):
            assert talks(stream, b"after %d" % number)
        chosen = netns.sh(f"ip route get {service}")
        assert f"via {POD[version]} dev antrea-gw0" in chosen
        assert f"src {service}" not in chosen
        looks = TakeoverRemains("antrea-gw0", proxy_all=True)
        for _ in range(3):
            looks.check()
        assert held_addresses() == [service]
        # the other end is quiet for a while, and sends first
        time.sleep(0.3)
        assert talks(stream, b"later")

        stream.shutdown(socket.SHUT_WR)
        assert stream.recv(9) == b""
    assert held_addresses() == [service]
    looks = TakeoverRemains("antrea-gw0", proxy_all=True)
    wait_for("the end of the connection", lambda: not [*translated_connections()], seconds=5)
    looks.check()
    assert held_addresses() == [service]
    looks.check()
    assert held_addresses() == []
    left = netns.sh("ip link; ip rule; ip -6 rule; ip route show table all; nft list tables")
    assert DEVICE not in left
    assert f"{MARK:#x}" not in left
    assert "antrea-earlier" not in left


def test_one_of_two_addresses_is_released_and_the_other_stays(netns: Namespaces) -> None:
    netns.sh(DEVICES)
    hold({SERVICE[4], SERVICE[6]})
    hold({"10.96.0.10"})
    assert set(held_addresses()) == {*SERVICE.values(), "10.96.0.10"}
    release([SERVICE[4]])
    assert set(held_addresses()) == {SERVICE[6], "10.96.0.10"}
    assert SERVICE[4] not in netns.sh("ip route show table 121")
    assert "10.96.0.10" in netns.sh("ip route show table 121")


def test_giving_up_leaves_rules_of_others_with_its_priority(netns: Namespaces) -> None:
    netns.sh(f"{DEVICES} && ip rule add priority {PRIORITY} fwmark 0x1/0x1 lookup 9")
    hold({SERVICE[4]})
    give_up()
    rules_left = [line for line in netns.sh("ip rule").splitlines() if line.startswith(f"{PRIORITY}:")]
    assert ["fwmark 0x1/0x1" in line for line in rules_left] == [True]


UNTRACKED = """
nft -f - <<EOF
table inet untracked {{
  chain in {{ type filter hook prerouting priority raw; ip daddr {ip[4]} notrack; ip6 daddr {ip[6]} notrack; }}
  chain out {{ type filter hook output priority raw; ip daddr {ip[4]} notrack; ip6 daddr {ip[6]} notrack; }}
}}
EOF
"""
"""As the agent has it for external addresses."""


def test_connections_that_were_handed_over_stay_tracked_until_the_last_has_ended(netns: Namespaces) -> None:
    """Of both families, to addresses whose packets the host does not track; new ones are not tracked."""
    pod = netns.make()
    netns.sh(f"{DEVICES} && {LINK.format(pod=pod)}")
    with netns.serving(pod, ECHO):
        with ExitStack() as stack:
            streams = [stack.enter_context(socket.create_connection((ip, 80), 10)) for ip in SERVICE.values()]
            hold((), [one for version in (4, 6) for one in tracked(version)])
            hold({"10.96.0.10"})  # and again
            netns.sh(UNTRACKED.format(ip=SERVICE))
            assert all(talks(stream, b"tracked") for stream in streams)
            for ip in SERVICE.values():
                with pytest.raises(OSError, match=r"timed out|refused"):
                    socket.create_connection((ip, 80), 0.5)
            looks = TakeoverRemains("antrea-gw0", proxy_all=True)
            for _ in range(3):
                looks.check()
            assert held_addresses() == []
            assert all(talks(stream, b"later") for stream in streams)
            assert goes_on(translated_connections())
        wait_for("the end of the connections", lambda: not goes_on(translated_connections()), seconds=5)
    looks.check()
    assert "antrea-earlier" in netns.sh("nft list tables")
    looks.check()
    assert "antrea-earlier" not in netns.sh("nft list tables; ip link")


def test_packets_of_known_connections_and_those_that_begin_one_pause(netns: Namespaces) -> None:
    """In both directions and families; everything else passes."""
    pod = netns.make()
    netns.sh(f"{DEVICES} && {LINK.format(pod=pod)}")
    servers = {VirtualServer("TCP", POD[version], 8080) for version in (4, 6)}
    with netns.serving(pod, ECHO), ExitStack() as stack:
        streams = [stack.enter_context(socket.create_connection((ip, 80), 10)) for ip in SERVICE.values()]
        known = [one for version in (4, 6) for one in tracked(version)]
        assert len(known) == 2
        netns.sh(f"nft -f - <<'EOF'\n{rules((), known)}\nEOF")
        for stream in streams:
            stream.settimeout(0.5)
            with pytest.raises(OSError, match=r"timed out|not permitted"):
                talks(stream, b"paused")
        for ip in POD.values():
            with socket.create_connection((ip, 8080), 10) as other:
                assert talks(other, b"other")
        netns.sh(f"nft -f - <<'EOF'\n{rules(servers, ())}\nEOF")
        for stream in streams:
            stream.settimeout(10)
            assert stream.recv(99) == b"paused\n"
            assert talks(stream, b"goes on")
        for ip in POD.values():
            with pytest.raises(OSError, match=r"timed out|not permitted"):
                socket.create_connection((ip, 8080), 0.5)
