"""Our webhooks decide as upstream's controller did when it was recorded ($ANTREA_GOLDEN), word for word but for the path.

Deliberate differences:
- before upstream's sentence stands the path of the field that must change, `PATH: `, but for kinds in WHOLE, whose message is upstream's;
- where nothing is to be mutated we send no patch, upstream sends `null` (its Go nil slice): nothing changes with both;
- WORDS: sentences that upstream's main has changed since the recording (v2.3.2); ours are main's;
- ALLOWED: what upstream has in its API and refuses as not supported yet is built here;
- a body without a request made v2.3.2 panic; we answer `request: is missing`.
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from difference import answer_in
from recording import GOLDEN, RAW, answers

from antrea.apis.null import without_nulls
from antrea.controller.webhook.admission import AdmissionContext, Listing, review
from antrea.controller.webhook.review_thread import STRANGER
from antrea.controller.webhook.runtime import conversion_routes
from antrea.engine import Facts
from antrea.facts.fact import each
from antrea.features.framework.admission import Installation
from antrea.features.framework.gate import GATES
from antrea.features.network_policy.tier import DEFAULT_TIERS
from antrea.features.registry.webhooks import WATCHED, WEBHOOKS

if TYPE_CHECKING:
    from antrea.apis.admission import AdmissionResponse, UserInfo
    from antrea.features.framework.admission import Webhook

pytestmark = pytest.mark.skipif(not GOLDEN.is_dir(), reason="ANTREA_GOLDEN names no recorded answers")
CASES = sorted(path.stem for path in (GOLDEN / "inputs" / "reject").glob("*.yaml"))
WEBHOOK_CASES = sorted(path.stem for path in (GOLDEN / "inputs" / "webhook").glob("*.json"))
WORDS = (
    # ranges are described the same way for both kinds of pools since they share their checks
    (r"existing IPRanges \[(.*)\] cannot be deleted", r"existing IPRanges \[{0}\] cannot be updated or deleted"),
    (r"(range \[.*\] overlaps with range \[.*\]) of pool (.*)", "{0} of ExternalIPPool {1}"),
    (
        "Range is invalid. IP version of range (.*) differs from gateway IP version",
        r"range \[{0}\] must be a strict subset of the subnet .*",
    ),
    (
        "Range is invalid. CIDR (.*) is not contained within subnet (.*)",
        r"range \[{0}\] must be a strict subset of the subnet {1}",
    ),
    (r"IPRanges \[(.*),(.*)\] overlap", r"range \[{1}\] overlaps with range \[{0}\]"),
    # a pool may have grown before it was recorded
    (r"existing IPRanges \[.*\] cannot be updated or deleted", r"existing IPRanges \[.*\] cannot be updated or deleted"),
    # main has nodeSelector
    ("At most one of podSelector, (externalEntitySelector, .* for a ClusterGroup)", "At most one of podSelector, nodeSelector, {0}"),
)  # fmt: skip
"""Upstream's recorded sentences (of v2.3.2), and what stands there instead: those of main, which were reworded since."""
ALLOWED = "spec.egressIPs is not supported yet"
WHOLE = ("Traceflow",)
"""Kinds whose whole message upstream's own tests compare."""
PATH = re.compile(r"[a-z][A-Za-z0-9]*([.][a-zA-Z0-9]+|\[[^\]]+\])*")


class Cluster:
    """The recorded cluster: facts for decisions, and what they look up."""

    def __init__(self) -> None:
        documents = [
            document
            for file in sorted((GOLDEN / "inputs").glob("*.yaml"))
            for document in yaml.safe_load_all(file.read_text())
            if document
        ]
        documents += [
            {"kind": "Tier", "apiVersion": "crd.antrea.io/v1beta1", **msgspec.to_builtins(tier)}
            for tier in DEFAULT_TIERS
        ]
        self.objects = {collection(one, one["metadata"].get("namespace", "")): one for one in documents}
        for one in collections():
            self.objects[collection(one, "")] = one
        self.facts = Facts()
        self.facts.put(Installation(gates=frozenset(gate.name for gate in GATES)))
        for watched in WATCHED:
            for path, one in self.objects.items():
                if re.sub(r"/namespaces/[^/]+", "", path).rpartition("/")[0] == watched.path:
                    rows = each(watched.row(msgspec.convert(one, watched.kind)))
                    assert rows
                    for row in rows:
                        self.facts.put(row)
            self.facts.synced(watched.fact)

    async def find(self, path: str, kind: type) -> Any:
        return msgspec.convert(self.objects[path], kind) if path in self.objects else None

    async def all(self, path: str, kind: type) -> Listing:
        there = [one for at, one in self.objects.items() if at.rpartition("/")[0] == path]
        return Listing([msgspec.convert(one, kind) for one in there])

    async def may_get_secret(self, user: UserInfo, namespace: str, name: str) -> bool:
        return user.username == "kubernetes-admin"


def collections() -> list[dict[str, Any]]:
    """Support bundle collections that had started, as they were shown; the last answer about each counts."""
    shown = (one for folder in sorted(RAW.glob("alpha*")) for one in answers(folder.name))
    found = [yaml.safe_load(one.body) for one in shown if one.words[-2:] == ("-o", "yaml") and not one.code]
    kinds = [one for one in found if isinstance(one, dict) and one.get("kind") == "SupportBundleCollection"]
    return sorted(kinds, key=lambda one: int(one["metadata"]["resourceVersion"]))


PLURALS = {
    "ClusterNetworkPolicy": "clusternetworkpolicies",
    "NetworkPolicy": "networkpolicies",
    "Egress": "egresses",
    "StorageClass": "storageclasses",
}


def collection(one: dict[str, Any], namespace: str) -> str:
    version, kind = one["apiVersion"], one["kind"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{within}/{PLURALS.get(kind, kind.lower() + 's')}/{one['metadata']['name']}"


def merged(old: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    base = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            base.pop(key, None)
        else:
            base[key] = merged(base.get(key), value)
    return base


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return Cluster()


def asked(cluster: Cluster, case: str) -> dict[str, Any]:
    """The admission request that the API server made of the case's manifest."""
    text = (GOLDEN / "inputs" / "reject" / f"{case}.yaml").read_text()
    step = text.splitlines()[0].removeprefix("# case ").split(": ", 1)[1]
    body = yaml.safe_load(text)
    if step == "create":
        return {"operation": "CREATE", "object": body, "oldObject": None}
    *verb, resource, name = step.split()
    old = next((one for path, one in cluster.objects.items() if path.endswith(f"/{resource}/{name}")), None)
    if old is None:
        pytest.skip(f"no {resource} {name} was recorded, which {case} changes")
    if verb == ["delete"]:
        return {"operation": "DELETE", "object": None, "oldObject": old}
    return {"operation": "UPDATE", "object": merged(old, body), "oldObject": old}


async def decided(cluster: Cluster, webhook: Webhook, request: dict[str, Any]) -> AdmissionResponse:
    body = {"request": {"uid": "u", "userInfo": {"username": "kubernetes-admin"}, **request}}
    return await review(
        webhook, AdmissionContext(cluster.facts, cluster), json.dumps(body).encode(), STRANGER
    )


async def through_all(cluster: Cluster, request: dict[str, Any]) -> AdmissionResponse | None:
    """The last answer of the webhooks that the API server would ask, mutating ones first; None if there is none."""
    one = request.get("object") or request["oldObject"]
    plural = PLURALS.get(one["kind"], one["kind"].lower() + "s")
    answer = None
    for webhook in sorted(WEBHOOKS, key=lambda webhook: webhook.mutate is None):
        group, version = one["apiVersion"].split("/")
        called = (webhook.group, webhook.resource) == (group, plural) and version in webhook.versions
        if not called or request["operation"] not in webhook.operations:
            continue
        answer = await decided(cluster, webhook, request)
        for patch in json.loads(answer.patch or b"[]"):
            *parents, last = patch["path"].strip("/").split("/")
            target = request["object"]
            for step in parents:
                target = target[int(step)] if step.isdecimal() else target[step]
            target[last] = patch["value"]
    return answer


@pytest.mark.parametrize("case", CASES)
async def test_what_upstream_refused_is_refused_with_its_words(cluster: Cluster, case: str) -> None:
    recorded = (GOLDEN / "raw" / "reject" / f"{case}.txt").read_text()
    denied = re.search(r'^Error.*admission webhook "(\S+)" denied the request: (.*)$', recorded, re.MULTILINE)
    schema = "is invalid: " in recorded and not denied
    given = without_nulls(asked(cluster, case))
    kind = (given.get("object") or given["oldObject"])["kind"]
    answer = await through_all(cluster, given | {"uid": "u"})
    if denied and denied.group(2) == ALLOWED:
        assert answer
        assert answer.allowed
    elif denied:
        assert answer is not None
        assert answer.status is not None
        assert not answer.allowed
        why = answer.status.message
        if kind not in WHOLE:
            path, _, why = why.partition(": ")
            assert PATH.fullmatch(path), path
        assert re.fullmatch(words(denied.group(2)), why), why
    elif schema:
        # webhooks that change objects are asked before the schema, and must leave the word to it
        assert await refusing_before_the_schema(cluster, without_nulls(asked(cluster, case))) == []
    else:
        assert answer is None or answer.allowed


def words(theirs: str) -> str:
    """A pattern of our sentence where upstream's is `theirs`."""
    for known, ours in WORDS:
        if found := re.fullmatch(known, theirs):
            return ours.format(*(re.escape(part) for part in found.groups()))
    return re.escape(theirs)


async def refusing_before_the_schema(cluster: Cluster, request: dict[str, Any]) -> list[str]:
    one = request.get("object") or request["oldObject"]
    plural = PLURALS.get(one["kind"], one["kind"].lower() + "s")
    group, version = one["apiVersion"].split("/")
    return [
        webhook.name
        for webhook in WEBHOOKS
        if webhook.mutate
        and (webhook.group, webhook.resource) == (group, plural)
        and version in webhook.versions
        if request["operation"] in webhook.operations
        if not (await decided(cluster, webhook, request)).allowed
    ]


def normal(answer: dict[str, Any]) -> dict[str, Any]:
    """`answer` without the deliberate differences."""
    response = answer["response"]
    if response.get("patch"):
        response["patch"] = json.loads(base64.b64decode(response["patch"]))
    if not response.get("patch"):
        response.pop("patch", None)
        response.pop("patchType", None)
    if "status" in response:
        # Go writes it, empty as it is
        response["status"].pop("metadata", None)
        path, _, why = response["status"]["message"].partition(": ")
        if PATH.fullmatch(path):
            response["status"]["message"] = why
    return answer


@pytest.mark.parametrize("case", [case for case in WEBHOOK_CASES if not case.startswith("convert")])
async def test_a_posted_review_gets_upstreams_answer(cluster: Cluster, case: str) -> None:
    recorded = (GOLDEN / "raw" / "webhook" / f"{case}.txt").read_text()
    body = (GOLDEN / "inputs" / "webhook" / f"{case}.json").read_bytes()
    path = re.search(r"https://[^/]+(/\S+)", recorded)
    assert path
    webhook = next((webhook for webhook in WEBHOOKS if webhook.path == path.group(1)), None)
    assert webhook is not None, f"no webhook of ours is at {path.group(1)}"
    answer = await review(webhook, AdmissionContext(cluster.facts, cluster), body, STRANGER)
    ours = {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "response": json.loads(msgspec.json.encode(answer)),
    }
    if case == "validate-not-json":
        assert ours["response"] == {
            "allowed": False,
            "status": {"message": "request: is missing"},
        }
        return
    assert not_built_removed(normal(ours)) == not_built_removed(normal(answer_in(recorded, case)))


@pytest.mark.parametrize("case", [case for case in WEBHOOK_CASES if case.startswith("convert")])
async def test_a_posted_conversion_gets_upstreams_answer(case: str) -> None:
    recorded = (GOLDEN / "raw" / "webhook" / f"{case}.txt").read_text()
    theirs = answer_in(recorded, case)
    app = web.Application()
    for path, handler in conversion_routes().items():
        app.router.add_post(path, handler)
    async with TestClient(TestServer(app)) as client:
        body = (GOLDEN / "inputs" / "webhook" / f"{case}.json").read_bytes()
        answer = await client.post("/convert/ippool", data=body, headers={"Content-Type": "application/json"})
        ours = await answer.json()
    # Go writes an empty request back, and empty metadata
    theirs.pop("request")
    theirs["response"]["result"].pop("metadata")
    assert ours == theirs


def not_built_removed(answer: dict[str, Any]) -> dict[str, Any]:
    """Our warning that a feature is not built yet goes as features are built; labels of any length are logged on Nodes."""
    response = answer["response"]
    left_out = ("is not built yet", "LogLabels for Node NetworkPolicies are limited")
    warnings = [text for text in response.pop("warnings", []) if not any(each in text for each in left_out)]
    return {**answer, "response": {**response, **({"warnings": warnings} if warnings else {})}}
