"""Rows of TrafficControl: what is asked for, and the labels of the Pods and Namespaces that it selects by."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from antrea.facts.fact import Fact, precedence
from antrea.facts.group import Requirement
from antrea.features.grouping.selector import meets, requirements
from antrea.features.traffic_control.port import switch_port
from antrea.host.ovs_port import Port

if TYPE_CHECKING:
    from antrea.apis import core
    from antrea.apis.crd.traffic_control import TrafficControl
    from antrea.engine import Facts

PATH = "/apis/crd.antrea.io/v1alpha2/trafficcontrols"
Labels = tuple[tuple[str, str], ...]


class SteeredPod(Fact, frozen=True):
    """A Pod of this Node with its labels."""

    namespace: str
    name: str
    labels: Labels

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class SteeredNamespace(Fact, frozen=True):
    """A Namespace with its labels."""

    name: str
    labels: Labels

    @property
    def key(self) -> str:
        return self.name


class Steering(Fact, frozen=True):
    """A TrafficControl as agents need it."""

    name: str
    uid: str
    created: str
    pods: tuple[Requirement, ...] | None
    namespaces: tuple[Requirement, ...] | None
    direction: Literal["Ingress", "Egress", "Both"]
    redirects: bool
    target: Port | None
    returned: Port | None = None
    """Where redirected packets come back; None: nowhere."""

    indexes: ClassVar[Mapping[str, Callable[[Steering], Iterable[Hashable]]]] = {
        "port": lambda row: {one.name for one in (row.target, row.returned) if one}
    }

    @property
    def key(self) -> str:
        return self.name


def steering(found: TrafficControl) -> Steering:
    """The row of an object."""
    meta, spec = found.metadata, found.spec
    to = spec.applied_to
    return Steering(
        meta.name,
        meta.uid,
        meta.creation_timestamp,
        None if to.pod_selector is None else requirements(to.pod_selector),
        None if to.namespace_selector is None else requirements(to.namespace_selector),
        spec.direction,
        spec.action == "Redirect",
        switch_port(spec.target_port),
        switch_port(spec.return_port) if spec.return_port and spec.action == "Redirect" else None,
    )


def steered_pod(found: core.Pod) -> SteeredPod | None:
    """None for Pods in the Node's network, which have no port."""
    meta = found.metadata
    if found.spec.host_network:
        return None
    return SteeredPod(meta.namespace, meta.name, tuple(sorted(meta.labels.items())))


def steered_namespace(found: core.Namespace) -> SteeredNamespace:
    """The row of a Namespace."""
    return SteeredNamespace(found.metadata.name, tuple(sorted(found.metadata.labels.items())))


def steerings_of(facts: Facts, pod: str) -> list[Steering]:
    """Those that select a Pod, the oldest first, then by name: the first one counts.

    Upstream lets the one count that its agent handled first, which may be another on every Node and after a restart.
    """
    rows = facts.all(Steering)
    found = facts.get(SteeredPod, pod) if rows else None
    if found is None:
        return []
    home = facts.get(SteeredNamespace, found.namespace)
    return sorted(
        (row for row in rows if _selects(row, found, home)), key=lambda row: precedence(row.created, row.name)
    )


def is_known(facts: Facts, pod: str) -> bool:
    """Whether the agent has the labels of a Pod and of its Namespace, without which nothing selects it rightly."""
    found = facts.get(SteeredPod, pod)
    return found is not None and facts.get(SteeredNamespace, found.namespace) is not None


def _selects(row: Steering, pod: SteeredPod, home: SteeredNamespace | None) -> bool:
    if row.pods is None and row.namespaces is None:
        return False
    if row.namespaces is not None and (home is None or not meets(dict(home.labels), row.namespaces)):
        return False
    return row.pods is None or meets(dict(pod.labels), row.pods)
