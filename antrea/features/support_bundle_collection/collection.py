"""Rows of SupportBundleCollections in the controller: requests, their terms, and reports of Nodes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar

from antrea.apis import controlplane as cp
from antrea.apis import core
from antrea.apis.crd.external import MACHINES, ExternalNode
from antrea.apis.crd.support_bundle import SupportBundleCollection, SupportBundleCollectionSpec
from antrea.facts.fact import Fact
from antrea.features.framework.admission import Watched
from antrea.features.framework.file_server import accepts_any_host_key

if TYPE_CHECKING:
    from antrea.engine import Facts

GATE = "SupportBundleCollection"
PATH = "/apis/crd.antrea.io/v1alpha1/supportbundlecollections"
PLURAL = "supportbundlecollections"
STARTED, COLLECTED, FAILURE, COMPLETED = "Started", "BundleCollected", "CollectionFailure", "Completed"
LAST_SECOND = 253402300799.0
"""Last second of the year 9999."""


class OpenCollection(Fact, frozen=True):
    """A SupportBundleCollection that is not complete."""

    name: str
    uid: str
    created: str
    spec: SupportBundleCollectionSpec
    started: bool = False
    """Whether by its status it has started: an earlier created one does not take its turn."""
    any_host_key: bool = False
    """Whether bundles may go to an SFTP server of any key, where the spec has none."""

    @property
    def key(self) -> str:
        return self.name

    @property
    def expires(self) -> float:
        """Seconds since 1970; an object without the time of its creation has expired."""
        try:
            return datetime.fromisoformat(self.created).timestamp() + 60 * min(
                self.spec.expiration_minutes, 1 << 31
            )
        except ValueError:
            return 0.0

    @property
    def expires_at(self) -> str:
        """The same as RFC 3339."""
        at = min(max(self.expires, 0.0), LAST_SECOND)
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class CollectedNode(Fact, frozen=True):
    """A Node with its labels, sorted."""

    name: str
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> str:
        return self.name


class CollectedMachine(Fact, frozen=True):
    """An ExternalNode with its labels, sorted."""

    namespace: str
    name: str
    labels: tuple[tuple[str, str], ...] = ()
    indexes: ClassVar[Mapping[str, Callable[[CollectedMachine], Iterable[Hashable]]]] = {
        "namespace": lambda row: (row.namespace,)
    }

    @property
    def key(self) -> str:
        """Name under which its agent requests collections, too."""
        return f"{self.namespace}/{self.name}"


class CollectionTerms(Fact, frozen=True):
    """Terms of a collection that the controller determined; its part writes this after all Nodes and ExternalNodes were listed."""

    name: str
    uid: str
    expired: bool = False
    credentials: cp.BundleServerAuthConfiguration | None = None
    failure: str = ""
    """Why there are no credentials."""

    @property
    def key(self) -> str:
        return self.name


class NodeBundle(Fact, frozen=True):
    """Report of the agent of a Node or an ExternalNode on a collection."""

    collection: str
    """UID of the collection."""
    node: str
    """Name of the Node; for an ExternalNode its Namespace and name."""
    completed: bool
    error: str = ""
    indexes: ClassVar[Mapping[str, Callable[[NodeBundle], Iterable[Hashable]]]] = {
        "collection": lambda row: (row.collection,)
    }

    @property
    def key(self) -> str:
        return f"{self.collection} {self.node}"


def open_collection(stored: SupportBundleCollection) -> OpenCollection | None:
    """Make the row of an object; None if it is complete, and its status stays as it is."""
    true = {condition.type for condition in stored.status.conditions if condition.status == "True"}
    if COMPLETED in true:
        return None
    meta = stored.metadata
    return OpenCollection(
        meta.name,
        meta.uid,
        meta.creation_timestamp,
        stored.spec,
        STARTED in true,
        accepts_any_host_key(meta.annotations),
    )


def collected_node(node: core.Node) -> CollectedNode:
    """Make the row of an object."""
    return CollectedNode(node.metadata.name, tuple(sorted(node.metadata.labels.items())))


def collected_machine(machine: ExternalNode) -> CollectedMachine:
    """Make the row of an object."""
    meta = machine.metadata
    return CollectedMachine(meta.namespace, meta.name, tuple(sorted(meta.labels.items())))


def is_listed(facts: Facts) -> bool:
    """Whether the collections, and all that they can be of, are known."""
    return all(facts.feeds.has(kind) for kind in (OpenCollection, CollectedNode, CollectedMachine))


NODES = Watched("/api/v1/nodes", core.Node, CollectedNode, collected_node)
COLLECTIONS = Watched(PATH, SupportBundleCollection, OpenCollection, open_collection, optional=True)
COLLECTED_MACHINES = Watched(MACHINES, ExternalNode, CollectedMachine, collected_machine, optional=True)
"""Watches of CRDs that an older installation may lack: that must not keep policies from agents."""
