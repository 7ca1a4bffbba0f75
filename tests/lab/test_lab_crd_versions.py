"""Users of an older version of a kind get it from the API server through our controller, and lose nothing by it."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from api_client import TABLE, ApiClient

from antrea.features.framework.conversion_annotation import ANNOTATION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller_process import ControllerProcess

    from lab.cluster import Lab

OLD, NEW = "/apis/crd.antrea.io/v1alpha2", "/apis/crd.antrea.io/v1beta1"
LIMIT = {"rate": "500k", "burst": "1M"}
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def api(controller: ControllerProcess) -> Iterator[ApiClient]:
    client = ApiClient(controller.lab)
    yield client
    client.close()


@pytest.fixture
def limited(api: ApiClient) -> Iterator[str]:
    """An Egress of v1beta1 with a limit, which v1alpha2 lacks; its name."""
    body = {
        "apiVersion": "crd.antrea.io/v1beta1",
        "kind": "Egress",
        "metadata": {"name": "limited", "annotations": {"team": "web"}},
        "spec": {"appliedTo": {"podSelector": {}}, "egressIP": "10.77.0.1", "bandwidth": LIMIT},
    }
    made = api.call("POST", f"{NEW}/egresses", body)
    assert made.status == 201, made.body["message"]
    yield "limited"
    api.call("DELETE", f"{NEW}/egresses/limited")


def spec_and_annotations(found: dict[str, Any]) -> tuple[Any, Any]:
    return found["spec"], found["metadata"].get("annotations")


def test_an_older_version_shows_what_it_lacks_in_an_annotation(
    controller: ControllerProcess, api: ApiClient, limited: str
) -> None:
    (listed,) = api.call("GET", f"{OLD}/egresses").body["items"]
    watched = first_told(controller.lab, f"{OLD}/egresses", limited)
    wanted = {"appliedTo": {"podSelector": {}}, "egressIP": "10.77.0.1"}
    kept = {
        "team": "web",
        ANNOTATION: json.dumps({"bandwidth": dict(sorted(LIMIT.items()))}, separators=(",", ":")),
    }
    assert spec_and_annotations(listed) == (wanted, kept)
    assert (watched["apiVersion"], spec_and_annotations(watched)) == (
        "crd.antrea.io/v1alpha2",
        (wanted, kept),
    )


def first_told(lab: Lab, path: str, name: str) -> dict[str, Any]:
    """The object of this name as a new watch tells of it first."""
    with contextlib.closing(ApiClient(lab)) as api:
        api.request("GET", f"{path}?watch=true&resourceVersion=0&timeoutSeconds=60")
        told = (json.loads(line)["object"] for line in iter(api.getresponse().readline, b""))
        return next(found for found in told if found["metadata"].get("name") == name)


@pytest.mark.parametrize("how", ["patch", "put", "status"])
def test_a_write_in_an_older_version_keeps_what_it_lacks(api: ApiClient, limited: str, how: str) -> None:
    path = f"{OLD}/egresses/{limited}"
    before = api.call("GET", path).body
    changed = {"spec": {"egressIP": "10.77.0.2"}}
    if how == "patch":
        answer = api.call("PATCH", path, changed, kind=MERGE)
    elif how == "put":
        answer = api.call("PUT", path, {**before, "spec": {**before["spec"], **changed["spec"]}})
    else:
        answer = api.call("PATCH", f"{path}/status", {"status": {"egressNode": "n1"}}, kind=MERGE)
    assert answer.status == 200, answer.body
    found = api.call("GET", f"{NEW}/egresses/{limited}").body
    address = "10.77.0.1" if how == "status" else "10.77.0.2"
    assert spec_and_annotations(found) == (
        {"appliedTo": {"podSelector": {}}, "egressIP": address, "bandwidth": LIMIT},
        {"team": "web"},
    )


@pytest.mark.parametrize("how", [(), ("--server-side",)], ids=["client", "server"])
def test_kubectl_apply_of_an_older_manifest_keeps_what_it_cannot_say(
    controller: ControllerProcess, how: tuple[str, ...]
) -> None:
    kubectl = controller.lab.api.kubectl
    kubectl("apply", *how, "-f", "-", stdin=manifest("10.77.1.1"))
    try:
        kubectl(
            "patch", "egress", "applied", "--type=merge", "-p", json.dumps({"spec": {"bandwidth": LIMIT}})
        )
        kubectl("apply", *how, "-f", "-", stdin=manifest("10.77.1.2"))
        found = controller.lab.api.get(f"{NEW}/egresses/applied")
    finally:
        kubectl("delete", "egress", "applied")
    assert found["spec"] == {"appliedTo": {}, "egressIP": "10.77.1.2", "bandwidth": LIMIT}
    assert ANNOTATION not in found["metadata"].get("annotations", {})


def manifest(address: str) -> str:
    spec = {"appliedTo": {}, "egressIP": address}
    metadata = {"name": "applied"}
    return json.dumps(
        {"apiVersion": "crd.antrea.io/v1alpha2", "kind": "Egress", "metadata": metadata, "spec": spec}
    )


def test_a_field_that_a_user_invents_in_the_annotation_is_refused(api: ApiClient) -> None:
    body = {
        "apiVersion": "crd.antrea.io/v1alpha2",
        "kind": "Egress",
        "metadata": {"name": "forged", "annotations": {ANNOTATION: '{"bandwidth":{"rate":7}}'}},
        "spec": {"appliedTo": {}, "egressIP": "10.77.2.1"},
    }
    answer = api.call("POST", f"{OLD}/egresses", body)
    assert answer.status >= 400
    assert "Expected `str`, got `int` - at `$.bandwidth.rate`" in answer.body["message"]


def test_an_older_version_has_the_same_columns(api: ApiClient, limited: str) -> None:
    tables = [api.call("GET", f"{version}/egresses", accept=TABLE).body for version in (OLD, NEW)]
    heads = [[column["name"] for column in table["columnDefinitions"]] for table in tables]
    assert heads == [["Name", "EgressIP", "Age", "Node"]] * 2


def test_an_older_pool_without_ranges_gets_a_verdict_and_no_error(api: ApiClient) -> None:
    body = {
        "apiVersion": "crd.antrea.io/v1alpha2",
        "kind": "IPPool",
        "metadata": {"name": "bare"},
        "spec": {"ipVersion": 4, "ipRanges": []},
    }
    answer = api.call("POST", f"{OLD}/ippools", body)
    assert (answer.status, answer.body["message"].partition(":")[0]) == (
        400,
        'admission webhook "ippoolvalidator.antrea.io" denied the request',
    )
