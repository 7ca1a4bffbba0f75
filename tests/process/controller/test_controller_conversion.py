"""Conversion reviews over HTTP."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import given, settings
from hypothesis import strategies as st

from antrea.controller.webhook.runtime import conversion_routes

OLD, NEW = "crd.antrea.io/v1alpha2", "crd.antrea.io/v1beta1"
EGRESS = {
    "apiVersion": NEW,
    "kind": "Egress",
    "metadata": {"name": "e"},
    "spec": {"appliedTo": {}, "egressIP": "10.0.0.1"},
}


def review(*objects: Any, wanted: str = OLD, version: str = "v1") -> dict[str, Any]:
    return {
        "kind": "ConversionReview",
        "apiVersion": f"apiextensions.k8s.io/{version}",
        "request": {"uid": "u", "desiredAPIVersion": wanted, "objects": list(objects)},
    }


async def answered(body: bytes, *, content: str = "application/json", accept: str = "") -> tuple[int, str]:
    app = web.Application()
    for path, handler in conversion_routes().items():
        app.router.add_post(path, handler)
    headers = {"Content-Type": content, **({"Accept": accept} if accept else {})}
    async with TestClient(TestServer(app)) as client:
        answer = await client.post("/convert/egress", data=io.BytesIO(body), headers=headers)
        return answer.status, await answer.text()


def converted(version: str) -> dict[str, Any]:
    return {
        "kind": "ConversionReview",
        "apiVersion": f"apiextensions.k8s.io/{version}",
        "response": {
            "uid": "u",
            "convertedObjects": [{**EGRESS, "apiVersion": OLD}],
            "result": {"status": "Success"},
        },
    }


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_objects_are_converted_in_the_version_of_the_review(version: str) -> None:
    status, text = await answered(json.dumps(review(EGRESS, version=version)).encode())
    assert (status, json.loads(text)) == (200, converted(version))


ALIASES = b"".join(
    b"%c: &%c [%s]\n" % (name, name, b",".join([b"*%c" % (name - 1)] * 9) if name > 97 else b"x")
    for name in range(97, 117)
)
"""Some hundred bytes that stand for 9 ** 19 texts."""
MERGES = b"a: &a {k: v}\n" + b"".join(
    b"%c: &%c {<<: [%s]}\n" % (name, name, b",".join([b"*%c" % (name - 1)] * 9)) for name in range(98, 107)
)


@pytest.mark.parametrize(
    "bomb",
    [ALIASES, MERGES, b"a: " + b"1:" * 400_000 + b"1", b"[" * 200_000, json.dumps(review(EGRESS)).encode()],
)
async def test_yaml_is_not_read_because_anybody_may_send_it(bomb: bytes) -> None:
    async with asyncio.timeout(60):
        for media in ("application/yaml", "application/x-yaml", "text/yaml"):
            status, text = await answered(bomb, content=media)
            assert (status, text) == (415, f"Invalid Content-Type={media}, expected application/json")


@pytest.mark.parametrize("bomb", [b"[" * 4_000_000, b'{"a":' * 1_000_000, b'{"a": %s}' % (b"9" * 4_000_000)])
async def test_json_that_is_deep_or_huge_is_refused_at_once(bomb: bytes) -> None:
    async with asyncio.timeout(60):
        assert (await answered(bomb))[0] == 400


async def test_answers_are_json_whatever_is_asked_for() -> None:
    status, text = await answered(json.dumps(review(EGRESS)).encode(), accept="application/yaml")
    assert (status, json.loads(text)) == (200, converted("v1"))


async def test_one_object_that_cannot_be_converted_fails_them_all() -> None:
    _, text = await answered(json.dumps(review(EGRESS, {**EGRESS, "apiVersion": OLD})).encode())
    why = f"conversion from a version to itself should not call the webhook: {OLD}"
    assert json.loads(text)["response"] == {
        "uid": "u",
        "convertedObjects": None,
        "result": {"status": "Failure", "message": why},
    }


@pytest.mark.parametrize(
    ("body", "content", "status"),
    [
        (b"", "application/json", 400),
        (b"{", "application/json", 400),
        (json.dumps({**review(), "apiVersion": "v7"}).encode(), "application/json", 400),
        (json.dumps(review(EGRESS)).replace('"e"', "9" * 5000).encode(), "application/json", 400),
        (b"{}", "text/plain", 415),
    ],
)
async def test_what_is_no_review_gets_an_http_error(body: bytes, content: str, status: int) -> None:
    assert (await answered(body, content=content))[0] == status


SPECS = st.recursive(
    st.none() | st.text(max_size=4) | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["spec", "metadata", "annotations", "bandwidth", "kind"]), inner)
    ),
    max_leaves=10,
)


@settings(max_examples=40, deadline=None)
@given(found=st.dictionaries(st.sampled_from(["apiVersion", "kind", "metadata", "spec"]), SPECS))
async def test_whatever_is_to_be_converted_gets_an_answer(found: Any) -> None:
    for wanted in (OLD, NEW):
        one = {"apiVersion": NEW if wanted == OLD else OLD, "kind": "Egress", **found}
        status, _ = await answered(json.dumps(review(one, wanted=wanted)).encode())
        assert status == 200
