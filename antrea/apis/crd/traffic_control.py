"""TrafficControl of crd.antrea.io/v1alpha2.

Source: upstream pkg/apis/crd/v1alpha2/types.go, build/charts/antrea/crds/trafficcontrol.yaml
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from antrea.apis.crd.part import Address, AppliedToPods, CrdStruct, Metadata, Port
from antrea.apis.schema import Schema, doc, one_of


class NamedInterface(CrdStruct, frozen=True):
    """An interface by name."""

    name: Annotated[str, doc("Name of the interface.")]


class UdpTunnel(CrdStruct, frozen=True):
    """A Geneve or VXLAN tunnel."""

    remote_ip: Annotated[Address, doc("Its other end.")]
    vni: Annotated[int, doc("Its network.", minimum=0, maximum=16777215)] = 0
    destination_port: Annotated[Port | None, doc("UDP port; the protocol's own if not given.")] = None


class GreTunnel(CrdStruct, frozen=True):
    """A GRE tunnel."""

    remote_ip: Annotated[Address, doc("Its other end.")]
    key: Annotated[int | None, doc("Its key.", minimum=0, maximum=4294967295)] = None


class ErspanTunnel(CrdStruct, frozen=True):
    """An ERSPAN session."""

    remote_ip: Annotated[Address, doc("Its other end.")]
    version: Annotated[Literal[1, 2], doc("Version of ERSPAN.")]
    session_id: Annotated[int | None, doc("Its session.", minimum=0, maximum=1023)] = None
    index: Annotated[int | None, doc("Port of the source; version 1.")] = None
    dir: Annotated[Literal[0, 1] | None, doc("0: to the source, 1: from it; version 2.")] = None
    hardware_id: Annotated[int | None, doc("Number of the engine; version 2.")] = None


class TrafficControlPort(CrdStruct, frozen=True):
    """One port, of one of these types."""

    schema_keywords: ClassVar[Schema] = one_of("ovsInternal", "device", "geneve", "vxlan", "gre", "erspan")

    ovs_internal: Annotated[NamedInterface | None, doc("An internal port of the bridge, made if absent.")] = (
        None
    )
    device: Annotated[NamedInterface | None, doc("A device of the Node.")] = None
    geneve: Annotated[UdpTunnel | None, doc("A Geneve tunnel.")] = None
    vxlan: Annotated[UdpTunnel | None, doc("A VXLAN tunnel.")] = None
    gre: GreTunnel | None = None
    erspan: ErspanTunnel | None = None


NO_ERSPAN: dict[str, Any] = one_of("ovsInternal", "device", "geneve", "vxlan", "gre")


class TrafficControlSpec(CrdStruct, frozen=True):
    """Pods whose traffic is mirrored or redirected, and the port that it goes to."""

    applied_to: Annotated[AppliedToPods, doc("Pods whose traffic is meant.")]
    direction: Annotated[
        Literal["Ingress", "Egress", "Both"], doc("Traffic to these Pods, from them, or both.")
    ]
    action: Annotated[
        Literal["Mirror", "Redirect"], doc("Whether the target gets copies or the traffic itself.")
    ]
    target_port: Annotated[TrafficControlPort, doc("Where it goes.")]
    return_port: Annotated[
        TrafficControlPort | None,
        doc("Where redirected traffic comes back.", NO_ERSPAN, without=("erspan",)),
    ] = None


class TrafficControl(CrdStruct, frozen=True):
    """Pods' traffic mirrored or redirected to a device or tunnel."""

    spec: TrafficControlSpec
    metadata: Metadata = Metadata()
