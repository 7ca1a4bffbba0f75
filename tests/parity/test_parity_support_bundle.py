"""Statuses of a SupportBundleCollection after recorded reports, and what agents are told, are upstream's ($ANTREA_GOLDEN)."""

from __future__ import annotations

import json
import shlex
from typing import Any

import msgspec
import pytest
import yaml
from recording import GOLDEN

from antrea.apis import controlplane as cp
from antrea.apis.controlplane_report import SupportBundleCollectionStatus
from antrea.apis.crd.support_bundle import SupportBundleCollection
from antrea.apis.status import Status
from antrea.engine import Facts
from antrea.features.framework.query import Query
from antrea.features.grouping.publication import PublishedObject
from antrea.features.support_bundle_collection.collection import (
    CollectedMachine,
    CollectedNode,
    CollectionTerms,
    OpenCollection,
    open_collection,
)
from antrea.features.support_bundle_collection.controller import collection, record_report

RAW = GOLDEN / "raw"
NAME = "sb-nodes"
STEPS = {
    f"alpha/sbc-status.{NAME}.{node}.json": f"alpha/sbc.{NAME}.after-{node}.yaml" for node in ("n1", "n2")
}
TOLD = "alpha3/supportbundlecollections.internal-fieldSelector-nodeName-3Dn1.json"
"""What was posted, what was shown after it, and what an agent got."""
pytestmark = pytest.mark.skipif(
    not all((RAW / name).is_file() for name in (*STEPS, *STEPS.values(), TOLD)),
    reason="ANTREA_GOLDEN names no such steps of agents",
)


def shown(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((RAW / name).read_text())
    return found


def posted(name: str) -> SupportBundleCollectionStatus:
    words = shlex.split((RAW / name).read_text().partition("\n")[0])
    return msgspec.json.decode(words[words.index("--data-binary") + 1], type=SupportBundleCollectionStatus)


def world() -> tuple[Facts, OpenCollection]:
    """With both Nodes and the Secret, before any report."""
    tree = shown(f"alpha/sbc.{NAME}.after-n1.yaml")
    row = open_collection(msgspec.convert({**tree, "status": {}}, SupportBundleCollection))
    assert row is not None
    pair = cp.BasicAuthentication(username="<REDACTED>", password="<REDACTED>")
    given = cp.BundleServerAuthConfiguration(basic_authentication=pair)
    facts = Facts()
    for kind in (OpenCollection, CollectedNode, CollectedMachine):
        facts.synced(kind)
    for fact in (
        row,
        CollectionTerms(row.name, row.uid, credentials=given),
        CollectedNode("n1"),
        CollectedNode("n2"),
    ):
        facts.put(fact)
    return facts, row


def test_statuses_after_each_report_are_upstreams() -> None:
    facts, row = world()
    for report, after in STEPS.items():
        answer = record_report(facts, Query("", NAME, posted=posted(report)))
        assert (answer.status, answer.code) == ("Success", 201)
        (status,) = (one for one in collection(facts, row) if isinstance(one, Status))
        theirs = shown(after)["status"]
        assert dict(status.fields) == {key: theirs[key] for key in ("collectedNodes", "desiredNodes")}
        ours = {one.type: msgspec.to_builtins(one) for one in status.conditions}
        if ours["Completed"]["status"] == "False":
            # beyond upstream: who has not reported
            assert ours["Completed"].pop("reason") == "Collecting"
            assert ours["Completed"].pop("message") == "no report yet of: n2"
        wanted = {one["type"]: one for one in theirs["conditions"]}
        for one in wanted.values():
            del one["lastTransitionTime"]
        assert [*ours] == [*wanted]
        assert ours == wanted


def test_an_agent_is_told_what_upstreams_is_told() -> None:
    facts, row = world()
    (published,) = (one for one in collection(facts, row) if isinstance(one, PublishedObject))
    (theirs,) = json.loads((RAW / TOLD).read_text().partition("\n")[2])["items"]
    ours = json.loads(msgspec.json.encode(published.content))
    # upstream writes the time of creation, which it does not have, as null
    del theirs["metadata"]["creationTimestamp"]
    ours["metadata"] = {key: value for key, value in ours["metadata"].items() if value}
    assert ours == theirs
    assert published.nodes == ("n1", "n2")
