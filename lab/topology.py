"""The frozen description of a lab: machines, the network cards they have, and the switches these are plugged into.

    switch `nodes`    172.30.0.0/24   eth0 of every node, the control plane, the gateway
    switch `fabric`   172.31.0.0/24   eth1 of every node (transport; a VLAN trunk where the lab has VLANs), the gateway
    switch `outside`  192.0.2.0/24    the gateway, the external host `outside`

Where a lab has nodes apart, these have eth1 on a switch `far`, 172.31.1.0/24, with the gateway.

`gateway` routes between all of them. Nothing here has an effect; `underlay.py` realizes it.
"""

from __future__ import annotations

from collections import Counter
from ipaddress import ip_interface, ip_network
from typing import Literal

import msgspec

from antrea.errors import Invalid

Family = Literal["ipv4", "ipv6", "dual"]
Role = Literal["control-plane", "node", "router", "host"]

LINK_NAME_LIMIT = 15


class Network(msgspec.Struct, frozen=True):
    """An IPv4 and an IPv6 prefix; `pick` numbers the hosts in both alike."""

    ipv4: str
    ipv6: str

    def prefixes(self, family: Family) -> tuple[str, ...]:
        return {"ipv4": (self.ipv4,), "ipv6": (self.ipv6,), "dual": (self.ipv4, self.ipv6)}[family]

    def pick(self, host: int, family: Family) -> tuple[str, ...]:
        """Addresses with prefix length: pick(11, "dual") -> ("172.30.0.11/24", "fd00:172:30::11/64")."""
        chosen = []
        for prefix in self.prefixes(family):
            net = ip_network(prefix)
            # the IPv6 address reads like the IPv4 one: host 11 is ::11, not ::b
            number = host if net.version == 4 else int(str(host), 16)
            chosen.append(f"{net[number]}/{net.prefixlen}")
        return tuple(chosen)


NODES = Network("172.30.0.0/24", "fd00:172:30::/64")
FABRIC = Network("172.31.0.0/24", "fd00:172:31::/64")
FAR_FABRIC = Network("172.31.1.0/24", "fd00:172:31:1::/64")
OUTSIDE = Network("192.0.2.0/24", "2001:db8:2::/64")
PODS = Network("10.244.0.0/16", "fd00:10:244::/56")
SERVICES = Network("10.96.0.0/16", "fd00:10:96::/112")

GATEWAY_HOST, CONTROL_PLANE_HOST, FIRST_NODE_HOST, EXTERNAL_HOST = 1, 2, 11, 10


def vlan_network(vlan: int) -> Network:
    """The subnet of a VLAN on the fabric: VLAN 100 -> 172.18.100.0/24 (VLANs over 255 continue in 172.19...)."""
    high, low = divmod(vlan, 256)
    return Network(f"172.{18 + high % 12}.{low}.0/24", f"fd00:172:18:{vlan}::/64")


class Nic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One network card: a cable from a machine to a port of a switch."""

    name: str
    switch: str
    addresses: tuple[str, ...] = ()
    """With prefix length: ("172.30.0.11/24", "fd00:172:30::11/64")."""
    vlan: int | None = None
    """Access VLAN of the switch port: the machine sends and receives untagged frames."""
    trunk: tuple[int, ...] = ()
    """Tagged VLANs of the switch port, beside its untagged traffic."""
    loss: float = 0
    """Percentage of packets lost, in each direction."""


class StaticRoute(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Route of a machine: a destination and the address of the next hop."""

    dst: str
    via: str


class Machine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Anything with a network stack of its own: a Kubernetes node, the control plane, a router, an external host."""

    name: str
    role: Role = "host"
    nics: tuple[Nic, ...]
    routes: tuple[StaticRoute, ...] = ()

    @property
    def forwards(self) -> bool:
        return self.role in ("node", "router")

    def address(self, nic: str, version: int) -> str:
        """The card's first address of that IP version, without prefix length; "" if it has none."""
        addresses = (ip_interface(a).ip for n in self.nics if n.name == nic for a in n.addresses)
        return next((str(ip) for ip in addresses if ip.version == version), "")


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """Machines of a lab with their addresses."""

    family: Family
    machines: tuple[Machine, ...]

    @property
    def versions(self) -> tuple[int, ...]:
        return {"ipv4": (4,), "ipv6": (6,), "dual": (4, 6)}[self.family]

    @property
    def nodes(self) -> tuple[Machine, ...]:
        return tuple(m for m in self.machines if m.role == "node")

    @property
    def control_plane(self) -> Machine:
        return next(m for m in self.machines if m.role == "control-plane")

    @property
    def switches(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(n.switch for m in self.machines for n in m.nics))

    def machine(self, name: str) -> Machine:
        """Raises Invalid naming the machines there are."""
        for machine in self.machines:
            if machine.name == name:
                return machine
        raise Invalid("machine", f"{name!r} is none of {', '.join(m.name for m in self.machines)}")

    def has_vlans(self, switch: str) -> bool:
        return any((n.vlan or n.trunk) for m in self.machines for n in m.nics if n.switch == switch)


def default_routes(network: Network, family: Family) -> tuple[StaticRoute, ...]:
    """Return the default routes by the gateway of a network, one for each IP family."""
    gateways = network.pick(GATEWAY_HOST, family)
    return tuple(StaticRoute("default", str(ip_interface(g).ip)) for g in gateways)


def _routes_between(here: Network, there: Network, family: Family) -> tuple[StaticRoute, ...]:
    """Return the routes from one transport network to another."""
    gateways = here.pick(GATEWAY_HOST, family)
    prefixes = there.prefixes(family)
    return tuple(
        StaticRoute(prefix, str(ip_interface(via).ip)) for prefix, via in zip(prefixes, gateways, strict=True)
    )


def _node(
    number: int, family: Family, vlans: tuple[int, ...], loss: dict[str, float], *, place: tuple[bool, bool]
) -> Machine:
    """Make a node; `place` is whether it is apart, and whether any is."""
    name, host = f"node-{number}", FIRST_NODE_HOST + number - 1
    is_apart, has_apart = place
    here, there = (FAR_FABRIC, FABRIC) if is_apart else (FABRIC, FAR_FABRIC)
    switch = "far" if is_apart else "fabric"
    cards = (("eth0", "nodes", NODES, ()), ("eth1", switch, here, () if is_apart else vlans))
    nics = tuple(
        Nic(
            name=nic,
            switch=switch,
            addresses=network.pick(host, family),
            trunk=trunk,
            loss=loss.get(f"{name}/{nic}", 0),
        )
        for nic, switch, network, trunk in cards
    )
    routes = _routes_between(here, there, family) if has_apart else ()
    return Machine(name=name, role="node", nics=nics, routes=(*default_routes(NODES, family), *routes))


def _gateway(family: Family, vlans: tuple[int, ...], *, has_apart: bool) -> Machine:
    plugs: list[tuple[str, Network, int | None]] = [
        ("nodes", NODES, None),
        ("fabric", FABRIC, None),
        ("outside", OUTSIDE, None),
    ]
    plugs += [("fabric", vlan_network(v), v) for v in vlans]
    if has_apart:
        plugs.append(("far", FAR_FABRIC, None))
    nics = tuple(
        Nic(name=f"eth{i}", switch=switch, addresses=network.pick(GATEWAY_HOST, family), vlan=vlan)
        for i, (switch, network, vlan) in enumerate(plugs)
    )
    return Machine(name="gateway", role="router", nics=nics)


def standard(
    nodes: int,
    family: Family,
    *,
    vlans: tuple[int, ...] = (),
    extra: tuple[Machine, ...] = (),
    loss: dict[str, float] | None = None,
    apart: int = 0,
) -> Topology:
    """The picture above, with `extra` routers and hosts, and the last `apart` nodes behind the gateway. Raises Invalid where
    names or values cannot be realized.
    """
    control = Machine(
        name="control",
        role="control-plane",
        nics=(Nic(name="eth0", switch="nodes", addresses=NODES.pick(CONTROL_PLANE_HOST, family)),),
        routes=default_routes(NODES, family),
    )
    outside = Machine(
        name="outside",
        nics=(Nic(name="eth0", switch="outside", addresses=OUTSIDE.pick(EXTERNAL_HOST, family)),),
        routes=default_routes(OUTSIDE, family),
    )
    if apart > nodes:
        raise Invalid("apart", f"{apart} is more than the {nodes} nodes of the lab")
    workers = (
        _node(i, family, vlans, loss or {}, place=(i > nodes - apart, apart > 0)) for i in range(1, nodes + 1)
    )
    gateway = _gateway(family, vlans, has_apart=apart > 0)
    topology = Topology(family=family, machines=(control, *workers, gateway, outside, *extra))
    _check(topology, loss or {})
    return topology


def _check(topology: Topology, loss: dict[str, float]) -> None:
    for name, count in Counter(m.name for m in topology.machines).items():
        if count > 1:
            raise Invalid("machines", f"two of them are called {name!r}")
    ports = {f"{m.name}/{n.name}": n for m in topology.machines for n in m.nics}
    for port, nic in ports.items():
        if len(port) > LINK_NAME_LIMIT:
            raise Invalid(
                "machines", f"{port!r} is longer than the {LINK_NAME_LIMIT} characters of a link name"
            )
        if nic.vlan is not None and not 1 <= nic.vlan <= 4094:
            raise Invalid(f"{port}.vlan", f"{nic.vlan} is not between 1 and 4094")
    for port, percent in loss.items():
        if port not in ports or not port.startswith("node-"):
            raise Invalid("loss", f"{port!r} is none of the nodes' cards, such as node-1/eth1")
        if not 0 <= percent <= 100:
            raise Invalid(f"loss.{port}", f"{percent} is not a percentage")
