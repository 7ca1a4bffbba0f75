"""What the host and the machine inside agree on: Nodes, Pods and addresses of the vm tier's cluster."""

from __future__ import annotations

from ipaddress import ip_interface

import msgspec

from antrea.lab.settings import Settings
from antrea.lab.topology import Family

SETTINGS = Settings(nodes=3, family="dual")
TOPOLOGY = SETTINGS.topology()
API_SERVER = TOPOLOGY.control_plane.address("eth0", 4)
DIRECTORY = "VM_CLUSTER"
"""Environment variable: where the machine finds `pki/ca.crt` and the agent's token."""
TOKEN = "agent.token"


class Machine(msgspec.Struct, frozen=True):
    """A Node, the families that its address and its Pods have, and the names of its Pods."""

    name: str
    family: Family
    pods: tuple[str, ...]

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
    Machine("node-1", "dual", ("web", "client")),
    Machine("node-2", "dual", ("server",)),
    Machine("node-3", "ipv6", ("six",)),
)
"""Between two of both families tunnels run over IPv4; to the one that has only IPv6 they run over IPv6."""
