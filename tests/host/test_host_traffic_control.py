"""TrafficControl in the agent as it runs: receivers on real ports get real packets of Pods, in both families."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from agent_process import NODE, OBJECTS, agent_process
from pods_api import PodsApi

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent_process import AgentProcess
    from certificate_world import ApiServer
    from conftest import Namespaces

CONTROLS = "/apis/crd.antrea.io/v1alpha2/trafficcontrols"
CONFIG = {"featureGates": {"TrafficControl": True}}
ADDRESSES = {"a": ("10.10.1.11", "fd74::11"), "b": ("10.10.1.12", "fd74::12")}
MACS = {"a": "0a:00:00:00:00:11", "b": "0a:00:00:00:00:12"}
CABLE = "ip link add target1 type veth peer name return1; ip link set target1 up; ip link set return1 up"
ETH_P_ALL = 3
ETHER_TYPES = (0x0800, 0x86DD)


def api() -> PodsApi:
    families = {"podCIDR": "10.10.1.0/24", "podCIDRs": ["10.10.1.0/24", "fd74::/64"]}
    server = PodsApi(
        {**OBJECTS, f"/api/v1/nodes/{NODE}": {**OBJECTS[f"/api/v1/nodes/{NODE}"], "spec": families}}
    )
    server.put("/api/v1/namespaces/shop", {"metadata": {"labels": {"team": "shop"}}})
    for name in ADDRESSES:
        meta = {"namespace": "shop", "uid": f"u-{name}", "labels": {"app": name}}
        spec = {"nodeName": NODE, "containers": []}
        server.put(f"/api/v1/pods/{name}", {"metadata": meta, "spec": spec, "status": {"phase": "Running"}})
    return server


def control(server: ApiServer, name: str, created: str = "2026-01-01T00:00:00Z", **spec: Any) -> None:
    """A TrafficControl of Pod a."""
    whole = {"appliedTo": {"podSelector": {"matchLabels": {"app": "a"}}}, "direction": "Both", **spec}
    meta = {"uid": f"u-{name}", "creationTimestamp": created}
    server.put(f"{CONTROLS}/{name}", {"metadata": meta, "spec": whole})


def connect(netns: Namespaces, agent: AgentProcess) -> dict[str, str]:
    """The Pods' namespaces, with ports as the CNI server makes them."""
    spaces = {}
    for name, (ipv4, ipv6) in ADDRESSES.items():
        space, port, mac = netns.make(), f"pod{name}", MACS[name]
        netns.sh(
            f"ip link add {port} type veth peer name eth0 netns {space} && ip link set {port} up && "
            f"ip netns exec {space} sh -c 'ip link set eth0 address {mac} up; ip addr add {ipv4}/24 dev eth0; "
            f"ip addr add {ipv6}/64 dev eth0 nodad; ethtool -K eth0 tx off >/dev/null 2>&1'"
        )
        ids = {
            "antrea-type": "container", "container-id": f"c{name}", "pod-name": name, "pod-namespace": "shop",
            "attached-mac": mac, "ip-address": f'"{ipv4},{ipv6}"',
        }  # fmt: skip
        words = [
            f"external_ids:{key}={value}" if "," in value else f'external_ids:{key}="{value}"'
            for key, value in ids.items()
        ]
        agent.switch.vsctl("add-port", "br-int", port, "--", "set", "port", port, *words)
        spaces[name] = space
    return spaces


def flows(agent: AgentProcess, *words: str) -> list[str]:
    found = agent.switch.ofctl(
        "dump-flows", "br-int", "-O", "OpenFlow15", "--names", "--no-stats"
    ).splitlines()
    return [line for line in found if all(word in line for word in words)]


def marked(agent: AgentProcess) -> list[str]:
    return [line for line in flows(agent, "table=TrafficControl") if "->reg9" in line]


def ports(agent: AgentProcess) -> list[str]:
    return agent.switch.vsctl("list-ports", "br-int").split()


def ping(netns: Namespaces, agent: AgentProcess, space: str, address: str) -> bool:
    """Whether it is answered, by the flows that the switch has now."""
    agent.switch.revalidate()
    return netns.run(f"ping -c 1 -W 1 {address}", space).returncode == 0


def messages(agent: AgentProcess, name: str) -> list[str]:
    """Of Events on a TrafficControl."""
    events = [one for path, one in agent.api.objects.items() if "/events/" in path]
    return [one["message"] for one in events if one["involvedObject"]["name"] == name]


def reaches(netns: Namespaces, space: str, address: str, agent: AgentProcess) -> bool:
    return ping(netns, agent, space, address)


@contextlib.contextmanager
def receiver(port: str) -> Iterator[socket.socket]:
    """What the switch sends by a port."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as found:
        found.bind((port, 0))
        yield found


def endpoints(tap: socket.socket, seconds: float = 60, expect: int = 4) -> set[tuple[str, str]]:
    """Source and destination of echo packets, until so many are seen."""
    seen: set[tuple[str, str]] = set()
    deadline = time.monotonic() + seconds
    while len(seen) < expect and time.monotonic() < deadline:
        if select.select([tap], [], [], 0.2)[0]:
            seen |= echo(tap.recv(2048))
    return seen


def echo(frame: bytes) -> set[tuple[str, str]]:
    kind = int.from_bytes(frame[12:14])
    if kind == ETHER_TYPES[0] and frame[23] == socket.IPPROTO_ICMP:
        return {
            (socket.inet_ntop(socket.AF_INET, frame[26:30]), socket.inet_ntop(socket.AF_INET, frame[30:34]))
        }
    if kind == ETHER_TYPES[1] and frame[20] == socket.IPPROTO_ICMPV6 and frame[54] in (128, 129):
        return {
            (socket.inet_ntop(socket.AF_INET6, frame[22:38]), socket.inet_ntop(socket.AF_INET6, frame[38:54]))
        }
    return set()


BOTH_WAYS = {
    pair for one, other in zip(*ADDRESSES.values(), strict=True) for pair in ((one, other), (other, one))
}


async def connected(netns: Namespaces, agent: AgentProcess) -> dict[str, str]:
    """The Pods' namespaces, once packets get through."""
    await agent.until(lambda agent: agent.ready(), "the agent is ready")
    pods = connect(netns, agent)
    for address in ADDRESSES["a"]:
        await agent.until(partial(reaches, netns, pods["b"], address), "packets get through")
    return pods


async def test_a_receiver_gets_copies_of_both_directions(netns: Namespaces, tmp_path: Path) -> None:
    """Nothing costs a flow before; an overlap is told by an Event; the port goes with its last user."""
    async with agent_process(netns, tmp_path, dict(os.environ), CONFIG, api()) as agent:
        pods = await connected(netns, agent)

        tap = {"ovsInternal": {"name": "tap0"}}
        control(agent.api, "mirror", action="Mirror", targetPort=tap)
        await agent.until(lambda agent: len(marked(agent)) == 2, "the flows of Pod a mirror")
        with receiver("tap0") as mirror:
            for six in (0, 1):
                assert ping(netns, agent, pods["b"], ADDRESSES["a"][six])
            assert endpoints(mirror) == BOTH_WAYS

        control(agent.api, "later", "2026-02-01T00:00:00Z", action="Mirror", targetPort=tap)
        await agent.until(lambda agent: [
            one for path, one in agent.api.objects.items()
            if "/events/" in path and one["reason"] == "TrafficControlOverlapped"
            and one["involvedObject"]["name"] == "later"
        ], "an Event on the TrafficControl that Pod a does not follow")  # fmt: skip
        agent.api.drop(f"{CONTROLS}/later")
        agent.api.drop(f"{CONTROLS}/mirror")
        await agent.until(lambda agent: not flows(agent, "reg9"), "no flow is left")
        await agent.until(lambda agent: "tap0" not in ports(agent), "nor the port")


async def test_redirected_packets_pass_a_forwarder_or_are_dropped(netns: Namespaces, tmp_path: Path) -> None:
    """Closed before the devices exist and after they are gone."""
    async with agent_process(netns, tmp_path, dict(os.environ), CONFIG, api()) as agent:
        pods = await connected(netns, agent)
        target, back = {"device": {"name": "target1"}}, {"device": {"name": "return1"}}
        control(agent.api, "redirect", action="Redirect", targetPort=target, returnPort=back)
        await agent.until(lambda agent: len(flows(agent, "TrafficControl", "actions=drop")) == 2, "closed")
        for six in (0, 1):
            assert not ping(netns, agent, pods["b"], ADDRESSES["a"][six])
        missing = "Port 'target1': there is no such device: packets of its Pods are dropped"
        await agent.until(lambda agent: missing in messages(agent, "redirect"), "an Event names the device")
        # the forwarder: a cable from the target to the return port
        netns.sh(CABLE)
        await agent.until(lambda agent: len(marked(agent)) == 2, "packets are redirected")
        await agent.until(
            lambda agent: flows(agent, "in_port=return1", "table=Classifier"), "and may come back"
        )
        with receiver("return1") as cable:
            for six in (0, 1):
                assert ping(netns, agent, pods["b"], ADDRESSES["a"][six])
            assert endpoints(cable) == BOTH_WAYS
        netns.sh("ip link del target1")
        for six in (0, 1):
            assert not ping(netns, agent, pods["b"], ADDRESSES["a"][six])
        await agent.until(lambda agent: "target1" not in ports(agent), "the port goes with its device")
        netns.sh(CABLE)
        for address in ADDRESSES["a"]:
            await agent.until(
                partial(reaches, netns, pods["b"], address), "devices that return are used again"
            )


async def test_a_device_that_was_replaced_at_once_is_attached_anew(netns: Namespaces, tmp_path: Path) -> None:
    async with agent_process(netns, tmp_path, dict(os.environ), CONFIG, api()) as agent:
        pods = await connected(netns, agent)
        netns.sh(CABLE)
        target, back = {"device": {"name": "target1"}}, {"device": {"name": "return1"}}
        control(agent.api, "redirect", action="Redirect", targetPort=target, returnPort=back)
        await agent.until(lambda agent: len(marked(agent)) == 2, "packets are redirected")
        for _ in range(3):
            netns.sh(f"ip link del target1; {CABLE}")
            for address in ADDRESSES["a"]:
                await agent.until(partial(reaches, netns, pods["b"], address), "the new devices are used")


async def test_packets_of_a_pod_that_is_not_known_yet_do_not_bypass_the_inspection(
    netns: Namespaces, tmp_path: Path
) -> None:
    """Its port is there before its labels are; where nothing is redirected, nothing is held back."""
    server = api()
    server.drop("/api/v1/pods/a")
    async with agent_process(netns, tmp_path, dict(os.environ), CONFIG, server) as agent:
        pods = await connected(netns, agent)
        control(agent.api, "redirect", action="Redirect", targetPort={"device": {"name": "target1"}})
        await agent.until(lambda agent: len(flows(agent, "TrafficControl", "actions=drop")) == 2, "closed")
        for six in (0, 1):
            assert not ping(netns, agent, pods["b"], ADDRESSES["a"][six])
        meta = {"namespace": "shop", "uid": "u-a", "labels": {"app": "other"}}
        server.put("/api/v1/pods/a", {"metadata": meta, "spec": {"nodeName": NODE, "containers": []}})
        for address in ADDRESSES["a"]:
            await agent.until(partial(reaches, netns, pods["b"], address), "no TrafficControl selects it")
