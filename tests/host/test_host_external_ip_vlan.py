"""An external IP of a Service in a VLAN: hosts there find the Node, and replies leave by the router of the VLAN, in both families."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

import pytest
from egress_node import CLIENT, FAR, GATEWAYS, NODES, PODS, SERVER, Node
from wide_pool import wide_pool

from antrea.apis.annotation import SILENT_SUBNETS
from antrea.facts.egress import EgressGateway
from antrea.facts.external_ip import ExternalIPOwner
from antrea.facts.member import AgentNode, GossipMember, Quorum
from antrea.facts.service import Service
from antrea.features.egress.agent_part import gateway_prober
from antrea.features.egress.agent_part.gateway_prober import GatewayFeed

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
                "shop", f"web{version}", ("10.96.0.7", ip), (), external_ips=(ip,), load_balancer_ips=(ip,), pools=(f"p{version}",)
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


@pytest.mark.parametrize("version", [4, 6])
async def test_a_node_whose_switch_port_drops_the_vlan_leaves_its_addresses_to_others_until_it_carries_it(
    node: Node, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_prober, "LOOK_SECONDS", 0.1)
    node.plug_vlan(181)
    ip, gateway, prefix = IPS[version], GATEWAYS[version], {4: 24, 6: 64}[version]
    subnet = f"{gateway}/{prefix}@181"

    def read_back() -> str:
        """What all agents read in the Node object."""
        text = node.annotations.values.get(SILENT_SUBNETS, "")
        silent = tuple(filter(None, text.split(",")))
        node.facts.put(AgentNode("n1", tuple(NODES.values()), (NODES[4],), silent=silent))
        return text

    async with node.agent("ServiceExternalIP"):
        node.facts.put(Quorum(has=True, alive=2, of=2))
        node.facts.put(AgentNode("n2", ("192.0.2.2",), ("192.0.2.2",)))
        node.facts.put(GossipMember("n2", alive=True))
        read_back()
        node.facts.put(wide_pool("p", (), gateway, prefix, 181))
        node.facts.put(Service(
            "shop", "web", ("10.96.0.7", ip), (), external_ips=(ip,), load_balancer_ips=(ip,), pools=("p",), preferred=("n1",)
        ))  # fmt: skip
        feed = asyncio.create_task(GatewayFeed().run(node.facts))
        await node.until(lambda: node.answered == [ip])
        await node.until(lambda: node.facts.all(EgressGateway))
        assert read_back() == ""
        node.switch.vsctl("set", "port", "sw1", "trunks=182")
        await node.until(lambda: read_back() == subnet)
        await node.until(lambda: owner(node) == "n2")
        await node.engine.quiet()
        assert [text.partition(" on ")[0] for text in node.silent] == [
            f"gateway {gateway} does not answer Node n1"
        ]
        assert "antrea-ext.181" in node.switch.ports("br-phy")
        node.switch.vsctl("clear", "port", "sw1", "trunks")
        await node.until(lambda: read_back() == "")
        await node.until(lambda: owner(node) == "n1")
        await node.until(lambda: node.answered == [ip, ip])
        # if no other Node is there it goes on, whatever its port carries
        node.facts.put(GossipMember("n2", alive=False))
        node.switch.vsctl("set", "port", "sw1", "trunks=182")
        await node.until(lambda: read_back() == subnet)
        await node.engine.quiet()
        assert owner(node) == "n1"
        feed.cancel()


def owner(node: Node) -> str:
    (row,) = node.facts.all(ExternalIPOwner)
    return row.node
