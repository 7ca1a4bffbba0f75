"""AntreaNodeConfig of crd.antrea.io/v1alpha1.

Source: upstream pkg/apis/crd/v1alpha1/types.go, build/charts/antrea/crds/antreanodeconfig.yaml
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from antrea.apis.crd.part import CrdStruct, LabelSelector, Metadata, selector
from antrea.apis.schema import cel, doc

ID = "(?:[0-9]{1,3}|[1-3][0-9]{3}|40[0-8][0-9]|409[0-4])"
VLANS = f"^({ID}|{ID}-{ID})$"
InterfaceName: TypeAlias = Annotated[str, doc(minLength=1, maxLength=15, pattern="^[a-zA-Z0-9._-]+$")]
BRIDGES_STAY = cel(
    "oldSelf.all(o, self.exists(s, s.bridgeName == o.bridgeName))",
    "bridgeName is immutable — existing bridge names cannot be removed or renamed",
)


class PhysicalInterface(CrdStruct, frozen=True):
    """An interface of the Node that the bridge gets."""

    name: Annotated[InterfaceName, doc("Name of the interface.")]
    allowed_vlans: Annotated[
        tuple[Annotated[str, doc(pattern=VLANS)], ...],
        doc('VLANs that pass, such as "100" or "200-300"; all if empty.', {"x-kubernetes-list-type": "set"}),
    ] = ()


class OvsBridge(CrdStruct, frozen=True):
    """A bridge of Open vSwitch."""

    bridge_name: Annotated[InterfaceName, doc("Name of the bridge.")]
    physical_interfaces: Annotated[
        tuple[PhysicalInterface, ...],
        doc(
            "Interfaces that connect the bridge.",
            {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
            maxItems=8,
        ),
    ] = ()
    enable_multicast_snooping: Annotated[
        bool, doc("Whether multicast goes only where somebody asked for it.", default=False)
    ] = False


class SecondaryNetworkConfig(CrdStruct, frozen=True):
    """Networks of Pods' further interfaces."""

    ovs_bridges: Annotated[
        tuple[OvsBridge, ...],
        doc(
            "Bridges; at most one for now.",
            {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["bridgeName"], **BRIDGES_STAY},
            maxItems=1,
        ),
    ] = ()


class AntreaNodeConfigSpec(CrdStruct, frozen=True):
    """Nodes and their settings."""

    node_selector: Annotated[LabelSelector, selector("Nodes that it is for")]
    secondary_network: SecondaryNetworkConfig | None = None


class AntreaNodeConfig(CrdStruct, frozen=True):
    """Settings of single Nodes."""

    spec: AntreaNodeConfigSpec
    metadata: Metadata = Metadata()
