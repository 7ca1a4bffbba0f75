"""External IPs of Services on the wire: neighbours are answered by ARP and neighbour discovery, and no device has the address."""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from agent_process import NODE, agent_process

from antrea.engine import Facts
from antrea.facts.external_ip import ExternalIPOwner
from antrea.facts.node import LocalAddress, Transport
from antrea.features.service_external_ip.agent_part.strict_arp import strict_arp_missing
from antrea.host.neighbour_response import NeighbourResponse
from antrea.outside.neighbour import probe
from antrea.outside.neighbour import responder as module
from antrea.outside.neighbour.probe import who_has
from antrea.outside.neighbour.responder import NeighbourResponder, solicited_node

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from agent_process import AgentProcess
    from conftest import Namespaces

IPS = {4: "192.0.2.40", 6: "2001:db8::40"}
OTHER = {4: "192.0.2.41", 6: "2001:db8::41"}
SLOW_HOST = """
import ipaddress, socket, time
from antrea.outside.neighbour.responder import arp_answer, na_answer
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
link.bind(("eth0", 3))
mac, wanted = link.getsockname()[4], {{ipaddress.ip_address("{ip}").packed}}
print("listening", flush=True)
while True:
    frame = link.recv(256)
    if answer := arp_answer(mac, frame, wanted) or na_answer(mac, frame, wanted):
        time.sleep(0.03)
        link.send(answer)
"""
"""A host that answers after a while, as one behind switches does."""
VERSIONS = pytest.mark.parametrize("version", [4, 6])


@pytest.fixture
async def responder() -> AsyncIterator[NeighbourResponder]:
    made = NeighbourResponder()
    yield made
    made.close()


def link(netns: Namespaces) -> str:
    """A Node's eth0, and beyond it a host; its namespace."""
    host = netns.make()
    netns.sh(
        f"ip link add eth0 type veth peer name eth0 netns {host}; ip link set eth0 up;"
        " ip addr add 192.0.2.1/24 dev eth0; ip addr add 2001:db8::1/64 dev eth0 nodad"
    )
    netns.sh(
        "ip link set eth0 up; ip addr add 192.0.2.9/24 dev eth0; ip addr add 2001:db8::9/64 dev eth0 nodad",
        host,
    )
    return host


def mac(netns: Namespaces, host: str | None = None) -> str:
    return str(json.loads(netns.sh("ip -j link show eth0", host))[0]["address"])


async def neighbour(netns: Namespaces, host: str, ip: str) -> str:
    """The MAC address that the host's own kernel finds for the address; empty: nobody answers."""
    family = "ipv6" if ":" in ip else "ipv4"
    netns.sh(f"sysctl -qw net.{family}.neigh.eth0.retrans_time_ms=200; ip neigh flush to {ip} dev eth0", host)
    await asyncio.to_thread(netns.run, f"ping -c 1 -W 1 {ip}", host)
    for _ in range(100):
        rows: list[dict[str, Any]] = json.loads(netns.sh(f"ip -j neigh show to {ip} dev eth0", host))
        macs = [str(row["lladdr"]) for row in rows if "lladdr" in row]
        if macs or not rows or "FAILED" in rows[0]["state"]:
            return next(iter(macs), "")
        await asyncio.sleep(0.1)
    raise AssertionError(f"{ip} is still asked for")


@VERSIONS
async def test_hosts_find_the_node_for_an_address_that_it_has_on_no_device(
    netns: Namespaces, responder: NeighbourResponder, version: int
) -> None:
    host, entry = link(netns), NeighbourResponse(dev="eth0", ip=IPS[version])
    assert await neighbour(netns, host, entry.ip) == ""
    await responder.apply([entry], [])
    assert responder.answers(entry.ip)
    assert await neighbour(netns, host, entry.ip) == mac(netns)
    assert await neighbour(netns, host, OTHER[version]) == ""
    assert entry.ip not in netns.sh("ip addr")
    await responder.apply([NeighbourResponse(dev="eth0", ip=OTHER[version])], [entry])
    assert await neighbour(netns, host, entry.ip) == ""
    assert await neighbour(netns, host, OTHER[version]) == mac(netns)
    assert not responder.answers(entry.ip)


@VERSIONS
async def test_an_answer_counts_however_late_a_busy_process_reads_it(netns: Namespaces, version: int) -> None:
    host, loop, is_busy = link(netns), asyncio.get_running_loop(), True

    def hog() -> None:
        time.sleep(1.5 * probe.GAP_SECONDS)
        if is_busy:
            loop.call_soon(hog)

    with netns.serving(host, SLOW_HOST.format(ip=IPS[version])):
        loop.call_soon(hog)
        assert await who_has("eth0", IPS[version]) == mac(netns, host)
        assert await who_has("eth0", OTHER[version]) == ""
    is_busy = False


@VERSIONS
async def test_a_host_that_looks_for_a_duplicate_finds_the_node(
    netns: Namespaces, responder: NeighbourResponder, version: int
) -> None:
    """As who_has asks: with no address of its own, by RFC 5227 and RFC 4862."""
    netns.sh("ip link add eth0 type veth peer name host0; ip link set eth0 up; ip link set host0 up")
    await responder.apply([NeighbourResponse(dev="eth0", ip=IPS[version])], [])
    with pytest.MonkeyPatch.context() as patch:
        # both ends of the link are of this namespace, and its own cards do not count
        patch.setattr("antrea.outside.neighbour.probe._own_macs", frozenset)
        patch.setattr("antrea.outside.neighbour.probe.GAP_SECONDS", 10.0)
        assert await who_has("host0", IPS[version]) == mac(netns)


@VERSIONS
async def test_a_device_that_goes_and_comes_back_answers_again(
    netns: Namespaces, responder: NeighbourResponder, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REOPEN_SECONDS", 0.05)
    await responder.apply([NeighbourResponse(dev="eth0", ip=IPS[version])], [])
    for _ in range(2):
        host = link(netns)
        for _ in range(60):
            if found := await neighbour(netns, host, IPS[version]):
                break
        assert found == mac(netns)
        netns.sh("ip link del eth0")


async def test_cards_and_switches_pass_solicitations_for_an_address_as_long_as_it_is_answered_for(
    netns: Namespaces, responder: NeighbourResponder
) -> None:
    link(netns)
    group = "ff02::1:ff00:40"
    assert solicited_node(bytes(13) + b"\0\0\x40")[-3:] == b"\0\0\x40"
    one, same = (NeighbourResponse(dev="eth0", ip=ip) for ip in (IPS[6], "2001:db8:1::40"))
    await responder.apply([one, same], [])
    assert group in netns.sh("ip maddr show dev eth0")
    await responder.apply([], [one])
    assert group in netns.sh("ip maddr show dev eth0")
    await responder.apply([], [same])
    assert group not in netns.sh("ip maddr show dev eth0")


async def test_the_whole_agent_answers_for_the_external_ip_of_a_service_and_says_so(
    netns: Namespaces, tmp_path: Path
) -> None:
    env = dict(os.environ)
    async with agent_process(netns, tmp_path, env) as agent:
        netns.sh("ip netns list")
        host = netns.make()
        netns.sh(f"ip link set far0 netns {host} name eth0")
        netns.sh(
            f"ip link set eth0 up; ip addr add 192.0.2.9/24 dev eth0; ip addr add {IPS[4]}/24 dev eth0", host
        )
        put_service(agent)
        await agent.until(lambda agent: agent.ready(), "the agent is ready")
        await agent.until(lambda agent: told(agent, mac(netns, host)), "the host with the address is named")
        netns.sh(f"ip addr del {IPS[4]}/24 dev eth0", host)
        await agent.until(lambda _: answered(netns, host), "the Node answers")
        status, text = await agent.get("/serviceexternalip?name=web&namespace=shop")
        assert (status, json.loads(text)) == (200, [
            {"serviceName": "web", "namespace": "shop", "externalIP": IPS[4], "externalIPPool": "p", "assignedNode": NODE}
        ])  # fmt: skip
        assert (await agent.get("/serviceexternalip?name=none"))[0] == 404
        assert IPS[4] not in netns.sh("ip addr")
        agent.api.put("/apis/crd.antrea.io/v1beta1/externalippools/p", pool({"no": "such"}))
        await agent.until(lambda _: unanswered(netns, host), "the Node answers no more")


async def test_addresses_that_kube_proxy_in_mode_ipvs_has_on_each_node_are_named_until_strict_arp_is_set(
    netns: Namespaces,
) -> None:
    """A device of that name with the address, as kube-proxy makes it; the kernel answers, or not."""
    host, facts = link(netns), Facts()
    netns.sh(f"ip link add kube-ipvs0 type bridge; ip addr add {IPS[4]}/32 dev kube-ipvs0")
    for row in (
        Transport("eth0", "eth0", "", 1500, ("192.0.2.1/24",)), LocalAddress(IPS[4], "kube-ipvs0", 32),
        LocalAddress(IPS[6], "kube-ipvs0", 128), ExternalIPOwner("shop/web", IPS[4], "p", "n2"),
        ExternalIPOwner("shop/web6", IPS[6], "p", "n2"),
    ):  # fmt: skip
        facts.put(row)
    assert await neighbour(netns, host, IPS[4]) == mac(netns)
    assert f"kube-ipvs0: {IPS[4]}; set ipvs.strictARP: true" in strict_arp_missing(facts)
    netns.sh("sysctl -qw net.ipv4.conf.all.arp_ignore=1")
    assert await neighbour(netns, host, IPS[4]) == ""
    assert strict_arp_missing(facts) == ""


def pool(labels: dict[str, str]) -> dict[str, object]:
    ranges = [{"start": IPS[4], "end": IPS[4]}]
    return {"metadata": {"uid": "p"}, "spec": {"ipRanges": ranges, "nodeSelector": {"matchLabels": labels}}}


def put_service(agent: AgentProcess) -> None:
    notes = {"service.antrea.io/external-ip-pool": "p"}
    agent.api.put("/apis/crd.antrea.io/v1beta1/externalippools/p", pool({}))
    agent.api.put("/api/v1/services/web", {
        "metadata": {"uid": "s", "namespace": "shop", "annotations": notes},
        "spec": {"type": "LoadBalancer", "clusterIPs": ["10.96.0.7"], "ports": [{"port": 80, "protocol": "TCP"}]},
        "status": {"loadBalancer": {"ingress": [{"ip": IPS[4]}]}},
    })  # fmt: skip


async def told(agent: AgentProcess, mac: str) -> bool:
    """Whether an Event of the Service names this host."""
    events = [found for path, found in agent.api.objects.items() if "/events/" in path]
    return any(one["reason"] == "ExternalIPConflict" and mac in one["message"] for one in events)


async def answered(netns: Namespaces, host: str) -> bool:
    return await neighbour(netns, host, IPS[4]) == mac(netns)


async def unanswered(netns: Namespaces, host: str) -> bool:
    return await neighbour(netns, host, IPS[4]) == ""
