"""What a request asks for: attributes, selectors, options, forms and bodies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from antrea.apis.controlplane_report import NodeStatsSummary
from antrea.apis.meta import ObjectMetadata
from antrea.features.registry import RESOURCES
from antrea.outside.aggregated.attributes import Attributes, attributes
from antrea.outside.aggregated.form import Json, Metadata, Table
from antrea.outside.aggregated.negotiation import MOST_YAML, negotiate, plain, read
from antrea.outside.aggregated.options import Options, options
from antrea.outside.aggregated.selector import field_terms, label_terms
from antrea.outside.aggregated.status import Answered
from antrea.outside.aggregated.watcher import Selection

if TYPE_CHECKING:
    from antrea.apis.resource import Resource

CP = "/apis/controlplane.antrea.io/v1beta2"
GV = {"group": "controlplane.antrea.io", "version": "v1beta2"}


def resource(plural: str) -> Resource:
    return next(row for row in RESOURCES if row.plural == plural)


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("GET", f"{CP}/addressgroups", {}, {"verb": "list", "resource": "addressgroups"}),
        ("GET", f"{CP}/addressgroups/a", {}, {"verb": "get", "resource": "addressgroups", "name": "a"}),
        ("GET", f"{CP}/addressgroups", {"watch": "true"}, {"verb": "watch", "resource": "addressgroups"}),
        ("GET", f"{CP}/addressgroups", {"watch": "1"}, {"verb": "watch", "resource": "addressgroups"}),
        ("GET", f"{CP}/watch/addressgroups", {}, {"verb": "watch", "resource": "addressgroups"}),
        (
            "GET",
            f"{CP}/addressgroups",
            {"fieldSelector": "metadata.name=x", "watch": "false"},
            {"verb": "list", "resource": "addressgroups", "name": "x"},
        ),
        (
            "GET",
            f"{CP}/namespaces/shop/groupmembers/g",
            {},
            {"verb": "get", "resource": "groupmembers", "namespace": "shop", "name": "g"},
        ),
        (
            "POST",
            f"{CP}/networkpolicies/u/status",
            {},
            {"verb": "create", "resource": "networkpolicies", "name": "u", "subresource": "status"},
        ),
        ("DELETE", f"{CP}/addressgroups", {}, {"verb": "deletecollection", "resource": "addressgroups"}),
    ],
)
def test_request_a_path_says_what_is_asked(
    method: str, path: str, query: dict[str, str], expected: dict[str, str]
) -> None:
    assert attributes(method, path, query) == Attributes(path=path, **GV, **expected)


@pytest.mark.parametrize("path", ["/healthz", "/apis", "/apis/x", "/apis/x/v1", "/", "/validate/tier"])
def test_request_other_paths_are_no_resources(path: str) -> None:
    assert attributes("GET", path, {}) == Attributes("get", path)


def test_request_field_selectors_are_split_at_what_is_not_escaped() -> None:
    assert field_terms("metadata.name=a,nodeName==b,x!=c") == [
        ("metadata.name", True, "a"),
        ("nodeName", True, "b"),
        ("x", False, "c"),
    ]
    assert field_terms("metadata.name=a\\,b\\=c") == [("metadata.name", True, "a,b=c")]
    with pytest.raises(ValueError, match="can't understand 'nonsense'"):
        field_terms("nonsense")


@pytest.mark.parametrize(
    ("selector", "matches", "misses"),
    [
        ("a=b", {"a": "b"}, {"a": "c"}),
        ("a!=b", {}, {"a": "b"}),
        ("a in (b, c), d", {"a": "c", "d": ""}, {"a": "c"}),
        ("a notin (b,c)", {}, {"a": "b"}),
        ("!a", {"b": ""}, {"a": ""}),
        ("a,!b", {"a": ""}, {"a": "", "b": ""}),
    ],
)
def test_request_label_selectors_match(
    selector: str, matches: dict[str, str], misses: dict[str, str]
) -> None:
    terms = label_terms(selector)
    assert all(term.matches(matches) for term in terms)
    assert not all(term.matches(misses) for term in terms)


@pytest.mark.parametrize("selector", ["a=b c", "a in b", "a in (b", "a>3", "a,,b", "a,", ",a", "=b"])
def test_request_a_label_selector_that_is_none_is_refused(selector: str) -> None:
    with pytest.raises(ValueError, match=r"parse|numbers"):
        label_terms(selector)


def asked(query: dict[str, str], plural: str = "networkpolicies") -> Options:
    row = resource(plural)
    path = f"/apis/{row.group}/{row.version}/{plural}"
    return options(row, attributes("GET", path, query), query)


def test_request_a_nonsense_resource_version_is_not_looked_at() -> None:
    assert asked({"watch": "true", "resourceVersion": "nonsense"}) == Options(Selection())


def test_request_options_say_node_name_and_time() -> None:
    query = {"watch": "true", "fieldSelector": "nodeName=n1,metadata.name=x", "timeoutSeconds": "7"}
    assert asked(query) == Options(Selection("n1", "x"), seconds=7)
    query = {"watch": "1", "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    assert asked(query).mark_end is False
    assert asked({**query, "allowWatchBookmarks": "true"}).mark_end is True


@pytest.mark.parametrize(
    ("query", "code", "words"),
    [
        ({"fieldSelector": "spec.x=1"}, 400, "field label not supported: spec.x"),
        ({"timeoutSeconds": "soon"}, 400, "no number of seconds"),
        ({"timeoutSeconds": "99999999999999999999"}, 400, "no number of seconds"),
        ({"watch": "true", "allowWatchBookmarks": "perhaps"}, 400, "neither true nor false"),
        ({"watch": "true", "resourceVersionMatch": "Exact"}, 422, "forbidden for watch unless"),
        ({"watch": "true", "sendInitialEvents": "true"}, 422, "requires setting resourceVersionMatch"),
        ({"sendInitialEvents": "true"}, 422, "sendInitialEvents is forbidden for list"),
        ({"resourceVersionMatch": "Exact"}, 422, "unless resourceVersion is provided"),
        ({"resourceVersionMatch": "x", "resourceVersion": "1"}, 422, "Unsupported value"),
    ],
)
def test_request_options_that_cannot_be_are_refused(query: dict[str, str], code: int, words: str) -> None:
    with pytest.raises(Answered, match=words) as no:
        asked(query)
    assert no.value.status.code == code


def form_of(accept: str, *, watch: bool = False, include: str = "") -> tuple[type[Any], str]:
    form, media = negotiate(resource("networkpolicies"), accept, include=include, watch=watch)
    return type(form), media


KUBECTL = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"


def test_request_the_form_is_what_the_client_likes_best_of_what_we_have() -> None:
    json, yaml = "application/json", "application/yaml"
    assert form_of("") == (Json, json)
    assert form_of("*/*") == (Json, json)
    assert form_of(KUBECTL) == (Table, json)
    assert form_of("application/vnd.kubernetes.protobuf, application/json") == (Json, json)
    assert form_of("application/json;q=0.5,application/yaml") == (Json, yaml)
    assert form_of("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1") == (Metadata, json)
    assert form_of("application/json;as=Nonsense;g=meta.k8s.io;v=v1,application/yaml") == (Json, yaml)
    assert form_of("application/json;stream=watch", watch=True) == (Json, json)


@pytest.mark.parametrize(
    ("accept", "watch"),
    [("application/vnd.kubernetes.protobuf", False), ("application/yaml", True), ("text/html", False)],
)
def test_request_a_client_that_takes_nothing_of_ours_gets_406(accept: str, watch: bool) -> None:
    with pytest.raises(Answered, match="only the following media types are accepted") as no:
        form_of(accept, watch=watch)
    assert no.value.status.code == 406
    with pytest.raises(Answered, match="only the following"):
        plain("application/vnd.kubernetes.protobuf")


def test_request_what_a_table_includes_must_be_known() -> None:
    with pytest.raises(Answered, match="none of None, Metadata, Object"):
        form_of(KUBECTL, include="Everything")


@pytest.mark.parametrize(
    ("body", "media", "code"),
    [
        (b"{", "application/json", 400),
        (b"\xff", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"metadata": 3}', "application/json", 400),
        (b"", "application/json", 400),
        (b"{}", "application/vnd.kubernetes.protobuf", 415),
        (b"a: [", "application/yaml", 400),
        (b"a: &x [1]\nb: [*x, *x]", "application/yaml", 400),
        *((b"a: " + b"9" * digits, "application/yaml", 400) for digits in (4301, 100_000)),
        (b"metadata: {generation: -%s}" % (b"9" * 4301), "application/yaml", 400),
        (b"a: 2026-13-45", "application/yaml", 400),
        (b'{"metadata": {"generation": %s}}' % (b"9" * 100_000), "application/json", 400),
        (b'{"metadata": {"generation": 1e%s}}' % (b"9" * 4301), "application/json", 400),
        (b" " * (MOST_YAML + 1), "application/yaml", 413),
    ],
)
def test_request_a_body_that_is_no_object_is_refused(body: bytes, media: str, code: int) -> None:
    with pytest.raises(Answered) as no:
        read(body, media, NodeStatsSummary)
    assert no.value.status.code == code


def test_request_bodies_are_json_or_yaml() -> None:
    for body, media in (
        (b'{"metadata":{"name":"n1"}}', "application/json"),
        (b"metadata: {name: n1}", "application/yaml"),
    ):
        assert read(body, media, NodeStatsSummary).metadata.name == "n1"


@pytest.mark.parametrize("media", ["application/json", "application/yaml"])
def test_request_a_null_in_a_body_is_an_absent_field_as_clients_in_go_write_it(media: str) -> None:
    body = b'{"metadata": {"name": "n1", "creationTimestamp": null}, "networkPolicies": null}'
    assert read(body, media, NodeStatsSummary) == NodeStatsSummary(metadata=ObjectMetadata(name="n1"))
