"""Our aggregated API shows what upstream's showed when it was recorded ($ANTREA_GOLDEN), field by field.

Deliberate differences, all of them:
- Times are texts in OpenAPI, not references to Kubernetes' definition of Time.
- Descriptions are our own words; documents name JSON and YAML but not protobuf, which we do not speak.

What is answered is replayed by tests/lab/test_lab_replay.py.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest
from recorded_world import CONTROLPLANE, answered, needs_recordings
from recording import answers, stream

from antrea.features.egress.agent.feature import FEATURE as EGRESS
from antrea.features.network_policy.agent.feature import FEATURE as POLICY
from antrea.features.registry.api_resources import RESOURCES
from antrea.features.registry.openapi_names import definition_name
from antrea.outside.apiserver import discovery, openapi

pytestmark = needs_recordings
GROUPS = ("controlplane.antrea.io/v1beta2", "system.antrea.io/v1beta1")
WATCHED = ("addressgroups", "appliedtogroups", "egressgroups", "networkpolicies")


OWN_FIELDS = ("NodeStatsSummary.egresses",)
"""That upstream has not, as our kinds have not: what agents report of Egresses."""
OWN_RESOURCES = ("nodebgpsummaries",)
"""Resources that upstream lacks: what agents report of BGP."""


@pytest.mark.parametrize("group", GROUPS)
def test_parity_discovery_of_a_group_is_upstreams(group: str) -> None:
    path = f"/apis/{group}"
    ours = discovery.documents(RESOURCES)[path]
    shared = [one for one in ours["resources"] if one["name"] not in OWN_RESOURCES]
    assert {**ours, "resources": shared} == answered(path, "discovery")


def aggregated() -> Any:
    """The recorded document of all groups, cut to some."""
    for one in answers("discovery"):
        if any("as=APIGroupDiscoveryList" in word for word in one.words):
            return json.loads(one.body)
    pytest.skip("no aggregated discovery was recorded")


def test_parity_discovery_of_all_groups_is_upstreams() -> None:
    ours = {item["metadata"]["name"]: item["versions"] for item in discovery.aggregated(RESOURCES)["items"]}
    theirs = {item["metadata"]["name"]: item["versions"] for item in aggregated()}
    for version in (version for versions in ours.values() for version in versions):
        version["resources"] = [one for one in version["resources"] if one["resource"] not in OWN_RESOURCES]
    assert {name: ours[name] for name in theirs} == theirs
    name = "controlplane.antrea.io"
    assert discovery.documents(RESOURCES)[f"/apis/{name}"] == answered(f"/apis/{name}", "discovery")


def shape(schema: dict[str, Any]) -> Any:
    """Types, formats and references, without words and defaults."""
    if "allOf" in schema:
        return shape(schema["allOf"][0])
    if "$ref" in schema:
        return {"type": "string"} if schema["$ref"].endswith("meta.v1.Time") else schema["$ref"]
    found: dict[str, Any] = {key: schema[key] for key in ("type", "format") if key in schema}
    if "items" in schema:
        found["items"] = shape(schema["items"])
    if "additionalProperties" in schema:
        found["values"] = shape(schema["additionalProperties"])
    return found


@pytest.mark.parametrize("group", GROUPS)
def test_parity_every_field_of_openapi_is_upstreams(group: str) -> None:
    documents = openapi.documents(RESOURCES, definition_name, "v1")
    path = f"/openapi/v3/apis/{group}"
    ours, theirs = json.loads(documents[path]), answered(path, "openapi")
    different = {}
    for name, schema in theirs["components"]["schemas"].items():
        if not name.startswith("io.antrea"):
            continue
        own = ours["components"]["schemas"].get(name, {})
        for field in {*schema.get("properties", {}), *own.get("properties", {})}:
            mine, golden = (shape(s.get("properties", {}).get(field, {})) for s in (own, schema))
            if mine != golden:
                different[f"{name.rsplit('.', 1)[-1]}.{field}"] = (mine, golden)
        if set(own.get("required", ())) != set(schema.get("required", ())):
            different[f"{name.rsplit('.', 1)[-1]} required"] = (own.get("required"), schema.get("required"))
    assert {field: found for field, found in different.items() if field not in OWN_FIELDS} == {}
    paths = {path for path in theirs["paths"] if "/watch/" not in path and not path.endswith("/")}
    assert paths == {path for path in ours["paths"] if path.rpartition("/")[2] not in OWN_RESOURCES}
    for path in paths:
        methods = ("get", "post", "delete")
        names = [
            {m: found[path][m]["operationId"] for m in methods if m in found[path]}
            for found in (ours["paths"], theirs["paths"])
        ]
        assert names[0] == names[1]


def test_parity_openapi_v2_has_upstreams_paths_and_definitions() -> None:
    """But for the paths below `/watch/`, which Kubernetes has deprecated, and those that list resources."""
    ours = json.loads(openapi.documents(RESOURCES, definition_name, "v1")["/openapi/v2"])
    theirs = answered("/openapi/v2", "openapi")
    paths = {
        path: {method: name for method, name in known.items() if method != "parameters"}
        for path, known in theirs["paths"].items()
        if "/watch/" not in path and not path.endswith("/")
    }
    assert paths
    named = {
        path: {
            method: one["operationId"] for method, one in ours["paths"][path].items() if "operationId" in one
        }
        for path in paths
    }
    assert named == paths
    lines = [
        line for one in answers("openapi") if not one.body.startswith("{") for line in one.body.splitlines()
    ]
    names = {line for line in lines if re.search(r"apis\.(controlplane|stats|system)\.", line)}
    assert {*names, *theirs["definitions"]} <= ours["definitions"].keys()


@pytest.mark.parametrize("plural", WATCHED)
def test_an_agent_reads_every_event_of_the_real_controller(plural: str) -> None:
    (kind,) = (kind for feature in (EGRESS, POLICY) for kind in feature.watches if kind.plural == plural)
    events = list(stream(f"{CONTROLPLANE}/{plural}?watch=true"))
    if not events:
        pytest.skip("no such watch was recorded")
    told = [
        kind.read(msgspec.Raw(json.dumps(one["object"]).encode()))
        for one in events
        if one["type"] != "BOOKMARK"
    ]
    assert told
    assert all(one.name for one in told)
