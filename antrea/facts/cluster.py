"""The cluster's Pods, Namespaces, Nodes, Services and ExternalEntities, as the controller sees them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, ClassVar

from antrea.facts.fact import Fact

Indexes = Mapping[str, Callable[[Any], Iterable[Hashable]]]
BY_LABELS: Indexes = {"labels": lambda row: (row.labels,)}


class Pod(Fact, frozen=True):
    """A Pod that has not ended; the Pod feed writes it."""

    namespace: str
    name: str
    labels: str
    """Key of its label set: Pods of one Deployment share it."""
    node: str = ""
    """Empty until it is scheduled."""
    ips: tuple[str, ...] = ()
    host_network: bool = False
    ports: tuple[tuple[str, int, str], ...] = ()
    """Ports of its containers and native sidecars that have a name: name, number, protocol."""
    indexes: ClassVar[Indexes] = {
        **BY_LABELS,
        "host": lambda row: (row.labels,) if row.host_network else (),
    }

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class PodFeedProgress(Fact, frozen=True):
    """How far the Pod feed has received the Pods of a Node; written after their rows."""

    node: str
    version: int
    """The highest resourceVersion received."""

    @property
    def key(self) -> str:
        return self.node


class Namespace(Fact, frozen=True):
    """A Namespace with its labels, sorted; the Namespace feed writes it."""

    name: str
    labels: tuple[tuple[str, str], ...] = ()
    logs_policies: bool = False
    """Whether verdicts of its NetworkPolicies are logged (annotation networkpolicy.antrea.io/enable-logging)."""
    audits_policies: bool = False
    """Policies in it are audited, but for those with an annotation of their own (antrea.io/enforcement)."""

    @property
    def key(self) -> str:
        return self.name


class ClusterNode(Fact, frozen=True):
    """A Node; the Node feed writes it."""

    name: str
    labels: str
    """Key of its label set."""
    ips: tuple[str, ...] = ()
    """All addresses that it has for others, sorted as text."""
    indexes: ClassVar[Indexes] = {**BY_LABELS, "ip": lambda row: row.ips}

    @property
    def key(self) -> str:
        return self.name


class ClusterService(Fact, frozen=True):
    """A Service by the labels of its Pods, sorted; the Service feed writes it."""

    namespace: str
    name: str
    selector: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class Entity(Fact, frozen=True):
    """An ExternalEntity; its feed writes it."""

    namespace: str
    name: str
    labels: str
    """Key of its label set."""
    node: str = ""
    """Where it is enforced: its ExternalNode."""
    ips: tuple[str, ...] = ()
    ports: tuple[tuple[str, int, str], ...] = ()
    """Name, number, protocol."""
    indexes: ClassVar[Indexes] = BY_LABELS

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"
