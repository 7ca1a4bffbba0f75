"""Settings of a lab: the flags of `up`, over a configuration file, over the defaults.

nodes: 3
family: dual
vlans: [100]                 # eth1 of the nodes become trunks; the gateway has an address in each VLAN
hosts:                       # more external hosts; `routers` has the same form
- name: peer
  nics: [{name: eth0, switch: fabric, vlan: 100, addresses: [172.18.100.9/24]}]
  routes: [{dst: default, via: 172.18.100.1}]
apart: 1                     # the last so many nodes have eth1 on a network of their own, behind the gateway
loss: {node-1/eth1: 5}       # percent, each direction
cpu: 50                      # percent of one processor for each node, and for the control plane
agent: {defaultMTU: 1400}    # keys of antrea-agent.conf that differ
controller: {}               # keys of antrea-controller.conf that differ
"""

from __future__ import annotations

from pathlib import Path  # noqa: TC003
from typing import Annotated, Any, Literal

import msgspec

from antrea.decoding import decode_tree, guarded
from antrea.errors import Invalid
from lab.topology import Family, Machine, Topology, standard

MAX_NODES = 20


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Configuration of a lab, as its file and the command line state it."""

    nodes: int = 3
    family: Family = "ipv4"
    kube_proxy: Literal["iptables", "nftables", "none"] = "iptables"
    proxy_all: bool = False
    """AntreaProxy serves all Services (`antreaProxy.proxyAll`)."""
    cni: Literal["antrea", "reference", "none"] = "antrea"
    """`reference` is the plugin `bridge` with static routes: it shows that the lab itself works. With `none` nodes have
    nothing of a network and none of our images, and do not become Ready until one is installed."""
    dev: bool = False
    """Our Pods run the source of this checkout, and `antrea-lab reload` restarts them with it."""
    vlans: tuple[int, ...] = ()
    routers: tuple[Machine, ...] = ()
    hosts: tuple[Machine, ...] = ()
    apart: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Number of nodes, the last ones, whose transport network the others reach through the gateway."""
    allocate_node_cidrs: bool = msgspec.field(default=True, name="allocateNodeCIDRs")
    """Whether kube-controller-manager gives nodes their Pod CIDRs."""
    loss: dict[str, float] = {}
    cpu: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Percent of one processor that each node has, and the control plane; 0: all that the machine has."""
    agent: dict[str, Any] = {}
    controller: dict[str, Any] = {}

    @property
    def serves_cluster_ips(self) -> bool:
        """Whether anything answers Nodes at the address of a Service: kube-proxy, or AntreaProxy for all."""
        return self.kube_proxy != "none" or (self.proxy_all and self.cni == "antrea")

    @property
    def serves_pods(self) -> bool:
        """Whether anything answers Pods there, as AntreaProxy does by default."""
        keys = (("featureGates", "AntreaProxy"), ("antreaProxy", "enable"))
        off = any(self.agent.get(section, {}).get(key) is False for section, key in keys)
        return self.serves_cluster_ips or (self.cni == "antrea" and not off)

    def topology(self) -> Topology:
        """The machines that these settings describe; raises Invalid."""
        if not 0 <= self.nodes <= MAX_NODES:
            raise Invalid("nodes", f"{self.nodes} is not between 0 (the control plane alone) and {MAX_NODES}")
        routers = tuple(msgspec.structs.replace(m, role="router") for m in self.routers)
        return standard(
            self.nodes,
            self.family,
            vlans=self.vlans,
            extra=(*routers, *self.hosts),
            loss=self.loss,
            apart=self.apart,
        )


def read(file: Path | None, flags: dict[str, Any]) -> Settings:
    """The settings of a file, with those flags that were given (not None) on top. Raises Invalid."""
    values: dict[str, Any] = {}
    where = "flags"
    try:
        if file:
            where = str(file)
            values = guarded(where, msgspec.yaml.decode, file.read_bytes(), type=dict[str, Any])
        values |= {name: value for name, value in flags.items() if value is not None}
        return decode_tree(values, Settings, where)
    except OSError as error:
        raise Invalid(where, error.strerror or str(error)) from error
    except Invalid as error:
        kind = "" if isinstance(error.__cause__, msgspec.ValidationError) else "not YAML: "
        raise Invalid(where, f"{kind}{error.why}") from error
