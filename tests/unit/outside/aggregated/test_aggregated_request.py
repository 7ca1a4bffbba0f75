"""What a request asks for: attributes, selectors, options, forms and bodies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from multidict import MultiDict

from antrea.apis.controlplane_report import NodeStatsSummary
from antrea.apis.meta import ObjectMetadata
from antrea.features.registry.api_resources import RESOURCES
from antrea.outside.apiserver.attributes import Attributes, attributes
from antrea.outside.apiserver.form import Json, Metadata, Table
from antrea.outside.apiserver.negotiation import MAX_YAML, negotiate, plain, read
from antrea.outside.apiserver.options import Options, options
from antrea.outside.apiserver.selector import field_terms, label_terms
from antrea.outside.apiserver.status import ApiError
from antrea.outside.apiserver.watcher import Selection

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
            {
                "verb": "list",
                "resource": "addressgroups",
                "name": "x",
                "fields": (("metadata.name", "x"),),
            },
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
    method: str, path: str, query: dict[str, str], expected: dict[str, Any]
) -> None:
    assert attributes(method, path, query) == msgspec.convert({"path": path, **GV, **expected}, Attributes)


@pytest.mark.parametrize("path", ["/healthz", "/apis", "/apis/x", "/apis/x/v1", "/", "/validate/tier"])
def test_request_other_paths_are_no_resources(path: str) -> None:
    assert attributes("GET", path, {}) == Attributes("get", path)


SYSTEM = "/apis/system.antrea.io/v1beta1"


@pytest.mark.parametrize(
    "path",
    [
        f"{CP}/x/../../../system.antrea.io/v1beta1/supportbundles",
        f"{CP}/addressgroups/..",
        f"{CP}/addressgroups/.",
        f"{CP}/addressgroups/%2e%2e/x",
        f"{CP}/addressgroups/%2E%2E%2Fx",
        f"{CP}/addressgroups/a%2fb",
        f"{CP}/addressgroups/a%5Cb",
        f"{CP}/addressgroups/..\\x",
        f"{CP}/addressgroups/%252e%252e",
        f"{CP}//addressgroups",
        f"/{CP}/addressgroups",
        f"{CP}/addressgroups//",
        f"{CP}/addressgroups/a%00",
        f"{CP}/addressgroups/a%ff",
        "/validate/../metrics",
        "//healthz",
        "*",
        "",
        "antrea:443",
    ],
)
def test_request_a_path_that_two_readers_read_differently_is_refused(path: str) -> None:
    with pytest.raises(ApiError) as no:
        attributes("GET", path, {})
    assert no.value.status.code == 400


def test_request_a_slash_at_the_end_changes_nothing_of_what_is_judged() -> None:
    for path in ("/loglevel", "/metrics", "/apis", f"{CP}/addressgroups", f"{CP}/addressgroups/a"):
        assert attributes("GET", f"{path}/", {"level": "9"}) == attributes("GET", path, {"level": "9"})
    assert attributes("GET", "/loglevel/", {"level": "9"}).verb == "put"


def test_request_a_path_has_no_part_that_nobody_judges() -> None:
    with pytest.raises(ApiError) as no:
        attributes("GET", f"{SYSTEM}/supportbundles/x/download/y", {})
    assert no.value.status.code == 404


@pytest.mark.parametrize(
    ("path", "selector", "why"),
    [
        ("addressgroups", "metadata.name=mine,metadata.name=yours", "a field is there twice"),
        ("addressgroups", "nodeName=n1,nodeName=n2", "a field is there twice"),
        ("addressgroups", "metadata.name=a/b", "is not a name"),
        ("addressgroups", "metadata.name=..", "is not a name"),
        ("watch/addressgroups/mine", "metadata.name=yours", "doesn't match the requested name"),
        ("addressgroups", "nonsense", "can't understand 'nonsense'"),
    ],
)
def test_request_the_object_that_is_judged_is_the_one_that_is_read(
    path: str, selector: str, why: str
) -> None:
    with pytest.raises(ApiError, match=why) as no:
        attributes("GET", f"{CP}/{path}", {"fieldSelector": selector})
    assert no.value.status.code == 400


def test_request_a_parameter_that_is_there_twice_is_refused() -> None:
    for twice in ("watch", "fieldSelector", "anything"):
        with pytest.raises(ApiError, match="is there twice"):
            attributes("GET", f"{CP}/addressgroups", MultiDict([(twice, "1"), (twice, "2")]))
    # health checks are excluded one by one
    assert attributes("GET", "/readyz", MultiDict([("exclude", "a"), ("exclude", "b")])).path == "/readyz"


@pytest.mark.parametrize(
    ("method", "path", "query", "written"),
    [
        ("POST", f"{CP}/networkpolicies/u/status", {}, f"{CP}/networkpolicies/u/status"),
        ("GET", f"{CP}/ipgroupassociations/2001:db8::1", {}, f"{CP}/ipgroupassociations/2001%3Adb8%3A%3A1"),
        ("GET", f"{CP}/namespaces/shop/groupmembers/a%3Fb", {}, f"{CP}/namespaces/shop/groupmembers/a%3Fb"),
        ("GET", f"{CP}/addressgroups", {"fieldSelector": "metadata.name=x"}, f"{CP}/addressgroups"),
        ("GET", f"{SYSTEM}/supportbundles/x/download", {}, f"{SYSTEM}/supportbundles/x/download"),
        ("DELETE", f"{SYSTEM}/supportbundles/x/", {}, f"{SYSTEM}/supportbundles/x"),
    ],
)
def test_request_a_path_is_written_anew_from_what_was_judged(
    method: str, path: str, query: dict[str, str], written: str
) -> None:
    asked = attributes(method, path, query)
    assert asked.resource_path() == written
    again = attributes(method, written, query)
    assert msgspec.structs.replace(again, path="") == msgspec.structs.replace(asked, path="")


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
        ({"timeoutSeconds": "soon"}, 400, "not a number of seconds"),
        ({"timeoutSeconds": "99999999999999999999"}, 400, "not a number of seconds"),
        ({"timeoutSeconds": "9" * 5000}, 400, "not a number of seconds"),
        ({"watch": "true", "allowWatchBookmarks": "perhaps"}, 400, "neither true nor false"),
        ({"watch": "true", "resourceVersionMatch": "Exact"}, 422, "forbidden for watch unless"),
        ({"watch": "true", "sendInitialEvents": "true"}, 422, "requires setting resourceVersionMatch"),
        ({"sendInitialEvents": "true"}, 422, "sendInitialEvents is forbidden for list"),
        ({"resourceVersionMatch": "Exact"}, 422, "unless resourceVersion is provided"),
        ({"resourceVersionMatch": "x", "resourceVersion": "1"}, 422, "Unsupported value"),
    ],
)
def test_request_options_that_cannot_be_are_refused(query: dict[str, str], code: int, words: str) -> None:
    with pytest.raises(ApiError, match=words) as no:
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
    with pytest.raises(ApiError, match="only the following media types are accepted") as no:
        form_of(accept, watch=watch)
    assert no.value.status.code == 406
    with pytest.raises(ApiError, match="only the following"):
        plain("application/vnd.kubernetes.protobuf")


def test_request_what_a_table_includes_must_be_known() -> None:
    with pytest.raises(ApiError, match="none of None, Metadata, Object"):
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
        *((b"a: " + b"9" * digits, "application/yaml", 400) for digits in (4301, 60_000)),
        (b"metadata: {generation: -%s}" % (b"9" * 4301), "application/yaml", 400),
        (b"metadata: 2026-13-45", "application/yaml", 400),
        (b"metadata: {generation: %s1}" % (b"1:" * 30_000), "application/yaml", 400),
        (b"[" * MAX_YAML, "application/yaml", 400),
        (b"metadata: {<<: {name: a}}", "application/yaml", 400),
        (b"metadata: {name: a, name: b}", "application/yaml", 400),
        (b'{"metadata": {"name": "a", "name": "b"}}', "application/json", 400),
        (b'{"metadata": {"name": "a"}, "metadata": {"name": "b"}}', "application/json", 400),
        (b'{"metadata": {"name": "a"}, "met\\u0061data": {"name": "b"}}', "application/json", 400),
        (b'{"metadata": {"generation": %s}}' % (b"9" * 100_000), "application/json", 400),
        (b'{"metadata": {"generation": 1e%s}}' % (b"9" * 4301), "application/json", 400),
        (b" " * (MAX_YAML + 1), "application/yaml", 413),
    ],
)
def test_request_a_body_that_is_no_object_is_refused(body: bytes, media: str, code: int) -> None:
    with pytest.raises(ApiError) as no:
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


@pytest.mark.parametrize(
    "plural", ["clustergroupmembers", "groupmembers", "groupassociations", "ipgroupassociations"]
)
def test_request_what_upstream_makes_no_table_of_is_sent_as_it_is(plural: str) -> None:
    """As kubectl asks, which then prints the columns NAME and AGE."""
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
    form, media = negotiate(resource(plural), accept, include="", watch=False)
    assert (type(form), media) == (Json, "application/json")
