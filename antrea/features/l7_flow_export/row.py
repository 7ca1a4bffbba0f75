"""Rows of the export of requests: annotated Pods and Namespaces, and the direction of their connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis.annotation import L7_EXPORT
from antrea.facts.fact import Fact

if TYPE_CHECKING:
    from antrea.apis import core
    from antrea.engine import Facts

DIRECTIONS: Final = ("ingress", "egress", "both")
MAX_LENGTH: Final = 64
"""Maximum number of characters of a value that are kept, for an Event."""


class RequestedPod(Fact, frozen=True):
    """An annotated Pod of this Node."""

    namespace: str
    name: str
    uid: str
    value: str

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class RequestedNamespace(Fact, frozen=True):
    """A Namespace with its annotation."""

    name: str
    value: str
    """Value; empty without the annotation."""

    @property
    def key(self) -> str:
        return self.name


def requested_pod(pod: core.Pod) -> RequestedPod | None:
    """Make the row; None without the annotation, and for Pods in the host network, which have no port."""
    meta = pod.metadata
    value = meta.annotations.get(L7_EXPORT)
    if value is None or pod.spec.host_network:
        return None
    return RequestedPod(meta.namespace, meta.name, meta.uid, value[:MAX_LENGTH])


def requested_namespace(namespace: core.Namespace) -> RequestedNamespace:
    """Make the row of a Namespace."""
    return RequestedNamespace(
        namespace.metadata.name, namespace.metadata.annotations.get(L7_EXPORT, "")[:MAX_LENGTH]
    )


def direction(facts: Facts, pod: str) -> str:
    """Connections to the Pod, from it, or both, as its annotation or else that of its Namespace asks; empty: none.

    parity: pkg/agent/controller/l7flowexporter (the Pod's comes first; capitals do not matter)
    """
    row: RequestedPod | RequestedNamespace | None = facts.get(RequestedPod, pod)
    row = row or facts.get(RequestedNamespace, pod.partition("/")[0])
    value = row.value.lower() if row else ""
    return value if value in DIRECTIONS else ""
