"""Rows of TrafficControl: requests, and the labels of the Pods and Namespaces that it selects by."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

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
    """Port where redirected packets come back; None if nowhere."""

    indexes: ClassVar[Mapping[str, Callable[[Steering], Iterable[Hashable]]]] = {
        "port": lambda row: {port.name for port in (row.target, row.returned) if port}
    }

    @property
    def key(self) -> str:
        return self.name


def steering(stored: TrafficControl) -> Steering:
    """Make the row of an object."""
    meta, spec = stored.metadata, stored.spec
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


def steered_pod(pod: core.Pod) -> SteeredPod | None:
    """Make the row; None for Pods in the host network, which have no port."""
    meta = pod.metadata
    if pod.spec.host_network:
        return None
    return SteeredPod(meta.namespace, meta.name, tuple(sorted(meta.labels.items())))


def steered_namespace(namespace: core.Namespace) -> SteeredNamespace:
    """Make the row of a Namespace."""
    return SteeredNamespace(namespace.metadata.name, tuple(sorted(namespace.metadata.labels.items())))


class Selection(NamedTuple):
    """A TrafficControl that selects a Pod, or may do so."""

    row: Steering
    is_certain: bool
    """False while the labels that decide it are not known."""


def selections(facts: Facts, pod: str) -> list[Selection]:
    """TrafficControls that select a Pod or may do so, the oldest first, then by name.

    Of those that select it the first one counts. Upstream lets the one count that its agent handled first, which may be
    another on every Node and after a restart.
    """
    rows = sorted(facts.all(Steering), key=lambda row: precedence(row.created, row.name))
    answers = ((row, _selects(facts, row, pod)) for row in rows)
    return [Selection(row, answer is True) for row, answer in answers if answer is not False]


def steerings_of(facts: Facts, pod: str) -> list[Steering]:
    """TrafficControls that are known to select a Pod, in the order of `selections`."""
    return [selection.row for selection in selections(facts, pod) if selection.is_certain]


def _selects(facts: Facts, row: Steering, pod: str) -> bool | None:
    """Whether a TrafficControl selects a Pod; None while labels that decide it are not known.

    Each selector is judged by itself, so that one that does not match decides without the other's labels.
    """
    if row.pods is None and row.namespaces is None:
        return False
    conditions = (
        (row.namespaces, facts.get(SteeredNamespace, pod.partition("/")[0])),
        (row.pods, facts.get(SteeredPod, pod)),
    )
    answers = [
        None if labelled is None else meets(dict(labelled.labels), wanted)
        for wanted, labelled in conditions
        if wanted is not None
    ]
    return False if False in answers else None if None in answers else True
