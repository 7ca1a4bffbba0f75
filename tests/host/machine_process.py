"""A machine outside the cluster: the agent and antrea-controller as processes, and a peer at the other end of its cable."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import aiohttp
from agent_process import NODE, NODE_IP, agent_process
from certificate_world import ApiServer
from controller_program import controller_program, kubeconfig
from netdev_switch import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from pathlib import Path

    from agent_process import AgentProcess
    from conftest import Namespaces

SPACE = "vms"
NODES = f"/apis/crd.antrea.io/v1alpha1/namespaces/{SPACE}/externalnodes"
ENTITIES = f"/apis/crd.antrea.io/v1alpha2/namespaces/{SPACE}/externalentities"
POLICIES = f"/apis/crd.antrea.io/v1beta1/namespaces/{SPACE}/networkpolicies"
ADDRESSES, PEERS = (NODE_IP, "2001:db8:7::1"), ("192.0.2.9", "2001:db8:7::9")


def external_node(name: str = "", *ips: str, uid: str = "u1") -> dict[str, Any]:
    """Of this machine; `name` is that of the interface."""
    meta = {"namespace": SPACE, "uid": uid, "labels": {"role": "vm"}}
    interface = {"ips": list(ips or ADDRESSES), **({"name": name} if name else {})}
    return {"metadata": meta, "spec": {"interfaces": [interface]}}


def policy(generation: int = 1, **rules: Any) -> dict[str, Any]:
    """On the machine."""
    meta = {"namespace": SPACE, "uid": "policy", "generation": generation}
    applied = [{"externalEntitySelector": {"matchLabels": {"role": "vm"}}}]
    return {"metadata": meta, "spec": {"priority": 5, "appliedTo": applied, **rules}}


class Machine:
    """The agent's namespace is the machine; `peer` is another host on its cable."""

    def __init__(
        self, netns: Namespaces, agent: AgentProcess, peer: str, controller: tuple[str, str]
    ) -> None:
        self.netns, self.agent, self.peer, self.api = netns, agent, peer, agent.api
        self._controller, self._token = controller

    async def served(self, path: str) -> Any:
        """What antrea-controller's API answers."""
        headers = {"Authorization": f"Bearer {self._token}"}
        async with (
            aiohttp.ClientSession() as session,
            session.get(self._controller + path, headers=headers, ssl=False) as answer,
        ):
            return await answer.json()

    def settings(self, interface: str = "eth0") -> tuple[str, list[str], list[str]]:
        """MAC, addresses and routes of an interface; none while there is no interface of that name."""
        shown = self.netns.run(f"ip -j addr show dev {interface}")
        routes = self.netns.run(
            f"ip route show dev {interface} proto static && ip -6 route show dev {interface} proto static"
        )
        if shown.returncode or routes.returncode:
            return "", [], []
        (link,) = json.loads(shown.stdout)
        held = [f"{one['local']}/{one['prefixlen']}" for one in link["addr_info"] if one["scope"] == "global"]
        return link["address"], sorted(held), sorted(line.strip() for line in routes.stdout.splitlines())

    def is_connected(self) -> bool:
        """Whether its interface is an internal port, and the card is beside it."""
        return self.netns.run("ip link show eth0~").returncode == 0 and "eth0" in self.agent.switch.ports(
            "br-int"
        )

    def reaches(self, address: str, *, from_peer: bool = False) -> bool:
        name = self.peer if from_peer else None
        return self.netns.run(f"ping -c 1 -W 1 {address}", name).returncode == 0

    def opens(self, address: str, port: int, *, from_peer: bool = False) -> bool:
        """Whether a TCP connection to a listening port is made within a second."""
        program = f"import socket; socket.create_connection(('{address}', {port}), 1)"
        done = self.netns.run(f'{sys.executable} -I -S -c "{program}"', self.peer if from_peer else None)
        return done.returncode == 0

    def is_refused(self, address: str, port: int, *, from_peer: bool = False) -> bool:
        """Whether a TCP connection is answered by a reset."""
        program = f"import socket; socket.create_connection(('{address}', {port}), 1)"
        done = self.netns.run(f'{sys.executable} -I -S -c "{program}"', self.peer if from_peer else None)
        return "ConnectionRefusedError" in done.stderr

    def status(self, name: str) -> tuple[str, int, int]:
        """Phase of a policy, and Nodes that have it and should have it."""
        found = self.api.objects[f"{POLICIES}/{name}"].get("status", {})
        return (
            found.get("phase", ""),
            found.get("currentNodesRealized", 0),
            found.get("desiredNodesRealized", 0),
        )

    def conditions(self, kind: str) -> list[dict[str, Any]]:
        """Of the AntreaAgentInfo."""
        info = self.api.objects.get(f"/apis/crd.antrea.io/v1beta1/antreaagentinfos/{NODE}", {})
        return [one for one in info.get("agentConditions", []) if one["type"] == kind]

    def events(self, words: str) -> list[str]:
        """Messages of Events on the ExternalNode."""
        return [
            one["message"] for path, one in self.api.objects.items()
            if "/events/" in path and words in one["message"]
            and (one["involvedObject"]["kind"], one["involvedObject"].get("uid")) == ("ExternalNode", "u1")
        ]  # fmt: skip

    async def until(self, true: Any, what: str) -> None:
        """Wait until this, or what it awaits, is true."""
        await self.agent.until(lambda _: true(), what)

    async def until_all(self, true: Callable[[str], bool], addresses: Iterable[str], what: str) -> None:
        """Wait until this is true of all addresses; threads find out at the same time, while the API serves the agent."""
        waits = (
            self.until(lambda address=address: asyncio.to_thread(true, address), f"{address}: {what}")
            for address in addresses
        )
        await asyncio.gather(*waits)

    async def connected(self) -> None:
        """Wait until the interface is behind the switch and packets pass in both families."""
        await self.until(self.is_connected, "the interface is connected")
        await self.until_all(self.reaches, PEERS, "answers")


@contextlib.asynccontextmanager
async def machine(
    netns: Namespaces, folder: Path, api: ApiServer | None = None, gates: tuple[str, ...] = (), **config: Any
) -> AsyncIterator[Machine]:
    """A machine with one interface, routes by the peer, and an agent that is ready; `gates` are on beside its own."""
    on = {"ExternalNode": True, **dict.fromkeys(gates, True)}
    api, peer = api or ApiServer({}), netns.make()
    async with contextlib.AsyncExitStack() as last:
        own = folder / "controller"
        own.mkdir()
        controller = await last.enter_async_context(controller_program(own, api, on))
        way = kubeconfig(own / "antrea.kubeconfig", *controller)
        settings = {
            "featureGates": on, "nodeType": "externalNode", "antreaClientConnection": {"kubeconfig": way},
            "externalNode": {"externalNodeNamespace": SPACE}, **config,
        }  # fmt: skip
        agent = await last.enter_async_context(agent_process(netns, folder, dict(os.environ), settings, api))
        netns.sh(f"ip link set far0 netns {peer}")
        netns.sh(
            f"ip addr add {PEERS[0]}/24 dev far0; ip addr add {PEERS[1]}/64 dev far0 nodad; ip link set far0 up; ethtool -K far0 tx off",
            peer,
        )
        netns.sh(
            f"ip addr add {ADDRESSES[1]}/64 dev eth0 nodad; ip route add 198.51.100.0/24 via {PEERS[0]} metric 77 proto static;"
            f" ip -6 route add 2001:db8:99::/64 via {PEERS[1]} proto static"
        )
        await agent.until(lambda agent: agent.ready(), "the agent is ready")
        yield Machine(netns, agent, peer, controller)


def listening(port: int) -> str:
    """A program that accepts connections in both families."""
    return (
        "import socket\n"
        f"s = socket.create_server(('::', {port}), family=socket.AF_INET6, dualstack_ipv6=True)\n"
        "print('listening', flush=True)\n"
        "while True:\n s.accept()\n"
    )


__all__ = ["NODE", "until"]
