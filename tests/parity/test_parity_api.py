"""Our aggregated API shows what upstream's showed when it was recorded ($ANTREA_GOLDEN), field by field.

Deliberate differences, all of them:
- `creationTimestamp: null` is left out, as Kubernetes does since 1.34; lists are sorted by name, upstream's by chance.
- Times are texts in OpenAPI, not references to Kubernetes' definition of Time.
- A Service of an AppliedToGroup is listed once, not once for each of its Nodes.
- Bookmarks have the store's resourceVersion, as upstream's main has and the recorded v2.3.2 had not.
- Descriptions are our own words; documents name JSON and YAML but not protobuf, which we do not speak.
- A list obeys the field selectors that a watch obeys; upstream's lists show everything.
- A group that does not exist is 404; upstream answers 500 for ClusterGroupMembers.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from antrea.features.definition import definition_name
from antrea.features.egress.agent import FEATURE as EGRESS
from antrea.features.network_policy.agent import FEATURE as POLICY
from antrea.features.registry import RESOURCES
from antrea.outside.aggregated import discovery, openapi
from antrea.outside.aggregated.form import Json, Table
from antrea.outside.aggregated.store import Store

if TYPE_CHECKING:
    from antrea.apis.resource import Resource

RAW = Path(os.environ.get("ANTREA_GOLDEN", "/nowhere")) / "raw"
pytestmark = pytest.mark.skipif(not RAW.is_dir(), reason="ANTREA_GOLDEN names no recorded answers")

GROUPS = ("controlplane.antrea.io_v1beta2", "system.antrea.io_v1beta1")
WATCHED = ("addressgroups", "appliedtogroups", "egressgroups", "networkpolicies")
STATS = (
    "networkpolicystats",
    "antreaclusternetworkpolicystats",
    "antreanetworkpolicystats",
    "multicastgroups",
)


OWN_FIELDS = ("NodeStatsSummary.egresses",)
"""That upstream has not, as our kinds have not: what agents report of Egresses."""


def recorded(path: str) -> Any:
    lines = (RAW / path).read_text(encoding="utf-8").splitlines()
    return json.loads("\n".join(line for line in lines if not line.startswith("#")))


def without_nulls(found: Any) -> Any:
    """Without what Kubernetes no longer writes, and what we do not keep."""
    if isinstance(found, dict):
        gone = {"managedFields"} | (
            {"creationTimestamp"} if found.get("creationTimestamp", "") is None else set()
        )
        return {key: without_nulls(value) for key, value in found.items() if key not in gone}
    return [without_nulls(one) for one in found] if isinstance(found, list) else found


def resource(plural: str) -> Resource:
    return next(row for row in RESOURCES if row.plural == plural and row.group != "crd.antrea.io")


def filled(plural: str, items: list[dict[str, Any]]) -> Store:
    store = Store(resource(plural))
    for item in items:
        meta = item["metadata"]
        key = f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]
        store.put(key, msgspec.convert(json.loads(json.dumps(item)), store.resource.struct))
    return store


def by_name(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(items, key=lambda item: (item["metadata"].get("namespace", ""), item["metadata"]["name"]))


@pytest.mark.parametrize("group", GROUPS)
def test_parity_discovery_of_a_group_is_upstreams(group: str) -> None:
    ours = discovery.documents(RESOURCES)[f"/apis/{group.replace('_', '/')}"]
    assert ours == recorded(f"discovery/{group}.json")


def test_parity_discovery_of_all_groups_is_upstreams() -> None:
    ours = {item["metadata"]["name"]: item["versions"] for item in discovery.aggregated(RESOURCES)["items"]}
    theirs = {
        item["metadata"]["name"]: item["versions"] for item in recorded("discovery/aggregated-discovery.json")
    }
    assert {name: ours[name] for name in theirs} == theirs
    name = "controlplane.antrea.io"
    assert discovery.documents(RESOURCES)[f"/apis/{name}"] == recorded(f"discovery/group.{name}.json")


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
    ours = json.loads(documents[f"/openapi/v3/apis/{group.replace('_', '/')}"])
    theirs = recorded(f"openapi/v3.{group}.json")
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
    assert paths == set(ours["paths"])
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
    theirs = recorded("openapi/v2.fragment.json")
    paths = {
        path: {method: name for method, name in known.items() if method != "parameters"}
        for path, known in theirs["paths"].items()
        if "/watch/" not in path and not path.endswith("/")
    }
    assert len(paths) > 15
    named = {
        path: {
            method: one["operationId"] for method, one in ours["paths"][path].items() if "operationId" in one
        }
        for path in paths
    }
    assert named == paths
    lines = (RAW / "openapi/v2.definition-names.txt").read_text().splitlines()
    names = {line for line in lines if re.search(r"apis\.(controlplane|stats|system)\.", line)}
    assert {*names, *theirs["definitions"]} <= ours["definitions"].keys()


@pytest.mark.parametrize("folder", ["controlplane", "alpha-controlplane"])
@pytest.mark.parametrize("plural", WATCHED)
def test_parity_lists_and_tables_of_what_agents_read_are_upstreams(folder: str, plural: str) -> None:
    golden = without_nulls(recorded(f"{folder}/{plural}.json"))
    for item in golden["items"]:
        if members := item.get("groupMembers"):
            item["groupMembers"] = [m for i, m in enumerate(members) if m not in members[:i]]
    store = filled(plural, golden["items"])
    ours = json.loads(b"".join(Json(store.resource).many(store.objects(), "")))
    assert {**ours, "items": by_name(ours["items"])} == {**golden, "items": by_name(golden["items"])}
    table = without_nulls(recorded(f"{folder}/{plural}.Table.json"))
    mine = json.loads(b"".join(Table(store.resource).many(store.objects(), "")))
    for shown in (table, mine):
        shown["rows"].sort(key=lambda row: row["cells"][0])
    assert mine == table


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("plural", STATS)
def test_parity_counters_are_shown_as_upstreams(plural: str, moment: str) -> None:
    golden = without_nulls(recorded(f"stats/{plural}.{moment}.json"))
    store = filled(plural, golden["items"])
    ours = json.loads(b"".join(Json(store.resource).many(store.objects(), "")))
    assert by_name(ours["items"]) == by_name(golden["items"])
    text = (RAW / f"stats/{plural}.{moment}.table.txt").read_text().splitlines()
    printed = [line.split() for line in text if line and not line.startswith(("#", "No resources"))]
    rows = json.loads(b"".join(Table(store.resource).many(store.objects(), "")))["rows"]
    meta = [row["object"]["metadata"] for row in rows]
    cells = [[str(cell) for cell in row["cells"]] for row in rows]
    spaces = [[m["namespace"]] if "namespace" in m else [] for m in meta]
    ours_printed = [space + " ".join(cell).split() for space, cell in zip(spaces, cells, strict=True)]
    assert sorted(ours_printed) == sorted(line for line in printed[1:])


@pytest.mark.parametrize("plural", WATCHED)
def test_parity_every_recorded_event_is_read_and_written_as_it_was(plural: str) -> None:
    row = resource(plural)
    for line in (RAW / f"watch/{plural}.jsonl").read_text().splitlines():
        if line.startswith("#"):
            continue
        event = without_nulls(json.loads(line))
        if event["type"] in ("ADDED", "DELETED"):
            found = msgspec.json.decode(json.dumps(event["object"]), type=row.struct)
            head, rest = Json(row).event(row.kind, found, msgspec.json.encode(found)[1:])
            assert json.loads(head + rest) == event["object"]


@pytest.mark.parametrize("plural", WATCHED)
def test_an_agent_reads_every_event_of_the_real_controller(plural: str) -> None:
    (kind,) = (kind for feature in (EGRESS, POLICY) for kind in feature.watches if kind.plural == plural)
    lines = (RAW / f"watch/{plural}.jsonl").read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in lines if line.startswith("{")]
    told = [
        kind.read(msgspec.Raw(json.dumps(one["object"]).encode()))
        for one in events
        if one["type"] != "BOOKMARK"
    ]
    assert told
    assert all(one.name for one in told)
