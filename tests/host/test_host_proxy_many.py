"""20,000 Services, and 10,000 Endpoints of one, with packets: who asks gets an answer from an Endpoint of that very Service.

A cable takes the place of the tunnel to a Node whose Pods have all addresses of the Endpoints.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from ipaddress import ip_address
from typing import TYPE_CHECKING

import pytest
from policy_node import OUTSIDE
from proxy_node import GATEWAYS, NEAR, PROXY_ALL, Node

from antrea.facts.member import AgentNode
from antrea.facts.service import Service, ServiceEndpoint
from antrea.openflow.fields import GLOBAL_VIRTUAL_MAC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Namespaces

pytestmark = pytest.mark.wide
SERVICES, ENDPOINTS = 20_000, 10_000
SAMPLE, CONNECTIONS = 50, 3_000
"""Every 50th Service is asked for by the Node as well; connections to the one Service."""
FIRST_SERVICE, FIRST_ENDPOINT = ("10.97.0.1", "fd00:97::1"), ("10.20.0.1", "fd00:20::1")
NETWORKS = ("10.20.0.0/16", "fd00:20::/64")
PODS = ("10.10.0.0/24", "fd00:10::/64")
SERVER = """
import socket
server = socket.create_server(("::", 8080), family=socket.AF_INET6, dualstack_ipv6=True, backlog=512)
print("listening", flush=True)
while True:
    client, _ = server.accept()
    client.sendall(client.getsockname()[0].removeprefix("::ffff:").encode())
    client.close()
"""
"""Answers with its own address, which is that of an Endpoint."""
CLIENT = """
import ipaddress, json, socket, sys
from concurrent.futures import ThreadPoolExecutor
first, numbers = sys.argv[1], range(*map(int, sys.argv[2:5]))
def ask(number):
    address = str(ipaddress.ip_address(first) + number * int(sys.argv[5]))
    try:
        with socket.create_connection((address, 80), timeout=30) as client:
            return client.recv(99).decode()
    except OSError as no:
        return repr(no)
with ThreadPoolExecutor(8) as pool:
    print(json.dumps(list(pool.map(ask, numbers))))
"""
"""The answer of each of a range of addresses, `first` plus a number, or of as many connections to one, as JSON."""


@pytest.fixture
def node(netns: Namespaces) -> Iterator[Node]:
    with Node(netns).standing() as found:
        yield found


def plug_endpoints(node: Node) -> str:
    """The namespace that has the addresses of all Endpoints, on Node n3."""
    peer = node.plug_peer()
    for six in (False, True):
        node.netns.sh(f"ip route add local {NETWORKS[six]} dev lo; ip route add {PODS[six]} dev eth0", peer)
        for ip in (NEAR[six], GATEWAYS[six]):
            node.netns.sh(f"ip neigh add {ip} lladdr {GLOBAL_VIRTUAL_MAC} dev eth0 nud permanent", peer)
    node.facts.put(AgentNode("n3", OUTSIDE, OUTSIDE, pod_cidrs=NETWORKS))
    return peer


def nth(first: str, number: int) -> str:
    return str(ip_address(first) + number)


def endpoint(service: str, ip: str) -> ServiceEndpoint:
    return ServiceEndpoint(
        f"{service}-{ip}", service, "http", "TCP", ip, 8080, "n3", ready=True, serving=True, terminating=False
    )


def service(number: int, *, six: bool) -> Service:
    ips = (nth(FIRST_SERVICE[six], number),)
    return Service("shop", f"s{number}", ips, (("TCP", 80),), port_names=("http",), node_ports=(0,))


async def answers(
    node: Node, who: str, first: str, count: int, *, step: int = 1, one: bool = False
) -> list[str]:
    """Of each `step`th address from the first one on, or of the first alone, asked that many times."""
    await asyncio.to_thread(node.switch.revalidate)
    words = ["ip", "netns", "exec", node.pods[who], sys.executable, "-c", CLIENT]
    asked = [*words, first, "0", str(count), str(step), str(int(not one))]
    run = await asyncio.to_thread(subprocess.run, asked, stdout=-1, text=True, check=True, timeout=600)
    found: list[str] = json.loads(run.stdout)
    return found


@pytest.mark.parametrize("six", [False, True], ids=["IPv4", "IPv6"])
async def test_each_of_20000_services_leads_to_its_own_endpoint(node: Node, six: bool) -> None:
    peer = plug_endpoints(node)
    wanted = [nth(FIRST_ENDPOINT[six], number) for number in range(SERVICES)]
    for number, ip in enumerate(wanted):
        node.facts.put(service(number, six=six))
        node.facts.put(endpoint(f"shop/s{number}", ip))
    async with node.agent(PROXY_ALL, "AntreaProxy") as engine:
        with node.serving(peer, SERVER):
            assert await answers(node, "near", FIRST_SERVICE[six], SERVICES) == wanted
            assert await answers(node, "node", FIRST_SERVICE[six], SERVICES, step=SAMPLE) == wanted[::SAMPLE]
        assert not engine.errors.counts


@pytest.mark.parametrize("six", [False, True], ids=["IPv4", "IPv6"])
async def test_connections_to_one_service_are_spread_over_10000_endpoints(node: Node, six: bool) -> None:
    peer = plug_endpoints(node)
    ips = {nth(FIRST_ENDPOINT[six], number) for number in range(ENDPOINTS)}
    for row in (service(0, six=six), *(endpoint("shop/s0", ip) for ip in ips)):
        node.facts.put(row)
    async with node.agent(PROXY_ALL, "AntreaProxy") as engine:
        with node.serving(peer, SERVER):
            found = await answers(node, "near", FIRST_SERVICE[six], CONNECTIONS, one=True)
        assert set(found) <= ips
        # of so many connections to as many Endpoints 2,592 are expected to have one of their own
        assert len(set(found)) > 2_450
        assert not engine.errors.counts
