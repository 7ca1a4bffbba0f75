"""Rows of the export of requests: which Pods and Namespaces ask for it, and of which connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis.annotation import L7_EXPORT
from antrea.facts.fact import Fact

if TYPE_CHECKING:
    from antrea.apis import core
    from antrea.engine import Facts

DIRECTIONS: Final = ("ingress", "egress", "both")
MAX_LENGTH: Final = 64
"""Characters of a value that are kept, to be named in an Event."""


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
    """Empty: it has none."""

    @property
    def key(self) -> str:
        return self.name


def requested_pod(found: core.Pod) -> RequestedPod | None:
    """None without the annotation, and for Pods in the Node's network, which have no port."""
    meta = found.metadata
    value = meta.annotations.get(L7_EXPORT)
    if value is None or found.spec.host_network:
        return None
    return RequestedPod(meta.namespace, meta.name, meta.uid, value[:MAX_LENGTH])


def requested_namespace(found: core.Namespace) -> RequestedNamespace:
    """The row of a Namespace."""
    return RequestedNamespace(found.metadata.name, found.metadata.annotations.get(L7_EXPORT, "")[:MAX_LENGTH])


def direction(facts: Facts, pod: str) -> str:
    """Connections to the Pod, from it, or both, as its annotation or else that of its Namespace asks; empty: none.

    parity: pkg/agent/controller/l7flowexporter (the Pod's comes first; capitals do not matter)
    """
    found: RequestedPod | RequestedNamespace | None = facts.get(RequestedPod, pod)
    found = found or facts.get(RequestedNamespace, pod.partition("/")[0])
    value = found.value.lower() if found else ""
    return value if value in DIRECTIONS else ""
