"""Webhooks over HTTP: what is a request at all, who decides, and that there is always an answer."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from antrea.controller.webhook import admission
from antrea.controller.webhook.admission import MAX_BODY, AdmissionContext, Listing, review, routes
from antrea.controller.webhook.review_thread import STRANGER
from antrea.controller.webhook.runtime import conversion_routes
from antrea.engine import Facts
from antrea.errors import Refused, Unavailable
from antrea.features.framework.admission import Installation, gate_steps, wanted_gates
from antrea.features.framework.gate import GATES
from antrea.features.registry import admission_document
from antrea.features.registry.webhook_configuration import configurations
from antrea.features.registry.webhooks import WATCHED, WEBHOOKS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from antrea.apis.admission import AdmissionResponse, UserInfo
    from antrea.features.framework.admission import Webhook

Client = TestClient[web.Request, web.Application]
ALL_GATES = frozenset(gate.name for gate in GATES)


class Empty:
    """An API server that has nothing and allows nothing."""

    async def find(self, path: str, kind: type) -> Any:
        return None

    async def all(self, path: str, kind: type) -> Listing:
        return Listing()

    async def may_get_secret(self, user: UserInfo, namespace: str, name: str) -> bool:
        return False


class Away:
    """An API server that does not answer."""

    def __init__(self, why: Exception | None) -> None:
        self.why = why

    async def find(self, path: str, kind: type) -> Any:
        if self.why:
            raise self.why
        await asyncio.Event().wait()

    async def all(self, path: str, kind: type) -> Listing:
        return Listing((await self.find(path, kind),))

    async def may_get_secret(self, user: UserInfo, namespace: str, name: str) -> bool:
        return bool(await self.find("", object))


def listed(gates: frozenset[str] = ALL_GATES) -> Facts:
    facts = Facts()
    facts.put(Installation(gates=gates))
    for watched in WATCHED:
        facts.synced(watched.fact)
    return facts


@asynccontextmanager
async def served(facts: Facts | None = None) -> AsyncIterator[Client]:
    app = web.Application()
    for path, handler in {**routes(WEBHOOKS, facts or listed(), Empty()), **conversion_routes()}.items():
        app.router.add_post(path, handler)
    async with TestClient(TestServer(app)) as client:
        yield client


def webhook(path: str) -> Webhook:
    return next(one for one in WEBHOOKS if one.path == path)


def body(one: Any = None, **request: Any) -> bytes:
    asked = {"uid": "u", "operation": "CREATE", "object": one, **request}
    return json.dumps({"kind": "AdmissionReview", "request": asked}).encode()


TIER = {"metadata": {"name": "t"}, "spec": {"priority": 255}}
POLICY: dict[str, Any] = {
    "metadata": {"name": "p"},
    "spec": {"priority": 1, "appliedTo": [{"podSelector": {}}], "tier": None, "ingress": None},
}


async def told(path: str, sent: bytes, facts: Facts | None = None, outside: Any = None) -> AdmissionResponse:
    return await review(
        webhook(path), AdmissionContext(facts or listed(), outside or Empty()), sent, STRANGER
    )


async def test_a_review_is_answered_under_its_uid() -> None:
    async with served() as client:
        answer = await client.post(
            "/validate/tier", data=body(TIER), headers={"Content-Type": "application/json"}
        )
        text = await answer.json()
    assert (answer.status, answer.content_type, text) == (
        200,
        "application/json",
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": {
                "uid": "u",
                "allowed": False,
                "status": {"message": "spec.priority: tier t priority 255 is reserved"},
            },
        },
    )


@pytest.mark.parametrize(
    ("sent", "content", "status", "text"),
    [
        (b"", "application/json", 400, "empty request body"),
        (b"", "text/plain", 400, "empty request body"),
        (b"{}", "text/plain", 415, "invalid Content-Type, expected `application/json`"),
        (b" " * (MAX_BODY + 1), "application/json", 413, f"more than {MAX_BODY} bytes"),
    ],
)
async def test_what_is_no_request_gets_an_http_error(
    sent: bytes, content: str, status: int, text: str
) -> None:
    async with served() as client:
        answer = await client.post("/validate/tier", data=io.BytesIO(sent), headers={"Content-Type": content})
        assert (answer.status, await answer.text()) == (status, text)


@pytest.mark.parametrize("path", ["/validate/tier", "/mutate/acnp"])
@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"{", "the AdmissionReview is not understood: Input data was truncated"),
        (b"[]", "the AdmissionReview is not understood: Expected `object`, got `array`"),
        (b"{}", "request: is missing"),
        (body(None), "object: is missing in a review of CREATE"),
        (body({"metadata": 7, "spec": 7}, operation="MOVE"), "the AdmissionReview is not understood: Invalid enum value 'MOVE' - at `$.request.operation`"),
    ],
)  # fmt: skip
async def test_a_body_that_is_no_review_is_denied_and_told_why(path: str, sent: bytes, why: str) -> None:
    answer = await told(path, sent)
    assert answer.status
    assert (answer.allowed, answer.status.message) == (False, why)


async def test_a_field_of_another_type_is_named() -> None:
    answer = await told("/validate/acnp", body({**POLICY, "spec": {**POLICY["spec"], "tier": 7}}))
    assert answer.status
    assert answer.status.message == "spec.tier: Expected `str`, got `int`"


async def test_a_webhook_that_may_change_an_object_can_warn_of_what_only_it_sees() -> None:
    spec = {"appliedTo": {}, "egressIP": "1.1.1.1"}
    answer = await told(
        "/mutate/egress", body({"metadata": {"name": "e"}, "spec": spec, "status": {"egressNode": "node-2"}})
    )
    (warning,) = answer.warnings
    assert (answer.allowed, answer.patch, warning.split(":")[0]) == (True, b"", "status")


async def test_a_webhook_that_only_warns_leaves_what_is_malformed_to_the_schema() -> None:
    half = {"metadata": {"name": "e"}, "spec": {"bandwidth": {"rate": "1M"}}}
    answer = await told("/mutate/egress", body(half))
    assert (answer.allowed, answer.warnings) == (True, ())
    assert not (await told("/validate/egress", body(half))).allowed


async def test_null_is_absence() -> None:
    assert (await told("/validate/acnp", body(POLICY))).allowed


async def test_a_gate_that_is_off_is_named_and_one_that_is_not_built_is_warned_of() -> None:
    pool = {
        "metadata": {"name": "p"},
        "spec": {"ipRanges": [], "subnetInfo": {"gateway": "10.0.0.1", "prefixLength": 8}},
    }
    off = await told("/validate/ippool", body(pool), listed(wanted_gates({})))
    on = await told("/validate/ippool", body(pool), listed(wanted_gates({"AntreaIPAM": True})))
    built = {gate.name for gate in GATES if gate.built}
    later = "" if "AntreaIPAM" in built else " (the feature is not built yet)"
    assert off.status
    assert off.status.message == (
        f"kind: ippools need the feature gate AntreaIPAM, which is off{later}: see featureGates"
    )
    warned = "the feature AntreaIPAM is not built yet: the object is kept, but nothing acts on it"
    assert (on.allowed, on.warnings) == (True, () if "AntreaIPAM" in built else (warned,))


def test_gates_are_those_of_configuration_and_upstream_built_or_not() -> None:
    assert "AntreaPolicy" in wanted_gates({})
    assert "AntreaPolicy" not in wanted_gates({"AntreaPolicy": False})
    assert "AntreaIPAM" in wanted_gates({"AllAlpha": True})


async def test_a_deletion_is_not_told_that_the_object_is_kept() -> None:
    answer = await told("/validate/tier", body(None, operation="DELETE", oldObject=TIER))
    assert (answer.allowed, answer.warnings) == (True, ())


GATED = sorted({one.path for one in WEBHOOKS if one.gates and "DELETE" in one.operations})


@pytest.mark.parametrize("path", GATED)
async def test_what_is_stored_can_be_deleted_while_its_gate_is_off(path: str) -> None:
    subnet, auth = {"gateway": "10.0.0.1", "prefixLength": 8}, {"authType": "BearerToken"}
    spec = {
        "priority": 7,
        "ipRanges": [],
        "subnetInfo": subnet,
        "fileServer": {"url": ""},
        "authentication": auth,
    }
    stored = {"metadata": {"name": "t"}, "spec": spec}
    answer = await told(path, body(None, operation="DELETE", oldObject=stored), listed(frozenset()))
    assert (answer.allowed, answer.status) == (True, None)


@pytest.mark.parametrize("path", sorted({one.path for one in WEBHOOKS if one.gates}))
async def test_metadata_can_change_while_the_gate_is_off_and_content_cannot(path: str) -> None:
    old = {"metadata": {"name": "t", "finalizers": ["shop/f"]}, "spec": {"priority": 7}}
    new = {"metadata": {"name": "t"}, "spec": {"priority": 7}}
    answer = await told(path, body(new, operation="UPDATE", oldObject=old), listed(frozenset()))
    assert (answer.allowed, answer.patch) == (True, b"")
    other = {**new, "spec": {"priority": 8}}
    answer = await told(path, body(other, operation="UPDATE", oldObject=old), listed(frozenset()))
    assert answer.status
    assert "which is off" in answer.status.message


async def test_a_finalizer_goes_from_what_would_be_refused_today() -> None:
    leaving = {"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    spec = {**POLICY["spec"], "tier": "gone"}
    old = {"metadata": {**leaving, "finalizers": ["shop/f"]}, "spec": spec}

    async def allowed(meta: dict[str, Any], spec: dict[str, Any]) -> bool:
        sent = body({"metadata": meta, "spec": spec}, operation="UPDATE", oldObject=old)
        return (await told("/validate/acnp", sent)).allowed

    assert await allowed(leaving, spec)
    assert not await allowed({"name": "p"}, spec)
    assert not await allowed(leaving, {**spec, "tier": "lost"})


def test_one_of_several_gates_is_enough() -> None:
    row = webhook("/validate/externalippool")
    assert [step.text for step in gate_steps(row, frozenset({"ServiceExternalIP"}))] in (  # type: ignore[union-attr]
        [],
        ["the feature ServiceExternalIP is not built yet: the object is kept, but nothing acts on it"],
    )


async def test_nothing_is_decided_before_its_facts_have_been_listed() -> None:
    facts = Facts()
    facts.put(Installation(gates=ALL_GATES))
    asked = asyncio.ensure_future(told("/validate/tier", body(TIER), facts))
    await asyncio.sleep(0)
    for kind in webhook("/validate/tier").reads:
        assert not asked.done()
        facts.synced(kind)
        await asyncio.sleep(0)
    answer = await asked
    assert answer.status
    assert (answer.status.message, facts.listeners) == ("spec.priority: tier t priority 255 is reserved", [])


async def test_a_watch_that_is_interrupted_holds_no_verdict_up() -> None:
    facts = listed()
    context = AdmissionContext(facts, Empty())
    said = []
    for _ in range(2):
        answer = await review(webhook("/validate/tier"), context, body(TIER), STRANGER)
        said.append(answer.status and answer.status.message)
        for kind in webhook("/validate/tier").reads:
            facts.lost(kind)
    assert said == ["spec.priority: tier t priority 255 is reserved"] * 2


class Fresh(Empty):
    """An API server that has a Tier, and a pool, that no watch has told of yet."""

    async def all(self, path: str, kind: type) -> Listing:
        ranges = {"ipRanges": [{"cidr": "10.0.0.0/8"}], "nodeSelector": {}}
        spec = {"priority": 7} if path.endswith("/tiers") else ranges
        return Listing((msgspec.convert({"metadata": {"name": "fresh"}, "spec": spec}, kind),))


async def test_what_must_be_unique_is_compared_with_what_is_there_now() -> None:
    tier = {"metadata": {"name": "t"}, "spec": {"priority": 7}}
    pool = {
        "metadata": {"name": "p"},
        "spec": {"ipRanges": [{"cidr": "10.9.0.0/30"}], "nodeSelector": {}},
    }
    said = []
    for path, one in (("/validate/tier", tier), ("/validate/externalippool", pool)):
        answer = await told(path, body(one), outside=Fresh())
        assert answer.status
        said.append(answer.status.message)
    assert said == [
        "spec.priority: tier t priority 7 overlaps with existing Tier",
        "spec.ipRanges[0]: range [10.9.0.0/30] overlaps with range [10.0.0.0/8] of ExternalIPPool fresh",
    ]


TRACE = {"metadata": {"name": "t"}, "spec": {"source": {"namespace": "n", "pod": "p"}}}


@pytest.mark.parametrize(
    ("why", "said"),
    [
        (Unavailable("no route"), "traceflowvalidator.antrea.io cannot decide now, try again: no route"),
        (Refused(["x"], "not allowed"), "traceflowvalidator.antrea.io cannot decide now, try again: not allowed"),
        (None, "traceflowvalidator.antrea.io could not decide within 0.05 s, try again"),
    ],
)  # fmt: skip
async def test_while_the_api_server_does_not_answer_the_user_is_told_to_try_again(
    why: Exception | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why is None:
        monkeypatch.setattr(admission, "SECONDS", 0.05)
    answer = await told("/validate/traceflow", body(TRACE), outside=Away(why))
    assert answer.status
    assert (answer.allowed, answer.status.message, answer.status.code) == (False, said, 503)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
FIELDS = [
    "metadata",
    "name",
    "namespace",
    "labels",
    "spec",
    "tier",
    "priority",
    "appliedTo",
    "ingress",
    "egress",
    "from",
    "to",
    "action",
    "ports",
    "port",
    "endPort",
    "protocols",
    "igmp",
    "groupAddress",
    "icmp",
    "l7Protocols",
    "http",
    "toServices",
    "ipBlock",
    "cidr",
    "except",
    "podSelector",
    "matchLabels",
    "namespaces",
    "sameLabels",
    "ipRanges",
    "start",
    "end",
    "subnetInfo",
    "gateway",
    "prefixLength",
    "nodeSelector",
    "egressIP",
    "externalIPPool",
    "bandwidth",
    "rate",
    "burst",
    "childGroups",
    "ipBlocks",
    "source",
    "destination",
    "pod",
    "fileServer",
    "hostPublicKey",
    "authentication",
    "authSecret",
    "secondaryNetwork",
    "ovsBridges",
    "physicalInterfaces",
    "allowedVLANs",
    "status",
    "conditions",
    "ipAddresses",
]
VALUES = st.sampled_from(
    [
        "",
        "10.0.0.0/8",
        "fd00::/64",
        "239.1.1.1",
        "Self",
        "Drop",
        "Pass",
        "x",
        "1-9",
        "500k",
        "%zz",
        "\u2028<&>",
    ]
)
OBJECTS = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 70000) | VALUES | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=6),
    max_leaves=30,
)
OPERATIONS = st.sampled_from(["CREATE", "UPDATE", "DELETE", "CONNECT"])
REVIEWS = st.fixed_dictionaries(
    {"request": st.fixed_dictionaries({"uid": st.just("u"), "operation": OPERATIONS, "object": OBJECTS, "oldObject": OBJECTS})}
)  # fmt: skip


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(tree=REVIEWS | JSON)
async def test_whatever_is_reviewed_gets_a_verdict_of_every_webhook(tree: Any) -> None:
    sent, facts = json.dumps(tree).encode(), listed()
    for one in WEBHOOKS:
        answer = await asyncio.wait_for(told(one.path, sent, facts), 30)
        assert answer.allowed or (answer.status is not None and answer.status.message), one.path


@settings(max_examples=200, deadline=None)
@given(sent=st.binary(max_size=64) | st.just(b'{"request":' * 5000) | st.just(b"[" * 90000))
async def test_whatever_is_sent_gets_a_verdict(sent: bytes) -> None:
    answer = await told("/validate/acnp", sent)
    assert not answer.allowed


async def test_an_object_of_great_depth_gets_a_verdict() -> None:
    deep = b'{"a":' * 800 + b"1" + b"}" * 800
    sent = b'{"request":{"uid":"u","operation":"CREATE","object":' + deep + b"}}"
    for one in WEBHOOKS:
        answer = await told(one.path, sent)
        assert answer.allowed or answer.status


def test_every_webhook_has_its_own_name_and_path() -> None:
    paths = [path for one in WEBHOOKS for path in (one.path, *one.aliases)]
    names = [one.name for one in WEBHOOKS]
    assert (len(set(paths)), len(set(names))) == (len(paths), len(names))


def test_configurations_are_upstreams() -> None:
    made = {one["metadata"]["name"]: one for one in configurations(WEBHOOKS, "kube-system")}
    assert set(made) == {"crdmutator.antrea.io", "labelsmutator.antrea.io", "crdvalidator.antrea.io"}
    assert made["crdvalidator.antrea.io"]["webhooks"][0] == {
        "name": "tiervalidator.antrea.io",
        "clientConfig": {"service": {"name": "antrea", "namespace": "kube-system", "path": "/validate/tier"}},
        "rules": [
            {
                "operations": ["CREATE", "UPDATE", "DELETE"],
                "apiGroups": ["crd.antrea.io"],
                "apiVersions": ["v1beta1"],
                "resources": ["tiers"],
                "scope": "Cluster",
            }
        ],
        "admissionReviewVersions": ["v1", "v1beta1"],
        "sideEffects": "None",
        "timeoutSeconds": 5,
    }


def test_the_page_on_admission_is_current() -> None:
    assert admission_document.PAGE.read_text() == admission_document.document(), "run `make docs`"
