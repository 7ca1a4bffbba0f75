"""Each recording of upstream's controller ($ANTREA_GOLDEN) is replayed by a test, or it is said here why not.

What kubectl printed of an answer (tables, `describe`, `-o yaml`) is kubectl's; the answer itself is compared. A row ends when
the feature that it waits for is built.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from antrea.features.network_policy.tier import DEFAULT_TIERS

ROOT = Path(__file__).parents[2]
RAW = Path(os.environ.get("ANTREA_GOLDEN", "/nowhere")) / "raw"
pytestmark = pytest.mark.skipif(not RAW.is_dir(), reason="ANTREA_GOLDEN names no recorded answers")


class Row(NamedTuple):
    """Recordings by pattern, the test that replays them ("" for none), and what there is to say."""

    recordings: str
    test: str
    why: str = ""


PRINTED = "kubectl's view of an answer that is compared"
ROWS = (
    # replayed
    Row(r"reject/.*", "tests/parity/test_parity_admission.py"),
    Row(r"reject/.*", "tests/lab/test_lab_admission_parity.py", "through a real API server"),
    Row(r"apply/(2|3|40|41|5|6).*", "tests/lab/test_lab_admission_parity.py"),
    Row(r"webhook/.*", "tests/parity/test_parity_admission.py"),
    Row(r"antctl(-extra|-inpod|-help|-help-in-agent|-help-in-controller)?/.*", "tests/parity/test_parity_antctl.py"),
    Row(r"changes/p\d\.(cmd|pools|egresses).*", "tests/parity/test_parity_pools.py"),
    Row(r"(alpha-)?controlplane/(?!supportbundle)\w+\.(json|Table\.json)", "tests/parity/test_parity_api.py"),
    Row(r"(alpha-)?controlplane/.*\.json", "tests/parity/test_parity_front.py"),
    Row(r"(alpha-)?controlplane/\w+\.one\.yaml", "tests/parity/test_parity_front.py"),
    Row(r"controlplane/(?!supportbundle)\w+\.json", "tests/parity/test_parity_policy.py"),
    Row(r"discovery/(aggregated.*|controlplane.*|system.*|group\.controlplane.*)", "tests/parity/test_parity_api.py"),
    Row(r"evaluation/(?!hostpod).*", "tests/parity/test_parity_policy.py"),
    Row(r"explain/(crd.*)", "tests/lab/test_lab_crds.py"),
    Row(r"fresh/tiers\.yaml", "tests/parity/test_parity_recordings.py"),
    Row(r"bootstrap/(apiservices|validatingwebhook)\.yaml", "tests/parity/test_parity_recordings.py"),
    Row(r"get/(?!supportbundle|ippools|traceflows|packet|nodelatency|bgp|traffic|external(nodes|entities)).*\.yaml",
        "tests/parity/test_parity_policy.py", "computed from them; of statuses, those of policies and groups"),
    Row(r"get/(pods|services|nodes).*", "tests/parity/test_parity_policy.py"),
    Row(r"(get|alpha|agent|fresh)/[\w-]+\.(table|wide)\.txt", "tests/lab/test_lab_crds.py",
        "columns and cells of every kind, of the objects in tests/golden/crd"),
    Row(r"groups/.*\.json", "tests/parity/test_parity_front.py"),
    Row(r"http/(?!metrics).*", "tests/parity/test_parity_front.py"),
    Row(r"http/metrics.*", "tests/parity/test_parity_metrics.py"),
    Row(r"openapi/.*", "tests/parity/test_parity_api.py"),
    Row(r"stats/.*(json|one\.yaml|miss\.txt)", "tests/parity/test_parity_front.py",
        "of policies: counted from the recorded policies and the reports that were posted"),
    Row(r"stats/.*\.table\.txt", "tests/parity/test_parity_api.py"),
    Row(r"system/.*\.json", "tests/parity/test_parity_front.py"),
    Row(r"watch/(\w+(\.node-n1)?\.jsonl|steps\.txt)", "tests/parity/test_parity_watch.py"),
    Row(r"agent/status\..*", "tests/parity/test_parity_front.py"),
    Row(r"agent/(status|acnp)\..*", "tests/parity/test_parity_realization.py"),
    Row(r"agent/agentinfo.*", "tests/lab/test_lab_info.py", "there, agents make the object, which upstream's refuses to"),
    # not replayed
    Row(r"(controlplane|alpha-controlplane|groups|stats|system)/.*\.(txt|yaml)", "", PRINTED),
    Row(r"explain/controlplane.*", "", "kubectl's view of OpenAPI, of which every field is compared; words are our own"),
    Row(r"describe/.*", "", PRINTED + "; statuses of pools and Egresses are in changes/"),
    Row(r"get-after-watch/.*", "", PRINTED),
    Row(r"(fresh|get|alpha)/antreacontrollerinfos\.yaml", "", "the object of system/controllerinfos.json, as a CRD"),
    Row(r"agent/(antreaagentinfos\.yaml|egress.*|annp.*)", "", "what the recorder, in an agent's place, wrote itself"),
    Row(r"watch/addressgroups\.(bookmarks|rv0)\.jsonl", "", "the stream of addressgroups.jsonl: upstream's looks at neither"
        " parameter; that ours does not is in tests/unit/outside/aggregated/test_aggregated_store.py"),
    Row(r"watch/networkpolicies\.table\.jsonl", "", "the same events as Tables; their form is in"
        " tests/unit/outside/aggregated/test_aggregated_store.py"),
    Row(r"discovery/(api-resources\.txt|apis\.antrea\.json|(group\.)?crd.*)", "", "made by kube-apiserver of definitions,"
        " which are compared in tests/parity/test_parity_crd.py"),
    Row(r"evaluation/hostpod.*", "", "a Pod in its Node's network is in no group, so no rule has it as its peer; upstream's"
        " answers as if it were, against what its agents do"),
    Row(r"bootstrap/(secret|cm|list|serving|apiservices\.txt|crd).*", "", "keys and certificates of that day; what"
        " is in ours is in tests/process/outside/test_outside_serving_certificate.py and test_controller_certificates.py"),
    Row(r"get/(events|namespaces).*", "", "of kubelets; upstream's controller tells no Events"),
    Row(r"apply/gate-off-.*", "", "upstream answers that a path is not found; ours names the gate, tests/lab/test_lab_admission.py"),
    # features that are not built
    Row(r"apply/(42|7).*", "", "gates that cannot be turned on here yet; what is refused is in reject/"),
    Row(r"apply/(00|10).*", "", "of Kubernetes, which concern no webhook but the one of labels"),
    Row(r"(alpha|alpha2|get)/(ippool|sts-|egressless).*", "", "AntreaIPAM"),
    Row(r"(alpha\d?|alpha-watch|alpha-controlplane|controlplane|get)/(supportbundle|sbc|clusterroles-secret|create|delete).*",
        "", "SupportBundleCollection"),
    Row(r"(alpha|get)/(externalnodes|externalentities).*", "", "ExternalNode"),
    Row(r"alpha/(clusternetworkpolicies\.yaml)", "", "L7NetworkPolicy"),
    Row(r"alpha/(featuregates\.json|antctl\.get-featuregates\.txt)", "", "gates that cannot be turned on here yet; the"
        " form is in http/ and antctl/"),
    Row(r"get/(traceflows|packetcaptures|nodelatencymonitors|bgppolicies|trafficcontrols).*yaml", "", "Traceflow,"
        " PacketCapture, NodeLatencyMonitor, BGPPolicy, TrafficControl"),
    Row(r"changes/p\d\.svc\.txt", "", "ServiceExternalIP"),
)  # fmt: skip


def names() -> list[str]:
    return sorted(str(file.relative_to(RAW)) for file in RAW.rglob("*") if file.is_file())


def test_every_recording_is_replayed_or_has_its_reason() -> None:
    found = names()
    assert len(found) > 700
    assert [name for name in found if not any(re.fullmatch(row.recordings, name) for row in ROWS)] == []
    for row in ROWS:
        assert any(re.fullmatch(row.recordings, name) for name in found), row
        assert (ROOT / row.test).is_file() if row.test else row.why, row


def documents(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load((RAW / name).read_text())["items"]
    return found


def test_default_tiers_are_upstreams() -> None:
    theirs = {one["metadata"]["name"]: one["spec"] for one in documents("fresh/tiers.yaml")}
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
    for service in documents("bootstrap/apiservices.yaml"):
        theirs = {key: value for key, value in service["spec"].items() if key != "caBundle"}
        del theirs["service"]["port"]
        mine = ours["APIService", service["metadata"]["name"]]
        assert (mine["spec"], mine["metadata"]["labels"]) == (theirs, service["metadata"]["labels"])
    recorded = yaml.safe_load((RAW / "bootstrap/validatingwebhook.yaml").read_text())
    mine = ours["ValidatingWebhookConfiguration", recorded["metadata"]["name"]]
    hooks = {one["name"]: hook(one) for one in mine["webhooks"]}
    for one in recorded["webhooks"]:
        if one["name"] in ONLY_UPSTREAM:
            continue
        theirs = hook(one)
        for rule in theirs["rules"]:
            rule["apiVersions"] = [version for version in rule["apiVersions"] if version != "v1alpha2"]
        assert hooks[one["name"]] == theirs
