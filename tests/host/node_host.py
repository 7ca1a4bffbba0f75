"""A Node whose policies are enforced by nftables of a network namespace, and a host beside it with two addresses."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any

import pytest
from policy_node import CLIENT, SERVER

from antrea.apis import controlplane as cp
from antrea.apis.annotation import ENFORCEMENT
from antrea.apis.meta import ObjectMetadata
from antrea.config.agent import AgentConfig
from antrea.engine import Engine, Facts, Unit
from antrea.facts.api_server import ApiServerEndpoint
from antrea.facts.node import ThisNode
from antrea.features.grouping.member import packed
from antrea.features.network_policy.agent.node_target import NodeTarget, node_target
from antrea.features.network_policy.agent.received import SentAppliedMember, SentPolicy
from antrea.features.node_policy.unit import UNITS
from antrea.outside.nftables.sink import KINDS, NftSink

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractContextManager

    from conftest import Namespaces

NODE = ThisNode("n1", ("10.10.0.0/24", "fd00:10::/64"), ("192.0.2.1", "2001:db8:2::1"), ("192.0.2.1",), 1400)
HOME = {"ip": "192.0.2.1", "ip6": "2001:db8:2::1"}
FRIEND = {"ip": "192.0.2.10", "ip6": "2001:db8:2::10"}
STRANGER = {"ip": "192.0.2.20", "ip6": "2001:db8:2::20"}
EVERYBODY = ("0.0.0.0/0", "::/0")
ANSWERED, DROPPED, REFUSED = "answered", "timeout", "ECONNREFUSED"
FAMILIES = pytest.mark.parametrize("family", ["ip", "ip6"])
PORT = 8099
PATIENT, BRIEF = 30.0, 1.0
"""Seconds that a client waits: for what has to come, and for what must not."""


def net(cidr: str) -> cp.IPNet:
    found = ip_network(cidr)
    return cp.IPNet(ip=packed(str(found.network_address)), prefix_length=found.prefixlen)


def peer(*cidrs: str, groups: tuple[str, ...] = ()) -> cp.NetworkPolicyPeer:
    return cp.NetworkPolicyPeer(
        ip_blocks=tuple(cp.IPBlock(cidr=net(cidr)) for cidr in cidrs), address_groups=groups
    )


def rule(direction: str, other: cp.NetworkPolicyPeer, action: str, **more: Any) -> cp.NetworkPolicyRule:
    nobody = cp.NetworkPolicyPeer()
    return cp.NetworkPolicyRule(
        direction=direction,
        from_=other if direction == "In" else nobody,
        to=other if direction == "Out" else nobody,
        action=action,
        **{"enable_logging": False, **more},
    )


def tcp(port: int = PORT) -> tuple[cp.Service, ...]:
    return (cp.Service(protocol="TCP", port=port),)


def policy(
    name: str, *rules: cp.NetworkPolicyRule, tier: int = 250, priority: float = 5.0, enforcement: str = ""
) -> SentPolicy:
    annotations = {ENFORCEMENT: enforcement} if enforcement else {}
    return SentPolicy(
        cp.NetworkPolicy(
            metadata=ObjectMetadata(name=name, uid=name, annotations=annotations),
            rules=rules,
            applied_to_groups=("nodes",),
            tier_priority=tier,
            priority=priority,
            source_ref=cp.NetworkPolicyReference(type="AntreaClusterNetworkPolicy", name=name, uid=name),
        )
    )


class Host:
    """The Node is the namespace of the test; `friend` and `stranger` are addresses of a host beside it."""

    def __init__(self, netns: Namespaces) -> None:
        self.netns = netns
        self.facts = Facts()
        self.beside = netns.make()
        netns.sh(f"ip link add eth0 type veth peer name eth0 netns {self.beside}; ip link set eth0 up")
        netns.sh(f"ip addr add {HOME['ip']}/24 dev eth0; ip addr add {HOME['ip6']}/64 dev eth0 nodad")
        netns.sh("ip link set eth0 up", self.beside)
        for one in (FRIEND, STRANGER):
            for ip, length in ((one["ip"], 24), (one["ip6"], 64)):
                nodad = "nodad" if ":" in ip else ""
                netns.sh(f"ip addr add {ip}/{length} dev eth0 {nodad}", self.beside)
        self.put(NODE, AgentConfig(), ApiServerEndpoint("192.0.2.100", 6443))
        self.facts.put(SentAppliedMember("nodes", cp.GroupMember(node=cp.NodeReference(name="n1"))))

    def put(self, *rows: Any) -> None:
        for row in rows:
            self.facts.put(row)

    def serving(self, space: str) -> AbstractContextManager[None]:
        return self.netns.serving(space, SERVER)

    async def sees(
        self,
        space: str,
        source: str,
        target: str,
        kind: str = "SOCK_STREAM",
        *,
        seconds: float = PATIENT,
        port: int = PORT,
    ) -> str:
        """What a client of `space` with address `source` finds at `target`."""
        bound = CLIENT.replace("client.connect(", "client.bind((sys.argv[5], 0)); client.connect(")
        words = ["ip", "netns", "exec", space, sys.executable, "-c", bound, target, kind, str(port)]
        run = await asyncio.create_subprocess_exec(
            *words, str(seconds), source, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await run.communicate()
        return out.decode().strip()

    async def into(
        self, source: str, family: str, kind: str = "SOCK_STREAM", *, seconds: float = PATIENT
    ) -> str:
        return await self.sees(self.beside, source, HOME[family], kind, seconds=seconds)

    async def out(
        self,
        target: str,
        family: str,
        kind: str = "SOCK_STREAM",
        *,
        seconds: float = PATIENT,
        port: int = PORT,
    ) -> str:
        return await self.sees(self.netns.home, HOME[family], target, kind, seconds=seconds, port=port)

    def counted(self, name: str) -> int:
        """Packets of a counter."""
        found = re.search(r"packets (\d+)", self.netns.sh(f"nft list counter inet antrea {name}"))
        assert found is not None
        return int(found[1])

    @contextlib.asynccontextmanager
    async def enforced(self, *rows: Any) -> AsyncIterator[Engine]:
        self.put(*rows)
        units = [Unit(SentAppliedMember, node_target, yields=(NodeTarget,)), *UNITS]
        self.sink = NftSink()
        engine: Engine = Engine(self.facts, units, dict.fromkeys(KINDS, self.sink))
        async with asyncio.TaskGroup() as tasks:
            work = tasks.create_task(engine.run())
            await engine.quiet()
            yield engine
            work.cancel()
