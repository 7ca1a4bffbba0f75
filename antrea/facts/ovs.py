"""Ports of the agent's bridge, as OVSDB reports them."""

from __future__ import annotations

from antrea.facts.fact import Fact


class OvsPort(Fact, frozen=True):
    """A port of br-int that is not a Pod's (gateway, tunnel, uplink); the OVSDB feed writes it once OVS gave it a number."""

    name: str
    type: str
    """Value of external_ids antrea-type: gateway, tunnel, uplink, host, traffic-control, ipsec-tunnel."""
    ofport: int
    mac: str

    @property
    def key(self) -> str:
        return self.name


class PodInterface(Fact, frozen=True):
    """A port on br-int that policies apply to; the OVSDB feed writes it once OVS gave it a number.

    It is a Pod's, or, on a machine outside the cluster, that of an interface, whose ExternalEntity has the place of the Pod.
    Read from the port's external_ids (attached-mac, ip-address, container-id, pod-name, pod-namespace, if-dev),
    as upstream writes them: pkg/agent/interfacestore/types.go, pkg/agent/cniserver/pod_configuration.go.
    """

    name: str
    """Name of the host-side interface, which is the name of the OVS port."""
    container_id: str
    pod_namespace: str
    pod_name: str
    mac: str
    ips: tuple[str, ...]
    ofport: int
    port_uuid: str
    if_dev: str = "eth0"
    """Name of the interface inside the Pod."""
    uplink: str = ""
    """Name of the port of the network card that it is paired with, of an interface of a machine outside the cluster."""
    netns: str = ""
    """Path of the Pod's network namespace, as the agent reaches it; empty if it is not known."""

    indexes = {  # noqa: RUF012
        "pod": lambda row: (row.pod,),
        "container": lambda row: (row.container_id,),
        "ip": lambda row: row.ips,
        "ofport": lambda row: (row.ofport,),
    }

    @property
    def key(self) -> str:
        return self.name

    @property
    def pod(self) -> str:
        """namespace/name of the Pod, or of the ExternalEntity."""
        return f"{self.pod_namespace}/{self.pod_name}"
