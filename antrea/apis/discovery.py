"""discovery.k8s.io/v1: where the Pods of a Service are."""

from __future__ import annotations

from antrea.apis.core import CoreStruct, ObjectMeta


class EndpointConditions(CoreStruct, frozen=True):
    """Conditions of one endpoint; an absent one takes its default of the API: ready, serving, not terminating."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None

    @property
    def is_ready(self) -> bool:
        return self.ready is not False

    @property
    def is_serving(self) -> bool:
        """True where the condition is missing, ready or not."""
        return self.serving is not False


class NamedHint(CoreStruct, frozen=True):
    """A zone or a Node by its name."""

    name: str = ""


class EndpointHints(CoreStruct, frozen=True):
    """Zones and Nodes whose connections an endpoint should get."""

    for_zones: tuple[NamedHint, ...] | None = ()
    for_nodes: tuple[NamedHint, ...] | None = ()


class Endpoint(CoreStruct, frozen=True):
    """One Pod of the Service, or another address behind it. The addresses of one endpoint are interchangeable."""

    addresses: tuple[str, ...] = ()
    conditions: EndpointConditions = EndpointConditions()
    node_name: str | None = None
    hints: EndpointHints | None = None


class EndpointPort(CoreStruct, frozen=True):
    """A port of all Pods of the slice; null stands for no name, TCP, and every port."""

    port: int | None = None
    name: str | None = None
    protocol: str | None = None


class EndpointSlice(CoreStruct, frozen=True):
    """Some of the Pods of a Service; of none, both lists are null."""

    metadata: ObjectMeta = ObjectMeta()
    address_type: str = ""
    endpoints: tuple[Endpoint, ...] | None = ()
    ports: tuple[EndpointPort, ...] | None = ()
