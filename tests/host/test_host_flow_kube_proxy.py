"""Where another proxy serves NodePorts and masquerades their clients, records have the client nevertheless: real packets.

kube-proxy's part is played by its rules in nftables: it translates the destination, and marks what it then gives the Node's own address.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from flow_node import BOTH_ENDS, KINDS, REMOTE, FlowNode, said, until
from policy_node import CONFIG, NODES, OUTSIDE, WEB
from proxy_node import CLIENT, GATEWAYS, LONG

from antrea.apis.flow import FlowRecord, FlowType
from antrea.facts.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Namespaces

HERE, THERE, LOCAL = 30080, 30081, 30082
"""NodePorts: of the Pod of this Node, of that of another one, and with externalTrafficPolicy Local."""
SERVICES = [
    Service("shop", name, (), (("TCP", 80), ("UDP", 80)), port_names=("tcp", "udp"), node_ports=(port, port))
    for name, port in (("here", HERE), ("there", THERE), ("local", LOCAL))
]
CHAINS = """
add table inet kube-proxy
add chain inet kube-proxy node-ports
add chain inet kube-proxy before { type nat hook prerouting priority dstnat; fib daddr type local jump node-ports; }
add chain inet kube-proxy own { type nat hook output priority -100; fib daddr type local jump node-ports; }
add chain inet kube-proxy after { type nat hook postrouting priority srcnat; meta mark & 0x4000 == 0x4000 masquerade fully-random; }
"""


def rules() -> str:
    """Of each NodePort, in both families."""
    lines = [CHAINS]
    for port, pods, mark in (
        (HERE, WEB, "meta mark set meta mark or 0x4000"), (THERE, REMOTE, "meta mark set meta mark or 0x4000"), (LOCAL, WEB, ""),
    ):  # fmt: skip
        for family, to in (("ip", f"{pods[0]}:8080"), ("ip6", f"[{pods[1]}]:8080")):
            what = f"meta nfproto {'ipv4' if family == 'ip' else 'ipv6'} meta l4proto {{ tcp, udp }} th dport {port}"
            lines.append(f"add rule inet kube-proxy node-ports {what} {mark} dnat {family} to {to}")
    return "\n".join(lines)


class AskedNode(FlowNode):
    """Whose clients say which port they have, after what the Pod has answered."""

    client = CLIENT.replace(".decode())", ".decode(), client.getsockname()[1])")

    async def asked(self, who: str, ip: str, kind: str, port: int) -> tuple[str, int, int]:
        """Whom the Pod sees, at which port, and the port of the client."""
        source, seen, own = (await self.ask(who, ip, kind, port, LONG)).split()
        return source, int(seen), int(own)


@pytest.fixture
def node(netns: Namespaces) -> Iterator[AskedNode]:
    with AskedNode(netns).standing() as found:
        words = ["ip", "netns", "exec", netns.home, "nft", "-f", "-"]
        subprocess.run(words, input=rules(), text=True, check=True)
        yield found


WAYS = [(family, kind) for family in (0, 1) for kind in KINDS]


async def test_records_have_the_client_of_a_node_port_that_kube_proxy_serves(node: AskedNode) -> None:
    peer = node.plug_pod_of_peer()
    for row in SERVICES:
        node.facts.put(row)
    async with node.exporting(CONFIG) as got:
        with node.serving(peer, BOTH_ENDS), node.serving(node.pods["web"], BOTH_ENDS):
            served = (("here", HERE, WEB), ("there", THERE, REMOTE))
            tried = [(one, way) for one in served for way in WAYS]
            answers = [await node.asked("outside", NODES[way[0]], way[1], one[1]) for one, way in tried]
            for ((name, port, pods), (family, kind)), (source, seen, own) in zip(tried, answers, strict=True):
                assert source == GATEWAYS[family], (name, family, kind)
                one = await record(got, KINDS[kind], OUTSIDE[family], own)
                named = f"shop/{name}:{'tcp' if kind == 'SOCK_STREAM' else 'udp'}"
                assert said(one) == (OUTSIDE[family], pods[family], 8080, named, port, NODES[family])
                assert (one.proxy_snat_ip, one.proxy_snat_port) == (source, seen)
                assert one.flow_type == FlowType.FROM_EXTERNAL
                assert (one.source_pod_name, one.destination_pod_name) == (
                    "",
                    "web" if name == "here" else "",
                )
            assert not {one.source_ip for one in got} & {*GATEWAYS}


async def test_records_of_what_is_not_masqueraded_or_begins_at_the_node_keep_their_source(
    node: AskedNode,
) -> None:
    """As of a probe of kubelet, and of a program of the Node that asks for a NodePort."""
    for row in SERVICES:
        node.facts.put(row)
    async with node.exporting(CONFIG) as got:
        with node.serving(node.pods["web"], BOTH_ENDS):
            places = (("outside", NODES, LOCAL, LOCAL), ("node", WEB, 8080, 0), ("node", NODES, HERE, HERE))
            tried = [(one, way) for one in places for way in WAYS]
            answers = [await node.asked(one[0], one[1][way[0]], way[1], one[2]) for one, way in tried]
            for ((who, _, _, service), (family, kind)), (source, seen, own) in zip(
                tried, answers, strict=True
            ):
                external = who == "outside"
                assert source == (OUTSIDE if external else GATEWAYS)[family]
                assert seen == own or service == HERE
                one = await record(got, KINDS[kind], source, seen)
                assert one.flow_type == (FlowType.FROM_EXTERNAL if external else FlowType.INTER_NODE)
                assert (one.destination_service_port, one.proxy_snat_ip) == (service, "")


async def record(got: list[FlowRecord], protocol: int, ip: str, port: int) -> FlowRecord:
    """The first one of a connection of this source."""

    def found() -> list[FlowRecord]:
        ends = (protocol, ip, port)
        return [
            one for one in got if (one.protocol_identifier, one.source_ip, one.source_transport_port) == ends
        ]

    await until(found)
    return found()[0]
