"""Bridges and ports as they should stand in OVSDB, and the external_ids with the purpose of a port."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from antrea.facts.ovs import OvsPort, PodInterface
from antrea.rank import Rank

TYPE_KEY = "antrea-type"
"""external_ids key of the purpose of a port. Source: pkg/agent/interfacestore/types.go"""
CONTAINER = "container"
HOST, UPLINK = "host", "uplink"
"""Types of ports of a machine outside the cluster: the interface with its addresses, and its network card."""
INDEX_KEY = "antrea-ifindex"
"""external_ids key of a port on a device of the Node: the device's index. With another index the port is made anew."""
BFD = "bfd"
"""Type of a tunnel that carries nothing but BFD."""
NODE_KEY = "bfd-node"
"""external_ids key of such a port: the Node at its other end."""

_DEFAULT_IF_DEV = "eth0"


class Bridge(msgspec.Struct, frozen=True, kw_only=True):
    """A bridge. Keys of the two maps that we do not name stay as they are."""

    name: str
    datapath_type: str = "system"
    """system (kernel), netdev (userspace) or dummy (tests)"""
    protocols: tuple[str, ...] = ("OpenFlow10", "OpenFlow15")
    fail_mode: str | None = None
    """None leaves it as it is; upstream does not set it."""
    other_config: tuple[tuple[str, str], ...] = ()
    external_ids: tuple[tuple[str, str], ...] = ()


class Port(msgspec.Struct, frozen=True, kw_only=True):
    """A port with one interface of the same name; an entry where a feature wants one."""

    rank: ClassVar[int] = Rank.PORT
    """Before what is put on it: addresses of an internal port have the rank RECEIVES."""

    name: str
    type: str = ""
    """"" (an existing device), internal, geneve, vxlan, gre, stt, patch, dummy ..."""
    options: tuple[tuple[str, str], ...] = ()
    """All options: what is not named is taken away."""
    external_ids: tuple[tuple[str, str], ...] = ()
    """External ids of the port; keys that we do not name are kept."""
    ofport_request: int = 0
    """OpenFlow number asked for at creation, never changed later (flows name it); 0 lets OVS choose."""
    mac: str | None = None
    """None leaves it as it is."""
    tag: int | None = None
    """VLAN of an access port"""
    trunks: tuple[int, ...] = ()
    """VLANs of a trunk port; none and no tag means all"""
    mtu: int | None = None
    """Bytes; None leaves it as it is. Only internal ports obey."""
    no_flood: bool = False
    """Keeps what NORMAL and FLOOD send to all ports away from this one"""
    bfd: tuple[tuple[str, str], ...] = ()
    """BFD settings of a tunnel whose end OVS watches; empty keeps what is there. Source: ovs-vswitchd.conf.db(5)"""
    bridge: str = ""
    """Empty: the integration bridge."""
    category: int = 1
    """Cookie category of the flows that it goes with, hence its sweep"""

    @property
    def key(self) -> str:
        return self.name


class PodPort(msgspec.Struct, frozen=True, kw_only=True):
    """The Pod of a port, from its external_ids.

    Source: pkg/agent/cniserver/pod_configuration.go, BuildOVSPortExternalIDs.
    """

    container_id: str
    pod_namespace: str
    pod_name: str
    mac: str
    ips: tuple[str, ...]
    if_dev: str = _DEFAULT_IF_DEV
    """Name of the interface inside the Pod"""
    netns: str = ""
    """Path of the Pod's network namespace, as the agent reaches it"""

    def external_ids(self) -> dict[str, str]:
        """Return the external ids as upstream writes them: if-dev only when it is not eth0."""
        ids = {
            TYPE_KEY: CONTAINER,
            "attached-mac": self.mac,
            "container-id": self.container_id,
            "ip-address": ",".join(self.ips),
            "pod-name": self.pod_name,
            "pod-namespace": self.pod_namespace,
            "net-ns": self.netns,
        }
        return ids if self.if_dev == _DEFAULT_IF_DEV else {**ids, "if-dev": self.if_dev}

    @classmethod
    def read(cls, ids: dict[str, str]) -> PodPort | None:
        """None if `ids` are not those of a Pod's port. Tolerates what older versions did not write."""
        if ids.get(TYPE_KEY) != CONTAINER or "container-id" not in ids:
            return None
        return cls(
            container_id=ids["container-id"],
            pod_namespace=ids.get("pod-namespace", ""),
            pod_name=ids.get("pod-name", ""),
            mac=ids.get("attached-mac", "").lower(),
            ips=tuple(ip for ip in ids.get("ip-address", "").split(",") if ip),
            if_dev=ids.get("if-dev") or _DEFAULT_IF_DEV,
            netns=ids.get("net-ns", ""),
        )


class MachinePort(msgspec.Struct, frozen=True):
    """External ids of a port of an interface of a machine outside the cluster.

    # parity: pkg/agent/externalnode/external_node_controller.go GetOVSAttachInfo
    """

    entity: str
    namespace: str
    ips: tuple[str, ...]
    uplink: str
    """Name of the network card's port."""

    def external_ids(self) -> dict[str, str]:
        """Return the external ids as upstream writes them."""
        return {
            TYPE_KEY: HOST,
            "entity-name": self.entity,
            "entity-namespace": self.namespace,
            "ip-address": ",".join(self.ips),
            "uplink-name": self.uplink,
        }

    @classmethod
    def read(cls, ids: dict[str, str]) -> MachinePort | None:
        """None if `ids` are not those of such a port."""
        if ids.get(TYPE_KEY) != HOST or "entity-name" not in ids or not ids.get("uplink-name"):
            return None
        ips = tuple(ip for ip in ids.get("ip-address", "").split(",") if ip)
        return cls(ids["entity-name"], ids.get("entity-namespace", ""), ips, ids["uplink-name"])

    def fact(self, port: RealizedPort) -> PodInterface:
        """The row that policies are for."""
        return PodInterface(
            name=port.name,
            container_id="",
            pod_namespace=self.namespace,
            pod_name=self.entity,
            mac=port.mac,
            ips=self.ips,
            ofport=port.ofport,
            port_uuid=port.uuid,
            if_dev=port.name,
            uplink=self.uplink,
        )


class RealizedPort(msgspec.Struct, frozen=True):
    """A port that OVS has given a number."""

    name: str
    uuid: str
    ofport: int
    mac: str
    """The MAC in use on our side, not the Pod's; empty while OVSDB does not know it"""
    external_ids: dict[str, str]

    def fact(self) -> PodInterface | OvsPort | None:
        """The row the units see; None for a port that is not Antrea's, and for one whose MAC is missing and needed."""
        pod = PodPort.read(self.external_ids)
        if (machine := MachinePort.read(self.external_ids)) is not None:
            return machine.fact(self) if self.mac else None
        kind = self.external_ids.get(TYPE_KEY, "")
        if pod is None:
            counts = self.mac and kind not in ("", CONTAINER)
            return OvsPort(name=self.name, type=kind, ofport=self.ofport, mac=self.mac) if counts else None
        return PodInterface(
            name=self.name,
            container_id=pod.container_id,
            pod_namespace=pod.pod_namespace,
            pod_name=pod.pod_name,
            mac=pod.mac,
            ips=pod.ips,
            ofport=self.ofport,
            port_uuid=self.uuid,
            if_dev=pod.if_dev,
            netns=pod.netns,
        )
