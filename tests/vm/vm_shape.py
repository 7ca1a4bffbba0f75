"""What the host and the machine inside agree on: Nodes, Pods and addresses of the vm tier's cluster."""

from __future__ import annotations

from ipaddress import ip_interface

import msgspec

from lab.settings import Settings
from lab.topology import Family

SETTINGS = Settings(nodes=3, family="dual")
TOPOLOGY = SETTINGS.topology()
API_SERVER = TOPOLOGY.control_plane.address("eth0", 4)
CONTROLLER_PORT = 10349
"""Of our controller, at the API server's address."""
RESTART_PORT = 10340
"""Where the controller is killed and started again for whoever connects, on the loopback that the API server has."""
KUBECTL_PORT = 10341
"""Where kubectl is run for whoever sends its arguments and its input, on the same loopback."""
PROCESSOR_PORT = 10342
"""Where each line is answered with the seconds of the processor, and the instructions, that the machine has taken, on the same loopback."""
INSTRUCTIONS = "instructions"
"""File with the counts of `instructions.c`, beside TOKEN."""
COLLECTOR_PORT = 4739
"""At which each Node expects a collector of records on its loopback."""
DIRECTORY = "VM_CLUSTER"
"""Environment variable: where the machine finds `pki/ca.crt` and the agent's token."""
TOKEN = "agent.token"


class Machine(msgspec.Struct, frozen=True):
    """A Node, the families that its address and its Pods have, and the names of its Pods."""

    name: str
    family: Family
    pods: tuple[str, ...]
    egress: str = ""
    """Value of its label `egress`; `gateway`: pools have their addresses there."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Of its card eth0, which has both families whatever the Node object says: the API server is on IPv4."""
        networks = TOPOLOGY.machine(self.name).nics[0].addresses
        return tuple(a for a in (str(ip_interface(n).ip) for n in networks) if self._has(a))

    @property
    def pod_cidrs(self) -> tuple[str, ...]:
        number = self.name.removeprefix("node-")
        both = (f"10.244.{number}.0/24", f"fd00:10:244:{number}::/64")
        return tuple(cidr for cidr in both if self._has(cidr))

    def _has(self, address: str) -> bool:
        return self.family in ("dual", "ipv6" if ":" in address else "ipv4")


MACHINES = (
    Machine("node-1", "dual", ("web", "client", "vlan", "flat")),
    Machine("node-2", "dual", ("server", "near"), "gateway"),
    Machine("node-3", "ipv6", ("six",)),
)
"""Between two of both families tunnels run over IPv4; to the one that has only IPv6 they run over IPv6."""
TWO = (Machine("node-1", "dual", ("web", "client")), Machine("node-2", "dual", ("server",)))
"""For what needs no more: every agent takes its part of the processor."""

VLAN = 181
GATEWAYS = {4: "172.18.181.1", 6: "fd00:172:18:181::1"}
"""Routers in the VLAN, which the machine is; the cable of the Nodes is a trunk that has it tagged."""


class Pool(msgspec.Struct, frozen=True):
    """An ExternalIPPool of one address; in a VLAN, or of the Nodes' own network."""

    name: str
    first: str
    subnet: dict[str, str | int] | None = None


def _in_vlan(version: int, first: str, prefix: int) -> Pool:
    return Pool(f"vlan{version}", first, {"gateway": GATEWAYS[version], "prefixLength": prefix, "vlan": VLAN})


POOLS = (
    _in_vlan(4, "172.18.181.40", 24),
    _in_vlan(6, "fd00:172:18:181::40", 64),
    Pool("flat4", "172.30.0.240"),
    Pool("flat6", "fd00:172:30::240"),
)
CHOSEN = {
    "vlan": {4: "vlan4", 6: "vlan6"},
    "flat": {4: "flat4", 6: "flat6"},
    "near": {4: "vlan4", 6: "flat6"},
}
"""Egresses that select a Pod, by IP version; each has the name of its pool. `near` is on the Egress Node, the others are not."""
_FIRST = {pool.name: pool.first for pool in POOLS}
EGRESS_IPS = {
    pod: {version: _FIRST[name] for version, name in chosen.items()} for pod, chosen in CHOSEN.items()
}
SCTP_PORTS = {"free": 7001, "judged": 7002}
"""Of Pod `server`; what comes to the second is allowed from Pods of node-1 and dropped from everybody else."""
HELD = tuple(_FIRST.values())
"""All Egress IPs."""
