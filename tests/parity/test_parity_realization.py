"""Statuses of policies after the recorded reports of agents are upstream's ($ANTREA_GOLDEN)."""

from __future__ import annotations

import json
import shlex
from typing import Any

import msgspec
import pytest
import yaml
from recorded_world import rows_of, world
from recording import GOLDEN, of_kind

from antrea.apis.controlplane_report import NetworkPolicyStatus
from antrea.apis.status import Status
from antrea.features.network_policy.controller.realization import record_report

AGENT = GOLDEN / "raw/agent"
STEPS = {
    "status.realized-one-node.json": "acnp.platform-samelabels.after-n1.yaml",
    "status.realized-both-nodes.json": "acnp.platform-samelabels.after-n2.yaml",
    "status.failure.json": "",
    "status.failure-other-node-ok.json": "acnp.with-groups.failure.yaml",
    "status.old-generation.json": "acnp.emergency-drop.old-generation.yaml",
}
"""What was posted, and the policy that was shown after it: of one recording, whose answers do not show their order."""
pytestmark = pytest.mark.skipif(
    not all((AGENT / name).is_file() for name in STEPS), reason="ANTREA_GOLDEN names no such steps of agents"
)


def posted(name: str) -> NetworkPolicyStatus:
    words = shlex.split((AGENT / name).read_text().partition("\n")[0])
    return msgspec.json.decode(words[words.index("--data-binary") + 1], type=NetworkPolicyStatus)


def shown(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((AGENT / name).read_text())
    return found


def test_statuses_after_each_report_are_upstreams() -> None:
    facts, engine = world()
    # its second generation, as it was by then
    (one,) = (one for one in of_kind("ClusterNetworkPolicy") if one["metadata"]["name"] == "emergency-drop")
    later = shown("acnp.emergency-drop.old-generation.yaml")
    assert later["metadata"]["generation"] == one["metadata"]["generation"] + 1
    (row,) = rows_of(later)
    facts.put(row)
    said = {entry.path: entry for entry in engine.plan().put if isinstance(entry, Status)}
    for report, policy in STEPS.items():
        record_report(facts, posted(report))
        said |= {entry.path: entry for entry in engine.plan().put if isinstance(entry, Status)}
        if not policy:
            continue
        wanted = shown(policy)
        status = said[f"/apis/crd.antrea.io/v1beta1/clusternetworkpolicies/{wanted['metadata']['name']}"]
        theirs = wanted["status"]
        conditions = [{**one, "lastTransitionTime": None} for one in theirs.pop("conditions")]
        fields = dict(status.fields)
        own = {"realizedGeneration": theirs["observedGeneration"]} if theirs["phase"] == "Realized" else {}
        assert fields == theirs | own, report
        ours = [
            json.loads(msgspec.json.encode(condition)) | {"lastTransitionTime": None}
            for condition in status.conditions
            if condition.status
        ]
        assert ours == conditions, report
