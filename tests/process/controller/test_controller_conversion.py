"""Conversion reviews over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import given, settings
from hypothesis import strategies as st

from antrea.controller.conversion import conversion_routes

OLD, NEW = "crd.antrea.io/v1alpha2", "crd.antrea.io/v1beta1"
EGRESS = {
    "apiVersion": NEW,
    "kind": "Egress",
    "metadata": {"name": "e"},
    "spec": {"appliedTo": {}, "egressIP": "10.0.0.1"},
}
HUGE = f"0x{'f' * 5000}"
"""A number that YAML reads, and nobody writes."""


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
        answer = await client.post("/convert/egress", data=body, headers=headers)
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


async def test_a_review_may_be_yaml_both_ways() -> None:
    body = yaml.safe_dump(review(EGRESS)).encode()
    status, text = await answered(body, content="application/yaml", accept="application/yaml")
    assert (status, yaml.safe_load(text)) == (200, converted("v1"))


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
        (b"a: [", "application/yaml", 400),
        (b"a: !!python/object:os.system x", "application/yaml", 400),
        (json.dumps({**review(), "apiVersion": "v7"}).encode(), "application/json", 400),
        (json.dumps(review(EGRESS)).replace('"e"', "9" * 5000).encode(), "application/json", 400),
        (json.dumps(review(EGRESS)).replace('"e"', "9" * 5000).encode(), "application/yaml", 400),
        (json.dumps(review({**EGRESS, "x": "HEX"})).replace('"HEX"', HUGE).encode(), "application/yaml", 400),
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
