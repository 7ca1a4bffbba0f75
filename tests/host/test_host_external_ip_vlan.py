"""An external IP of a Service in a VLAN: hosts there find the Node, and replies leave by the router of the VLAN, in both families."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

import pytest
from egress_node import CLIENT, FAR, GATEWAYS, NODES, PODS, SERVER, Node
from wide_pool import wide_pool

from antrea.facts.member import AgentNode, Quorum
from antrea.facts.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Namespaces

IPS = {4: "172.16.181.60", 6: "fd00:181::60"}
FAR_CLIENT = CLIENT.replace(
    "timeout=int(sys.argv[2])", "timeout=int(sys.argv[2]), source_address=(sys.argv[3], 0)"
)
"""It connects from the address that is its third argument."""


@pytest.fixture
def node(netns: Namespaces) -> Iterator[Node]:
    with Node(netns).standing() as there, there.serving(there.pods["web"], SERVER):
        yield there


def serve(node: Node) -> None:
    """Translate the addresses to the Pod, as kube-proxy does with externalTrafficPolicy Local."""
    for version, ip in IPS.items():
        family, to = ("ip", PODS[4]) if version == 4 else ("ip6", f"[{PODS[6]}]")
        node.netns.sh(
            f"nft 'table {family} proxy {{ chain services {{ type nat hook prerouting priority dstnat;"
            f" {family} daddr {ip} tcp dport 8099 dnat to {to}:8099; }}; }}'"
        )


async def seen(node: Node, version: int, source: str) -> str:
    """The address that the Pod sees when a host in the VLAN, or behind its router, connects."""
    words = (sys.executable, "-c", FAR_CLIENT, IPS[version], "20", source)
    await asyncio.to_thread(node.switch.revalidate)
    run = await asyncio.create_subprocess_exec(
        *("ip", "netns", "exec", node.router, *words), stdout=-1, stderr=-1
    )
    out, err = await run.communicate()
    assert run.returncode == 0, err.decode()
    return out.decode().strip()


async def test_hosts_in_the_vlan_and_behind_its_router_reach_a_service_by_it(node: Node) -> None:
    node.plug_vlan(181)
    # as routers do, it takes no ARP request of a host of another subnet
    node.netns.sh("sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.eth0.rp_filter=1", node.router)
    serve(node)
    async with node.agent("ServiceExternalIP"):
        node.facts.put(Quorum(has=True, alive=1, of=1))
        node.facts.put(AgentNode("n1", tuple(NODES.values()), (NODES[4],)))
        for version, prefix in ((4, 24), (6, 64)):
            ip = IPS[version]
            node.facts.put(wide_pool(f"p{version}", (), GATEWAYS[version], prefix, 181))
            node.facts.put(Service(
                "shop", f"web{version}", ("10.96.0.7", ip), (), external_ips=(ip,), load_balancer_ips=(ip,), pool=f"p{version}"
            ))  # fmt: skip
        await node.until(lambda: len(node.answered) == len(IPS))
        await node.engine.quiet()
        mac = node.mac_of("antrea-ext.181")
        for version, ip in IPS.items():
            for source in (FAR[version], GATEWAYS[version]):
                assert await seen(node, version, source) == source
            assert ip not in node.netns.sh("ip addr")
        shown = json.loads(node.netns.sh("ip -j neigh show dev eth0", node.router))
        heard = {row["dst"]: row.get("lladdr") for row in shown}
        assert {heard.get(ip) for ip in IPS.values()} == {mac}
        for version in IPS:
            node.facts.drop(Service, f"shop/web{version}")
        await node.engine.quiet()
        assert "antrea-ext.181" not in node.switch.ports("br-phy")
        assert "lookup 10" not in node.netns.sh("ip rule; ip -6 rule")
        assert "arp-source" not in node.netns.sh("nft list ruleset")
