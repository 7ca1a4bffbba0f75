"""Ports that the containers of a Pod declare."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.apis import core

SIDECAR = "Always"
"""restartPolicy of an init container that runs as long as its Pod."""


def container_ports(spec: core.PodSpec) -> Iterator[core.ContainerPort]:
    """Yield the ports of all containers that run as long as the Pod, native sidecars last.

    The order is that in which Kubernetes looks up the named targetPort of a Service (podutil.FindPort).
    """
    for container in spec.containers:
        yield from container.ports
    for container in spec.init_containers:
        if container.restart_policy == SIDECAR:
            yield from container.ports
