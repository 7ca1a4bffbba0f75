"""A real API server takes our definitions and answers as it does with upstream's: tables, refusals, defaults, explain.

The recordings in tests/golden/crd are of upstream v2.3.2 on the same version of Kubernetes.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from api_client import TABLE, ApiClient
from crd_object import objects
from hypothesis import HealthCheck, given, settings

from antrea.apis.crd.definition import GROUP, Crd, Version, manifest, schema
from antrea.features.registry.crds import CRDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _pytest.mark.structures import ParameterSet

    from lab.cluster import Lab

GOLDEN = Path(__file__).parents[1] / "golden/crd"
BY_KIND = {crd.kind: crd for crd in CRDS}
VERSIONS = [(crd, version) for crd in CRDS for version in crd.versions]
STORED = [(crd, version) for crd, version in VERSIONS if version.storage]
NAMESPACES = ("data", "lab", "shop")
MANIFEST = Path(__file__).parents[2] / "build/yamls/antrea-crds.yml"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


NEWER = {
    # main asks for a Pod by a CEL rule, which the server evaluates when all else is valid
    "pc-no-firstn": {
        "spec.source.pod: Required value": None,
        '<nil>: Invalid value: "": "spec" must validate at least one schema (anyOf)': (
            "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; "
            "correct the existing errors to complete validation"
        ),
    }
}
"""Recordings of v2.3.2 that differ from main, whose schema wins."""


def golden(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((GOLDEN / f"{name}.json").read_text())
    return found


def named(found: Any) -> str:
    if isinstance(found, dict):
        return str(found.get("case") or found.get("plural") or "-".join(found["command"][1:2]))
    return found.name if isinstance(found, Version) else str(found.kind)


CORE = ("egresses.spec", "Egress-v1beta1", "ClusterNetworkPolicy-v1beta1")


def wide(*values: Any) -> ParameterSet:
    """A parameter, of the wide tier unless it is of the core."""
    name = "-".join(map(named, values))
    return pytest.param(*values, id=name, marks=[] if name in CORE else pytest.mark.wide)


def collection(crd: Crd, version: str, namespace: str = "lab") -> str:
    within = f"namespaces/{namespace}/" if crd.scope == "Namespaced" else ""
    return f"/apis/{GROUP}/{version}/{within}{crd.plural}"


def path_of(body: dict[str, Any]) -> str:
    version = body["apiVersion"].rpartition("/")[2]
    return collection(BY_KIND[body["kind"]], version, body["metadata"].get("namespace", "lab"))


@pytest.fixture(scope="module")
def plane(empty_plane: Lab) -> Lab:
    """With our definitions; webhooks that other tests register would answer in the schema's stead."""
    lab = empty_plane
    lab.api.kubectl("apply", "-f", str(MANIFEST))
    lab.api.kubectl("wait", "--for=condition=Established", "-f", str(MANIFEST), "--timeout=50s")
    for name in NAMESPACES:
        lab.api.kubectl("create", "namespace", name)
    return lab


OUR_COLUMNS = {"Audited"}
"""Columns beyond upstream's."""


@pytest.fixture(scope="module")
def api(plane: Lab) -> Iterator[ApiClient]:
    client = ApiClient(plane)
    yield client
    client.close()


def test_every_definition_is_established_and_nothing_is_wrong_with_it(api: ApiClient) -> None:
    items = api.call("GET", DEFINITIONS).body["items"]
    conditions = {
        item["metadata"]["name"]: {c["type"]: c["status"] for c in item["status"]["conditions"]}
        for item in items
    }
    ours = {crd.name: {"NamesAccepted": "True", "Established": "True"} for crd in CRDS}
    # those of policy.networking.k8s.io have a condition more, of their approval
    assert {name: one["Established"] for name, one in conditions.items()} == dict.fromkeys(conditions, "True")
    assert {name: one for name, one in conditions.items() if name in ours} == ours


@pytest.mark.parametrize("crd", CRDS, ids=named)
def test_the_server_knows_every_field_of_a_definition_and_keeps_it(api: ApiClient, crd: Crd) -> None:
    wanted = manifest(crd)
    stands = api.call("GET", f"{DEFINITIONS}/{crd.name}").body
    wanted["metadata"]["resourceVersion"] = stands["metadata"]["resourceVersion"]
    answer = api.call("PUT", f"{DEFINITIONS}/{crd.name}?dryRun=All&fieldValidation=Strict", wanted)
    assert (answer.status, answer.warnings) == (200, ())
    assert [v["schema"] for v in answer.body["spec"]["versions"]] == [
        v["schema"] for v in wanted["spec"]["versions"]
    ]


def test_discovery_prefers_the_stored_version_and_lists_status_where_it_is_apart(api: ApiClient) -> None:
    assert api.call("GET", f"/apis/{GROUP}").body["preferredVersion"]["version"] == "v1beta1"
    served = {
        (version, resource["name"])
        for version in ("v1alpha1", "v1alpha2", "v1beta1")
        for resource in api.call("GET", f"/apis/{GROUP}/{version}").body["resources"]
    }
    assert served == {(version.name, crd.plural) for crd, version in VERSIONS} | {
        (version.name, f"{crd.plural}/status") for crd, version in VERSIONS if version.status
    }


def test_an_old_version_of_ippools_warns_of_its_end(api: ApiClient) -> None:
    warning = '299 - "crd.antrea.io/v1alpha2 IPPool is deprecated; use crd.antrea.io/v1beta1 IPPool"'
    assert api.call("GET", f"/apis/{GROUP}/v1alpha2/ippools").warnings == (warning,)
    assert api.call("GET", f"/apis/{GROUP}/v1alpha2/egresses").warnings == ()


@pytest.mark.parametrize("recorded", golden("tables"), ids=named)
def test_kubectl_get_shows_upstreams_columns_and_cells(api: ApiClient, recorded: dict[str, Any]) -> None:
    crd = next(crd for crd in CRDS if crd.plural == recorded["plural"])
    for body in recorded["objects"]:
        create(api, crd, body)
    everywhere = f"/apis/{GROUP}/{recorded['version']}/{crd.plural}"
    table = api.call("GET", everywhere, accept=TABLE).body
    names = [body["metadata"]["name"] for body in recorded["objects"]]
    shown = [row["cells"] for row in table["rows"] if row["object"]["metadata"]["name"] in names]
    for wide in (False, True):
        columns = [
            (place, column)
            for place, column in enumerate(table["columnDefinitions"])
            if (wide or not column["priority"]) and column["name"] not in OUR_COLUMNS
        ]
        heads, rows = split(recorded["wide" if wide else "table"])
        assert [column["name"].upper() for _, column in columns] == heads
        assert [
            [text(cells[place]) for place, column in columns if column["type"] != "date"] for cells in shown
        ] == [
            [cell for cell, (_, column) in zip(row, columns, strict=True) if column["type"] != "date"]
            for row in rows
        ]


def create(api: ApiClient, crd: Crd, body: dict[str, Any]) -> None:
    """The object with its status, which programs write apart where it is a subresource."""
    answer = api.call("POST", f"{path_of(body)}?fieldValidation=Strict", body)
    assert answer.status == 201, answer.body
    if crd.versions[-1].status and "status" in body:
        made = {**answer.body, "status": body["status"]}
        name = body["metadata"]["name"]
        assert api.call("PUT", f"{path_of(body)}/{name}/status", made).status == 200


def split(lines: list[str]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of a table of kubectl, without NAMESPACE."""
    starts = [found.start() for found in re.finditer(r"\S+( \S+)*", lines[0])]
    ends = [*starts[1:], None]
    cells = [[line[a:b].strip() for a, b in zip(starts, ends, strict=True)] for line in lines]
    if cells[0][0] == "NAMESPACE":
        cells = [row[1:] for row in cells]
    return cells[0], cells[1:]


def text(cell: Any) -> str:
    if cell is None:
        return ""
    return cell if isinstance(cell, str) else json.dumps(cell)


def test_kubectl_prints_an_egress_as_upstreams_users_know_it(plane: Lab, api: ApiClient) -> None:
    body = {
        "apiVersion": "crd.antrea.io/v1beta1",
        "kind": "Egress",
        "metadata": {"name": "web"},
        "spec": {"appliedTo": {}, "egressIP": "10.10.0.8"},
        "status": {"egressNode": "node-2", "egressIP": "10.10.0.8"},
    }
    create(api, BY_KIND["Egress"], body)
    shown = plane.api.kubectl("get", "eg", "web").splitlines()
    assert [line.split() for line in shown] == [
        ["NAME", "EGRESSIP", "AGE", "NODE"],
        ["web", "10.10.0.8", shown[1].split()[2], "node-2"],
    ]


OURS = {"destinations", "conditions", "survive"}
"""Fields of our own, which upstream lacks: docs/crds.md."""


@pytest.mark.parametrize("recorded", [wide(one) for one in golden("explain")])
def test_kubectl_explains_the_fields_that_upstream_has(plane: Lab, recorded: dict[str, Any]) -> None:
    told = plane.api.kubectl(*recorded["command"])
    assert upstreams(fields(told.splitlines())) == fields(recorded["lines"])
    assert "<empty>" not in told


def upstreams(found: list[str]) -> list[str]:
    """Without fields of our own and what is below them."""
    left, ours = list[str](), 0
    for line in found:
        depth = len(line) - len(line.lstrip())
        if not line.strip().startswith("enum:"):  # of the field before
            ours = depth if line.split()[0] in OURS else ours if depth > ours else 0
        if not ours:
            left.append(line)
    return left


def fields(lines: list[str]) -> list[str]:
    """What is said of each field but for its description."""
    below = lines[lines.index("FIELDS:") + 1 :]
    return [line for line in below if "\t" in line or line.strip().startswith("enum:")]


@pytest.mark.parametrize("recorded", golden("reject"), ids=named)
def test_the_schema_refuses_what_upstreams_refuses_with_the_same_words(
    api: ApiClient, recorded: dict[str, Any]
) -> None:
    body = recorded["object"]
    answer = api.call("POST", f"{path_of(body)}?dryRun=All", body)
    newer = NEWER.get(recorded["case"], {})
    wanted = [newer.get(cause, cause) for cause in causes(recorded["message"])]
    told = causes(answer.body["message"])
    assert (answer.status, told) == (422, sorted(cause for cause in wanted if cause))
    assert sorted(cause["field"] for cause in answer.body["details"]["causes"]) == [
        cause.partition(": ")[0] for cause in told
    ]


def causes(message: str) -> list[str]:
    """What is wrong, sorted: the server lists it in the order of a Go map."""
    listed = message.partition(" is invalid: ")[2]
    return sorted(re.split(r", (?=[<a-z][\w.<>\[\]]*: )", listed.removeprefix("[").removesuffix("]")))


@pytest.mark.parametrize(
    ("kind", "version", "spec", "filled"),
    [
        (
            "PacketCapture",
            "v1alpha1",
            {"captureConfig": {"firstN": {"number": 5}}, "source": {"pod": {"name": "web"}}, "packet": {}},
            {
                "captureConfig": {"firstN": {"number": 5}},
                "source": {"pod": {"name": "web", "namespace": "default"}},
                "packet": {"ipFamily": "IPv4"},
                "direction": "SourceToDestination",
                "timeout": 60,
            },
        ),
        (
            "BGPPolicy",
            "v1alpha1",
            {"nodeSelector": {}, "localASN": 64512, "bgpPeers": [{"address": "10.0.0.1", "asn": 64513}]},
            {
                "nodeSelector": {},
                "localASN": 64512,
                "listenPort": 179,
                "bgpPeers": [
                    {
                        "address": "10.0.0.1",
                        "asn": 64513,
                        "port": 179,
                        "multihopTTL": 1,
                        "gracefulRestartTimeSeconds": 120,
                    }
                ],
            },
        ),
        (
            "SupportBundleCollection",
            "v1alpha1",
            {"nodes": {}, "fileServer": {}, "authentication": {}},
            {"nodes": {}, "fileServer": {}, "authentication": {}, "expirationMinutes": 60},
        ),
        (
            "FlowExporterDestination",
            "v1alpha1",
            {
                "address": "10.0.0.1:4739",
                "protocol": {"grpc": {}},
                "tlsConfig": {"caConfigMap": {"name": "ca", "namespace": "default"}},
            },
            {
                "address": "10.0.0.1:4739",
                "protocol": {"grpc": {}},
                "tlsConfig": {
                    "caConfigMap": {"name": "ca", "namespace": "default"},
                    "minTLSVersion": "VersionTLS12",
                },
                "activeFlowExportTimeoutSeconds": 5,
                "idleFlowExportTimeoutSeconds": 15,
            },
        ),
        (
            "AntreaNodeConfig",
            "v1alpha1",
            {"nodeSelector": {}, "secondaryNetwork": {"ovsBridges": [{"bridgeName": "br1"}]}},
            {
                "nodeSelector": {},
                "secondaryNetwork": {"ovsBridges": [{"bridgeName": "br1", "enableMulticastSnooping": False}]},
            },
        ),
        ("Egress", "v1beta1", {"appliedTo": {}}, None),
    ],
)
def test_what_is_not_given_is_filled_in(
    api: ApiClient, kind: str, version: str, spec: dict[str, Any], filled: dict[str, Any] | None
) -> None:
    body = {"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": {"name": "filled"}, "spec": spec}
    answer = api.call("POST", f"{path_of(body)}?dryRun=All&fieldValidation=Strict", body)
    assert answer.body.get("spec") == filled, answer.body


def bridge(name: str) -> dict[str, Any]:
    return {"nodeSelector": {}, "secondaryNetwork": {"ovsBridges": [{"bridgeName": name}]}}


def ip_pool(gateway: str, length: int) -> dict[str, Any]:
    subnet = {"gateway": gateway, "prefixLength": length, "vlan": 5}
    return {"ipRanges": [{"cidr": "10.80.0.0/28"}], "subnetInfo": subnet}


@pytest.mark.parametrize(
    ("kind", "version", "before", "after", "field", "why"),
    [
        (
            "IPPool",
            "v1beta1",
            ip_pool("10.80.0.1", 24),
            ip_pool("10.80.0.2", 24),
            "spec.subnetInfo.gateway",
            "gateway is immutable",
        ),
        (
            "IPPool",
            "v1beta1",
            ip_pool("10.80.0.1", 24),
            ip_pool("10.80.0.1", 25),
            "spec.subnetInfo.prefixLength",
            "prefixLength is immutable",
        ),
        (
            "AntreaNodeConfig",
            "v1alpha1",
            bridge("br1"),
            bridge("br2"),
            "spec.secondaryNetwork.ovsBridges",
            "bridgeName is immutable — existing bridge names cannot be removed or renamed",
        ),
    ],
    ids=["gateway", "prefix-length", "bridge"],
)
def test_what_may_not_change_is_refused_with_its_field(
    api: ApiClient,
    kind: str,
    version: str,
    before: dict[str, Any],
    after: dict[str, Any],
    field: str,
    why: str,
) -> None:
    metadata = {"name": f"fixed-{field.rpartition('.')[2].lower()}"}
    body = {"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": metadata, "spec": before}
    made = api.call("POST", path_of(body), body).body
    path = f"{path_of(body)}/{metadata['name']}"
    answer = api.call("PUT", path, {**made, "spec": after})
    assert answer.status == 422
    assert [
        (cause["field"], cause["message"].rpartition(": ")[2]) for cause in answer.body["details"]["causes"]
    ] == [(field, why)]
    assert (
        api.call("PUT", path, {**made, "metadata": {**made["metadata"], "labels": {"a": "b"}}}).status == 200
    )


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"source": {"ip": "10.0.0.1"}}, "At least one of source.pod or destination.pod must be specified."),
        (
            {"source": {"pod": {"name": "a"}, "ip": "10.0.0.1"}},
            "At most one of 'pod' or 'ip' may be set",
        ),
        (
            {"source": {"pod": {"name": "a"}}, "capturePoint": "Destination"},
            "destination.pod must be set when capturePoint is 'Destination'",
        ),
        (
            {"source": {"pod": {"name": "a"}}, "packet": {"transportHeader": {"udp": {}, "icmp": {}}}},
            "At most one of 'ICMP', 'ICMPv6', 'UDP', or 'TCP' may be set",
        ),
    ],
)
def test_a_capture_that_contradicts_itself_is_refused(api: ApiClient, spec: dict[str, Any], why: str) -> None:
    body = {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "PacketCapture",
        "metadata": {"name": "no"},
        "spec": {"captureConfig": {"firstN": {"number": 1}}, **spec},
    }
    answer = api.call("POST", f"{path_of(body)}?dryRun=All", body)
    assert answer.status == 422
    assert why in answer.body["message"]


@pytest.mark.parametrize("version", ["v1alpha2", "v1beta1"])
@pytest.mark.parametrize("field", ["egressIPs", "externalIPPools"])
def test_a_list_without_an_entry_gives_an_egress_no_address(api: ApiClient, version: str, field: str) -> None:
    body = {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "Egress",
        "metadata": {"name": "none"},
        "spec": {"appliedTo": {}, field: []},
    }
    answer = api.call("POST", f"{path_of(body)}?dryRun=All", body)
    why = f"spec.{field} in body should have at least 1 items"
    assert (answer.status, causes(answer.body["message"])) == (
        422,
        [f"spec.{field}: Invalid value: 0: {why}"],
    )


def test_a_status_that_a_user_gives_is_dropped_where_it_is_apart(api: ApiClient) -> None:
    spec = {"appliedTo": {}, "egressIP": "10.10.0.7"}
    body = {
        "apiVersion": f"{GROUP}/v1beta1",
        "kind": "Egress",
        "metadata": {"name": "forged"},
        "spec": spec,
        "status": {"egressNode": "node-9"},
    }
    made = api.call("POST", path_of(body), body).body
    assert (made["spec"], made.get("status")) == (spec, None)
    path = f"{path_of(body)}/forged"
    changed = {**made, "spec": {**spec, "egressIP": "10.10.0.9"}, "status": {"egressNode": "node-1"}}
    told = api.call("PUT", f"{path}/status", changed).body
    assert (told["spec"], told["status"]) == (spec, {"egressNode": "node-1"})
    kept = api.call("PUT", path, {**told, "status": {"egressNode": "node-9"}}).body
    assert kept["status"] == {"egressNode": "node-1"}


@pytest.mark.parametrize(("crd", "version"), [wide(crd, version) for crd, version in VERSIONS])
def test_what_the_schema_accepts_our_structs_can_read(api: ApiClient, crd: Crd, version: Version) -> None:
    codec = msgspec.json.Decoder(version.kind)
    if version.only_name:
        api.call("DELETE", f"{collection(crd, version.name)}/{version.only_name}")
    path = f"{collection(crd, version.name)}?dryRun=All&fieldValidation=Strict"

    @settings(
        max_examples=50,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(objects(schema(version)))
    def accepted(generated: dict[str, Any]) -> None:
        metadata = {"name": version.only_name or "generated"}
        body = {"apiVersion": f"{GROUP}/{version.name}", "kind": crd.kind, **generated, "metadata": metadata}
        answer = api.call("POST", path, body)
        if not version.storage:  # only conversion, which another program does, is missing
            assert "conversion webhook" in answer.body["message"], answer.body
            found = codec.decode(json.dumps(body))
        else:
            assert answer.status == 201, answer.body
            found = codec.decode(json.dumps(answer.body))
        assert codec.decode(msgspec.json.encode(found)) == found

    accepted()
