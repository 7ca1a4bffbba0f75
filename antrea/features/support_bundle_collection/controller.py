"""SupportBundleCollections in the controller: their order, what is sent to agents, and reports.

parity: pkg/controller/supportbundlecollection/controller.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis import controlplane as cp
from antrea.apis import meta
from antrea.apis.annotation import ACCEPT_ANY_HOST_KEY
from antrea.apis.crd.external import MACHINE_KIND
from antrea.engine import Unit
from antrea.errors import Unavailable
from antrea.features.framework.controller_feature import ControllerFeature
from antrea.features.framework.event import RecordEvent
from antrea.features.grouping.publication import PublishedObject
from antrea.features.support_bundle_collection.collection import (
    COLLECTED_MACHINES,
    COLLECTIONS,
    GATE,
    NODES,
    PLURAL,
    NodeBundle,
    OpenCollection,
    is_listed,
)
from antrea.features.support_bundle_collection.span import (
    chosen_nodes,
    first,
    terms_of,
    unknown_machines,
    unknown_nodes,
)
from antrea.features.support_bundle_collection.status import (
    MAX_ERROR,
    NO_NODE,
    Outcome,
    lacking,
    never_begun,
    running,
    waiting,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.apis.status import Status
    from antrea.engine import Facts
    from antrea.features.framework.query import Query
    from antrea.features.support_bundle_collection.collection import CollectionTerms


def collection(facts: Facts, row: OpenCollection) -> Iterator[PublishedObject | Status | RecordEvent]:
    """Yield what is sent to its agents while it runs, its status, and an Event for the user."""
    terms = terms_of(facts, row)
    if terms is None:
        return
    nodes = chosen_nodes(facts, row)
    outcome = _not_begun(facts, row, terms, nodes)
    if outcome is None:
        if terms.credentials is not None and not terms.expired:
            yield _published(row, nodes, terms.credentials)
        reports = facts.by(NodeBundle, "collection", row.uid)
        lacks = _lacks(facts, row)
        outcome = running(nodes, reports, lacks, expired=terms.expired)
    yield outcome.status(row)
    yield from _event(row, outcome)


def _lacks(facts: Facts, row: OpenCollection) -> tuple[str, ...]:
    return lacking(unknown_nodes(facts, row), unknown_machines(facts, row))


def _not_begun(
    facts: Facts, row: OpenCollection, terms: CollectionTerms, nodes: tuple[str, ...]
) -> Outcome | None:
    """Return the outcome; None if it runs, or ran until it expired."""
    if not nodes:
        return never_begun("NodeNotFound", "; ".join([NO_NODE, *_lacks(facts, row)]))
    if terms.expired:
        if row.started:
            return None
        why = terms.failure or "it has not begun before its time was up"
        return never_begun("Expired", why)
    if terms.credentials is None:
        return waiting("SecretUnavailable", f"{terms.failure}; trying again", len(nodes))
    if other := first(facts, row):
        why = f"SupportBundleCollection {other} is processed on the same Nodes; this one begins after it"
        return waiting("Conflict", why, len(nodes))
    return None


def _published(
    row: OpenCollection, nodes: tuple[str, ...], credentials: cp.BundleServerAuthConfiguration
) -> PublishedObject:
    server = row.spec.file_server
    annotations = {ACCEPT_ANY_HOST_KEY: "true"} if row.any_host_key else {}
    sent = cp.SupportBundleCollection(
        metadata=meta.ObjectMetadata(name=row.name, uid=row.uid, annotations=annotations),
        expired_at=row.expires_at,
        since_time=row.spec.since_time,
        file_server=cp.BundleFileServer(url=server.url, host_public_key=server.host_public_key),
        authentication=credentials,
    )
    return PublishedObject(PLURAL, row.name, sent, nodes)


def _event(row: OpenCollection, outcome: Outcome) -> Iterator[RecordEvent]:
    """Yield the Event; none for a collection that waits for another one."""
    why = outcome.failure()
    if (
        why is None
        or why.reason == "Conflict"
        or (why.type == "CollectionFailure" and not outcome.is_complete())
    ):
        return
    reason = "CollectionFailed" if outcome.is_complete() else why.reason
    yield RecordEvent(
        row.uid, why.message, "crd.antrea.io/v1alpha1", "SupportBundleCollection", row.name, row.uid,
        reason, why.message, warning=True,
    )  # fmt: skip


def record_report(facts: Facts, query: Query) -> meta.Status:
    """Keep what an agent reports, if the collection is for its Node or ExternalNode; that of one that is gone is not kept.

    One that has sent its bundle stays so: an agent that restarts makes another one, which may fail. Raises Unavailable
    before everything was listed: agents that were connected to a controller before this one report at once.
    """
    if not is_listed(facts):
        raise Unavailable("the list of SupportBundleCollections, Nodes or ExternalNodes is not complete yet")
    row = facts.get(OpenCollection, query.name)
    nodes = frozenset(chosen_nodes(facts, row)) if row is not None else frozenset()
    for node_report in query.posted.nodes:
        is_machine = node_report.node_type == MACHINE_KIND
        node = (
            f"{node_report.node_namespace}/{node_report.node_name}" if is_machine else node_report.node_name
        )
        if row is None or node not in nodes:
            continue
        if query.posted.metadata.uid not in ("", row.uid):
            continue
        report = NodeBundle(row.uid, node, node_report.completed, node_report.error[:MAX_ERROR])
        before = facts.get(NodeBundle, report.key)
        if before is None or not before.completed:
            facts.put(report)
    return meta.Status(status="Success", code=201)


FEATURE = ControllerFeature(
    name="SupportBundleCollection",
    watched=(COLLECTIONS, NODES, COLLECTED_MACHINES),
    units=(Unit(OpenCollection, collection),),
    publishes=(PLURAL,),
    gate=GATE,
    answers={(PLURAL, "status", "create"): record_report},
)
FEATURES = (FEATURE,)
