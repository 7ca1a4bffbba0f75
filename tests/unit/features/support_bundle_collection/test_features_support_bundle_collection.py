"""SupportBundleCollection without I/O: which Nodes, whose turn, what is published, and what the status says."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antrea.apis import controlplane as cp
from antrea.apis.controlplane_report import (
    SupportBundleCollectionNodeStatus,
    SupportBundleCollectionStatus,
)
from antrea.apis.crd.support_bundle import SupportBundleCollection, SupportBundleCollectionSpec
from antrea.apis.meta import ObjectMetadata
from antrea.apis.status import Status
from antrea.engine import Facts
from antrea.errors import Unavailable
from antrea.facts.node import ThisNode
from antrea.features.framework.event import RecordEvent
from antrea.features.framework.query import Query
from antrea.features.grouping.publication import PublishedObject
from antrea.features.support_bundle_collection import agent, controller
from antrea.features.support_bundle_collection.collection import (
    CollectedMachine,
    CollectedNode,
    CollectionTerms,
    NodeBundle,
    OpenCollection,
    open_collection,
)
from antrea.features.support_bundle_collection.disabled import disabled_collection, stopped_collection
from antrea.features.support_bundle_collection.status import NO_NODE
from antrea.features.support_bundle_collection.task import (
    BundleReport,
    BundleResult,
    BundleUpload,
    bundle_task,
)

PASSWORD = "correct-horse-battery"
CREDENTIALS = cp.BundleServerAuthConfiguration(
    basic_authentication=cp.BasicAuthentication(username="u", password=PASSWORD)
)
NODES = {"n1": {"rack": "a"}, "n2": {"rack": "b"}, "n3": {}}
Conditions = list[tuple[str, str, str]]


def spec_of(**fields: Any) -> SupportBundleCollectionSpec:
    """All Nodes, unless said otherwise."""
    tree = {
        "nodes": {},
        "fileServer": {"url": "sftp://192.0.2.1/upload"},
        "authentication": {
            "authType": "BasicAuthentication",
            "authSecret": {"name": "s", "namespace": "ops"},
        },
        **fields,
    }
    return msgspec.convert(tree, SupportBundleCollectionSpec)


def row_of(
    name: str = "c", created: str = "2026-01-01T00:00:00Z", started: bool = False, **spec: Any
) -> OpenCollection:
    return OpenCollection(name, f"uid-{name}", created, spec_of(**spec), started)


def world(*rows: OpenCollection, **terms: Any) -> Facts:
    """With three Nodes; `terms` of all collections."""
    facts = Facts()
    for kind in (OpenCollection, CollectedNode, CollectedMachine):
        facts.synced(kind)
    for name, labels in NODES.items():
        facts.put(CollectedNode(name, tuple(sorted(labels.items()))))
    for row in rows:
        facts.put(row)
        facts.put(CollectionTerms(row.name, row.uid, **(terms or {"credentials": CREDENTIALS})))
    return facts


def made(facts: Facts, row: OpenCollection) -> tuple[Status, PublishedObject | None, RecordEvent | None]:
    """What the unit yields, by kind."""
    found = list(controller.collection(facts, row))
    (status,) = (one for one in found if isinstance(one, Status))
    published = next((one for one in found if isinstance(one, PublishedObject)), None)
    return status, published, next((one for one in found if isinstance(one, RecordEvent)), None)


def conditions(status: Status) -> Conditions:
    return [(one.status, one.reason, one.message) for one in status.conditions]


def report(facts: Facts, name: str, node: str, error: str = "", uid: str = "") -> None:
    """As an agent posts it."""
    one = SupportBundleCollectionNodeStatus(
        node_name=node, node_type="Node", completed=not error, error=error
    )
    found = SupportBundleCollectionStatus(metadata=ObjectMetadata(name=name, uid=uid), nodes=(one,))
    assert controller.record_report(facts, Query("", name, posted=found)).status == "Success"


@pytest.mark.parametrize(
    ("nodes", "chosen"),
    [
        ({}, ("n1", "n2", "n3")),
        ({"nodeNames": ["n2", "gone"]}, ("n2",)),
        ({"nodeSelector": {"matchLabels": {"rack": "a"}}}, ("n1",)),
        ({"nodeNames": ["n3"], "nodeSelector": {"matchLabels": {"rack": "a"}}}, ("n1", "n3")),
        ({"nodeSelector": {}}, ("n1", "n2", "n3")),
        ({"nodeSelector": {"matchExpressions": [{"key": "rack", "operator": "DoesNotExist"}]}}, ("n3",)),
    ],
)
def test_nodes_are_chosen_by_name_and_by_label(nodes: dict[str, Any], chosen: tuple[str, ...]) -> None:
    row = row_of(nodes=nodes)
    _, published, _ = made(world(row), row)
    assert published is not None
    assert published.nodes == chosen


def test_agents_are_told_where_to_and_with_what_and_no_text_shows_the_password() -> None:
    row = row_of(sinceTime="2h", expirationMinutes=30)
    _, published, _ = made(world(row), row)
    assert published is not None
    found = published.content
    assert (found.metadata.name, found.metadata.uid) == ("c", "uid-c")
    assert (found.since_time, found.expired_at) == ("2h", "2026-01-01T00:30:00Z")
    assert found.file_server.url == "sftp://192.0.2.1/upload"
    assert found.authentication == CREDENTIALS
    task = bundle_task(found)
    shown = [repr(one) for one in (published, task, BundleUpload(task), world(row).all(CollectionTerms))]
    assert not any(PASSWORD in text for text in shown)
    assert [*task.secrets] == [PASSWORD]


def test_it_is_complete_when_all_nodes_have_reported_and_says_who_has_not() -> None:
    row = row_of()
    facts = world(row)
    status, _, event = made(facts, row)
    assert conditions(status) == [
        ("True", "", ""), ("False", "", ""), ("False", "", ""),
        ("False", "Collecting", "no report yet of: n1, n2, n3"),
    ]  # fmt: skip
    assert status.fields == (("collectedNodes", 0), ("desiredNodes", 3))
    for node in ("n1", "n3"):
        report(facts, "c", node)
    status, _, _ = made(facts, row)
    assert conditions(status)[3] == ("False", "Collecting", "no report yet of: n2")
    report(facts, "c", "n2")
    status, _, event = made(facts, row)
    assert conditions(status) == [("True", "", ""), ("True", "", ""), ("False", "", ""), ("True", "", "")]
    assert status.fields == (("collectedNodes", 3), ("desiredNodes", 3))
    assert event is None


def test_failures_are_grouped_by_error_in_upstreams_words() -> None:
    row = row_of()
    facts = world(row)
    for node, error in (("n3", "disk"), ("n1", "failed to upload file after 5 attempts"), ("n2", "disk")):
        report(facts, "c", node, error)
    status, _, event = made(facts, row)
    words = 'Failed Agent count: 3, "disk":[n2, n3], "failed to upload file after 5 attempts":[n1]'
    assert conditions(status)[1:] == [
        ("False", "", ""), ("True", "InternalError", words), ("True", "", ""),
    ]  # fmt: skip
    assert event is not None
    assert (event.reason, event.message, event.warning) == ("CollectionFailed", words, True)


def test_silence_until_it_expires_is_a_failure_that_names_the_nodes() -> None:
    row = row_of(started=True)
    facts = world(row, expired=True)
    facts.put(NodeBundle(row.uid, "n1", completed=True))
    status, published, _ = made(facts, row)
    (begun, _, failed, completed) = conditions(status)
    assert (begun[0], completed[0]) == ("True", "True")
    assert failed[2].startswith('Failed Agent count: 2, "no report before the collection expired')
    assert failed[2].endswith(":[n2, n3]")
    assert status.fields == (("collectedNodes", 1), ("desiredNodes", 3))
    assert published is None


def test_one_that_never_began_expires_with_upstreams_reason() -> None:
    row = row_of()
    status, published, event = made(world(row, expired=True, failure='secrets "s" not found'), row)
    why = 'secrets "s" not found'
    assert conditions(status) == [
        ("False", "Expired", why), ("False", "", ""), ("True", "Expired", why), ("True", "", ""),
    ]  # fmt: skip
    assert published is None
    assert event is not None


def test_without_its_secret_it_waits_and_says_why() -> None:
    row = row_of()
    status, published, event = made(world(row, failure="no such Secret"), row)
    assert conditions(status)[0] == ("False", "SecretUnavailable", "no such Secret; trying again")
    assert conditions(status)[3][0] == "False"
    assert published is None
    assert event is not None
    assert event.reason == "SecretUnavailable"


def test_nothing_is_said_before_nodes_and_secret_were_looked_for() -> None:
    facts, row = Facts(), row_of()
    facts.put(row)
    assert [*controller.collection(facts, row)] == []
    facts.put(CollectionTerms(row.name, "another one of that name", expired=True))
    assert [*controller.collection(facts, row)] == []


def test_one_after_the_other_the_one_that_runs_first() -> None:
    early, late = row_of("a", created="2026-01-01T00:00:00Z"), row_of("b", created="2026-01-01T00:01:00Z")
    facts = world(early, late)
    assert made(facts, early)[1] is not None
    status, published, event = made(facts, late)
    assert conditions(status)[0][:2] == ("False", "Conflict")
    assert "SupportBundleCollection a " in conditions(status)[0][2]
    assert (published, event) == (None, None)
    running = msgspec.structs.replace(late, started=True)
    facts = world(early, running)
    assert made(facts, running)[1] is not None
    assert made(facts, early)[1] is None
    facts.put(CollectionTerms("b", "uid-b", failure="no Secret"))
    assert made(facts, early)[1] is not None


def test_what_cannot_be_collected_is_never_called_collected() -> None:
    alone = row_of(externalNodes={"namespace": "vms"}, nodes=None)
    status, published, _ = made(world(alone), alone)
    assert [one[:2] for one in conditions(status)][::2] == [
        ("False", "NodeNotFound"),
        ("True", "NodeNotFound"),
    ]
    assert published is None
    nobody = row_of(nodes={"nodeNames": ["gone"]})
    status, published, _ = made(world(nobody), nobody)
    words = f"{NO_NODE}; spec.nodes.nodeNames: no such Node: gone"
    assert conditions(status)[2] == ("True", "NodeNotFound", words)
    assert published is None


@pytest.mark.parametrize(
    ("machines", "chosen"),
    [
        ({}, ("vms/a", "vms/b")),
        ({"nodeNames": ["b", "gone"]}, ("vms/b",)),
        ({"nodeSelector": {"matchLabels": {"role": "db"}}}, ("vms/a",)),
    ],
)
def test_external_nodes_of_a_namespace_are_chosen_by_name_and_by_label(
    machines: dict[str, Any], chosen: tuple[str, ...]
) -> None:
    row = row_of(nodes=None, externalNodes={"namespace": "vms", **machines})
    facts = world(row)
    for namespace, name, role in (("vms", "a", "db"), ("vms", "b", "web"), ("other", "a", "db")):
        facts.put(CollectedMachine(namespace, name, (("role", role),)))
    _, published, _ = made(facts, row)
    assert published is not None
    assert published.nodes == chosen
    named = "; ".join(why for *_, why in conditions(made(facts, row)[0]))
    assert ("no such ExternalNode: vms/gone" in named) is ("nodeNames" in machines)


def test_the_report_of_a_machine_is_not_that_of_a_node_of_its_name() -> None:
    row = row_of(nodes={"nodeNames": ["n1"]}, externalNodes={"namespace": "vms"})
    facts = world(row)
    facts.put(CollectedMachine("vms", "n1"))
    one = SupportBundleCollectionNodeStatus(
        node_name="n1", node_namespace="vms", node_type="ExternalNode", completed=True, error=""
    )
    found = SupportBundleCollectionStatus(metadata=ObjectMetadata(name="c"), nodes=(one,))
    controller.record_report(facts, Query("", "c", posted=found))
    assert [row.node for row in facts.all(NodeBundle)] == ["vms/n1"]
    report(facts, "c", "n1")
    status, _, _ = made(facts, row)
    assert [one[0] for one in conditions(status)] == ["True", "True", "False", "True"]


def test_a_collection_of_machines_waits_for_none_of_nodes() -> None:
    nodes = row_of("a", started=True)
    machines = row_of("b", nodes=None, externalNodes={"namespace": "vms"})
    later = row_of("c", created="2026-01-02T00:00:00Z", nodes=None, externalNodes={"namespace": "vms"})
    facts = world(nodes, machines, later)
    facts.put(CollectedMachine("vms", "a"))
    assert made(facts, machines)[1] is not None
    assert conditions(made(facts, later)[0])[0][:2] == ("False", "Conflict")


def test_reports_of_others_count_for_nothing_and_success_is_final() -> None:
    row = row_of(nodes={"nodeNames": ["n1"]})
    facts = world(row)
    report(facts, "c", "n2")
    report(facts, "c", "n1", uid="of another collection of that name")
    report(facts, "gone", "n1")
    assert facts.all(NodeBundle) == []
    report(facts, "c", "n1", "x" * 10_000)
    assert [len(one.error) for one in facts.all(NodeBundle)] == [256]
    report(facts, "c", "n1")
    report(facts, "c", "n1", "the agent has restarted")
    assert [one.completed for one in facts.all(NodeBundle)] == [True]


def test_a_report_that_comes_before_all_is_listed_is_to_be_sent_again() -> None:
    with pytest.raises(Unavailable, match="not complete yet"):
        report(Facts(), "c", "n1")


def test_a_message_is_bounded_whatever_agents_say() -> None:
    row = row_of()
    facts = world(row)
    for number in range(1000):
        facts.put(CollectedNode(f"m{number:04}"))
        facts.put(NodeBundle(row.uid, f"m{number:04}", completed=False, error=f"{number} " + "y" * 250))
    message = conditions(made(facts, row)[0])[2][2]
    assert message.startswith("Failed Agent count: 1000, ")
    assert message.endswith("and 992 more errors")
    assert len(message) < 4096


def test_a_complete_one_is_left_alone_and_one_of_a_gate_that_is_off_is_stopped() -> None:
    tree: dict[str, Any] = {
        "metadata": {"name": "c", "uid": "u"},
        "status": {"conditions": [{"type": "Started", "status": "True"}]},
    }
    found = msgspec.convert(tree, SupportBundleCollection)
    row, off = open_collection(found), disabled_collection(found)
    assert row is not None
    assert row.started
    assert off is not None
    (status,) = stopped_collection(Facts(), off)
    assert [(one.type, one.status) for one in status.conditions] == [
        ("Started", "False"),
        ("Completed", "False"),
    ]
    tree["status"]["conditions"].append({"type": "Completed", "status": "True"})
    found = msgspec.convert(tree, SupportBundleCollection)
    assert (open_collection(found), disabled_collection(found)) == (None, None)


@pytest.mark.parametrize("created", ["", "yesterday"])
def test_one_without_a_time_has_expired(created: str) -> None:
    assert row_of(created=created).expires == 0.0
    assert (
        row_of(created="9990-01-01T00:00:00Z", expirationMinutes=1 << 62).expires_at == "9999-12-31T23:59:59Z"
    )


def test_an_agent_reports_the_result_of_this_collection_alone() -> None:
    row = row_of()
    _, published, _ = made(world(row), row)
    assert published is not None
    task, facts = bundle_task(published.content), Facts()
    facts.put(ThisNode("n1"))
    facts.put(BundleResult("c", "of another one"))
    assert [type(one) for one in agent.bundle(facts, task)] == [BundleUpload]
    facts.put(BundleResult("c", "uid-c", "disk"))
    assert [*agent.bundle(facts, task)][1:] == [BundleReport("c", "uid-c", "n1", "disk")]
