"""ExternalEntity of crd.antrea.io/v1alpha2 and ExternalNode of v1alpha1: machines outside the cluster.

Source: upstream pkg/apis/crd/{v1alpha1,v1alpha2}/types.go, build/charts/antrea/crds/{externalentity,externalnode}.yaml
"""

from __future__ import annotations

from typing import Annotated, Literal

from antrea.apis.crd.part import Address, CrdStruct, Metadata
from antrea.apis.schema import doc

MACHINE_KIND = "ExternalNode"
MACHINES = "/apis/crd.antrea.io/v1alpha1/externalnodes"
MAX_INTERFACES = 16
"""Maximum number of interfaces of an ExternalNode; upstream's CRD allows one."""


class Endpoint(CrdStruct, frozen=True):
    """One address of the entity."""

    ip: Annotated[Address, doc("The address.")] = ""
    name: Annotated[str, doc("Any name, such as that of the interface.")] = ""


class NamedPort(CrdStruct, frozen=True):
    """A port that policies can name."""

    protocol: Annotated[Literal["TCP", "UDP", "SCTP"] | None, doc("TCP if not given.")] = None
    port: Annotated[int | str | None, doc("Number of the port.")] = None
    name: Annotated[str, doc("Its name in policies.")] = ""


class ExternalEntitySpec(CrdStruct, frozen=True):
    """Addresses and ports."""

    endpoints: Annotated[tuple[Endpoint, ...], doc("Addresses.")] = ()
    ports: Annotated[tuple[NamedPort, ...], doc("Ports with names.")] = ()
    external_node: Annotated[str, doc("ExternalNode that it is an interface of.")] = ""


class ExternalEntity(CrdStruct, frozen=True):
    """Something outside the cluster that policies can select."""

    metadata: Metadata = Metadata()
    spec: ExternalEntitySpec = ExternalEntitySpec()


class NetworkInterface(CrdStruct, frozen=True):
    """An interface of the machine."""

    ips: Annotated[tuple[Address, ...], doc("Its addresses.", minItems=1)] = ()
    name: Annotated[str, doc("Its name.")] = ""


class ExternalNodeSpec(CrdStruct, frozen=True):
    """Endpoint to which policies can be applied."""

    interfaces: Annotated[
        tuple[NetworkInterface, ...],
        doc("Interfaces; of several, all but one need a name.", minItems=1, maxItems=MAX_INTERFACES),
    ]


class ExternalNode(CrdStruct, frozen=True):
    """A machine outside the cluster that runs an agent."""

    spec: ExternalNodeSpec
    metadata: Metadata = Metadata()
