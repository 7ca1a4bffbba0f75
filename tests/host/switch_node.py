"""A Node of a test: its own switch in user space, Pods in namespaces with a port each, and the rows that tell of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any, Self

import msgspec
from netdev_switch import TIMEOUT, NetdevSwitch, until

from antrea.engine import Engine, Facts
from antrea.facts.ovs import OvsPort, PodInterface

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from conftest import Namespaces


class SwitchEngine(Engine):
    """The engine of an agent of this switch: it is quiet once the next packet meets what it has put there."""

    def __init__(self, switch: NetdevSwitch, facts: Facts, *others: Any) -> None:
        super().__init__(facts, *others)
        self._switch = switch

    async def quiet(self, *, reports: bool = True, sweeps: bool = True) -> None:
        await super().quiet(reports=reports, sweeps=sweeps)
        await asyncio.to_thread(self._switch.revalidate)


class SwitchNode:
    """`pods` has the namespace of each Pod by its name; those of Namespace `shop` are 10.10.0.N and fd00:10::N."""

    def __init__(self, netns: Namespaces) -> None:
        self.netns = netns
        self.switch = NetdevSwitch()
        self.pods: dict[str, str] = {}
        self.facts = Facts()

    @contextlib.contextmanager
    def standing(self) -> Iterator[Self]:
        """Started, as long as the block lasts."""
        try:
            self.start()
            yield self
        finally:
            self.switch.stop()

    def start(self) -> None:
        """The switch with br-int and its gateway."""
        self.switch.start()
        self.switch.add_bridge("br-int")
        internal = ("--", "set", "interface", "antrea-gw0", "type=internal")
        self.switch.vsctl("add-port", "br-int", "antrea-gw0", *internal)
        number, mac = self.ofport("antrea-gw0"), self.mac_of("antrea-gw0")
        self.facts.put(OvsPort("antrea-gw0", "gateway", number, mac))

    def cable(self, name: str, space: str, addresses: list[str] | None = None) -> None:
        """From `name` here to eth0 there."""
        self.netns.sh(f"ip link add {name} type veth peer name eth0 netns {space}; ip link set {name} up")
        self.netns.sh("ip link set eth0 up; ethtool -K eth0 tx off", space)
        for address in addresses or ():
            self.netns.sh(f"ip addr add {address} dev {name} {'nodad' if ':' in address else ''}")

    def connect(self, name: str, number: int) -> None:
        """A Pod."""
        space = self.pods[name] = self.netns.make()
        self.cable(name, space)
        self.switch.vsctl("add-port", "br-int", name)
        ips = (f"10.10.0.{number}", f"fd00:10::{number}")
        self.netns.sh(
            f"ip addr add {ips[0]}/24 dev eth0; ip addr add {ips[1]}/64 dev eth0 nodad;"
            "ip route add default via 10.10.0.1; ip route add default via fd00:10::1",
            space,
        )
        mac = self.mac_of("eth0", space)
        row = PodInterface(name, name, "shop", name, mac, ips, self.ofport(name), f"uuid-{name}")
        self.facts.put(msgspec.structs.replace(row, netns=self.netns.path(space)))

    def serving(self, space: str, program: str) -> AbstractContextManager[None]:
        return self.netns.serving(space, program)

    def mac_of(self, dev: str, space: str | None = None) -> str:
        return str(json.loads(self.netns.sh(f"ip -j link show {dev}", space))[0]["address"])

    def ofport(self, name: str) -> int:
        until(lambda: self._number(name) > 0, f"number of {name}")
        return self._number(name)

    def _number(self, name: str) -> int:
        found = self.switch.vsctl("get", "interface", name, "ofport").strip()
        return int(found) if found.isdigit() else 0

    async def until(self, true: Callable[[], object]) -> None:
        """Wait for a condition on the rows."""
        news = asyncio.Event()
        self.facts.listeners.append(news.set)
        async with asyncio.timeout(60 * TIMEOUT):
            while not true():
                news.clear()
                await news.wait()
        self.facts.listeners.remove(news.set)
