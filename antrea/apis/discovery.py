"""discovery.k8s.io/v1: where the Pods of a Service are."""

from __future__ import annotations

from antrea.apis.core import CoreStruct, ObjectMeta


class EndpointConditions(CoreStruct, frozen=True):
    """What is said of one endpoint; nothing said counts as ready."""

    ready: bool = True


class Endpoint(CoreStruct, frozen=True):
    """One Pod of the Service."""

    addresses: tuple[str, ...] = ()
    conditions: EndpointConditions = EndpointConditions()


class EndpointPort(CoreStruct, frozen=True):
    """A port of all Pods of the slice."""

    port: int = 0
    name: str = ""


class EndpointSlice(CoreStruct, frozen=True):
    """Some of the Pods of a Service; of none, both lists are null."""

    metadata: ObjectMeta = ObjectMeta()
    endpoints: tuple[Endpoint, ...] | None = ()
    ports: tuple[EndpointPort, ...] | None = ()
