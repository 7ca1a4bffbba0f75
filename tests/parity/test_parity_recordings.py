"""Each folder of recordings of upstream's controller ($ANTREA_GOLDEN) is replayed by tests, or it is said here why not.

A folder is a phase of a recording; what its files are called, and how many they are, is the recording's own affair.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from recorded_world import needs_recordings
from recording import RAW, answers

from antrea.features.network_policy.tier import DEFAULT_TIERS

ROOT = Path(__file__).parents[2]
pytestmark = needs_recordings


class Row(NamedTuple):
    """Folders by pattern, the tests that replay them ("" for none), and what there is to say."""

    folders: str
    tests: str
    why: str = ""


ROWS = (
    Row(
        "fresh|get|get-after-watch|controlplane|groups|system|stats|http|evaluation|agent|changes", "tests/lab/test_lab_replay.py",
        "applied and posted again, to our controller on a real kube-apiserver; tests/lab/replay_difference.py has what differs",
    ),
    Row("discovery|openapi", "tests/parity/test_parity_api.py", "definitions: tests/parity/test_parity_crd.py"),
    Row("http", "tests/parity/test_parity_metrics.py", "the names of metrics"),
    Row("antctl.*", "tests/parity/test_parity_antctl.py"),
    Row("reject|webhook", "tests/parity/test_parity_admission.py"),
    Row("reject|apply", "tests/lab/test_lab_admission_parity.py", "through a real API server"),
    Row("changes", "tests/parity/test_parity_pools.py", "addresses of Services: not built"),
    Row("get|controlplane|groups|evaluation|watch", "tests/parity/test_parity_policy.py", "what is computed of the recorded objects"),
    Row("watch", "tests/parity/test_parity_watch.py"),
    Row("agent", "tests/parity/test_parity_realization.py", "AntreaAgentInfo: tests/lab/test_lab_info.py"),
    Row("fresh|bootstrap", "tests/parity/test_parity_recordings.py", "keys and certificates are of their day"),
    Row("explain", "tests/lab/test_lab_crds.py", "of definitions; of our API it shows OpenAPI, with words of our own"),
    Row("describe", "", "kubectl's view of objects and statuses that are compared"),
    Row(
        r"alpha.*", "tests/parity/test_parity_support_bundle.py",
        "the rest of gates that are not built: AntreaIPAM, ExternalNode, L7NetworkPolicy",
    ),
)  # fmt: skip


def test_every_folder_of_recordings_is_replayed_or_has_its_reason() -> None:
    found = sorted(file.name for file in RAW.iterdir() if file.is_dir())
    assert found
    assert [name for name in found if not any(re.fullmatch(row.folders, name) for row in ROWS)] == []
    for row in ROWS:
        assert (ROOT / row.tests).is_file() if row.tests else row.why, row


def documents(folder: str, kind: str) -> list[dict[str, Any]]:
    """Objects of a kind that a folder shows in YAML, in lists or alone."""
    shown = [
        yaml.safe_load(one.body)
        for one in answers(folder)
        if one.words[-2:] == ("-o", "yaml") and not one.code
    ]
    found = [item for one in shown for item in one.get("items", [one])]
    return [one for one in found if one["kind"] == kind]


def test_default_tiers_are_upstreams() -> None:
    theirs = {one["metadata"]["name"]: one["spec"] for one in documents("fresh", "Tier")}
    assert {
        tier.metadata.name: {"priority": tier.spec.priority, "description": tier.spec.description}
        for tier in DEFAULT_TIERS
    } == theirs


ONLY_UPSTREAM = {"anpvalidator.antrea.io", "banpvalidator.antrea.io"}
"""Of AdminNetworkPolicy, which upstream's main has replaced."""
USUAL = {"failurePolicy": "Fail", "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}
"""What the API server fills in."""


def hook(one: dict[str, Any]) -> dict[str, Any]:
    client = {key: value for key, value in one["clientConfig"]["service"].items() if key != "port"}
    return USUAL | one | {"clientConfig": client}


def test_services_and_webhooks_of_the_manifest_are_upstreams() -> None:
    """But for versions of a kind beside the stored one: the API server converts what is sent to a webhook."""
    ours: dict[tuple[str, str], Any] = {
        (one["kind"], one["metadata"]["name"]): one
        for one in yaml.safe_load_all((ROOT / "build/yamls/antrea.yml").read_text())
        if one
    }
    for service in documents("bootstrap", "APIService"):
        theirs = {key: value for key, value in service["spec"].items() if key != "caBundle"}
        del theirs["service"]["port"]
        mine = ours["APIService", service["metadata"]["name"]]
        assert (mine["spec"], mine["metadata"]["labels"]) == (theirs, service["metadata"]["labels"])
    recorded = documents("bootstrap", "ValidatingWebhookConfiguration")
    mine = [ours[one["kind"], one["metadata"]["name"]] for one in recorded]
    hooks = {one["name"]: hook(one) for each in mine for one in each["webhooks"]}
    for one in (one for each in recorded for one in each["webhooks"]):
        if one["name"] in ONLY_UPSTREAM:
            continue
        theirs = hook(one)
        for rule in theirs["rules"]:
            rule["apiVersions"] = [version for version in rule["apiVersions"] if version != "v1alpha2"]
        assert hooks[one["name"]] == theirs
