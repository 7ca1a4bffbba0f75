"""Objects of an older version of a kind become objects of the newer one and back, and lose nothing on the way."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antrea.apis.crd import egress, pool, v1alpha2
from antrea.errors import Invalid
from antrea.features.framework.conversion_annotation import ANNOTATION, OLDER
from antrea.features.registry.conversion import CONVERSIONS, NEW, OLD, PATHS, convert

Object = dict[str, Any]
DIFFERENT = (
    "failed to convert IPPool from version v1alpha2 to to version v1beta1 because the original ipRanges have "
    "different subnet information"
)
texts = st.text(alphabet="ab1:.", max_size=6)
subnets: st.SearchStrategy[Object] = st.fixed_dictionaries(
    {
        "gateway": st.sampled_from(["10.0.0.1", "fd00::1", "::ffff:10.0.0.1"]),
        "prefixLength": st.integers(1, 127),
    },
    optional={"vlan": st.integers(0, 4094)},
)
ranges = st.lists(
    st.one_of(
        st.fixed_dictionaries({"cidr": st.sampled_from(["10.0.0.0/28", "fd00::/120"])}),
        st.fixed_dictionaries({"start": texts, "end": texts}),
    ),
    max_size=3,
)
metadata = st.fixed_dictionaries(
    {"name": st.just("x")},
    optional={
        "annotations": st.dictionaries(texts.filter(bool), texts, min_size=1, max_size=2),
        "labels": st.dictionaries(texts, texts, max_size=2),
        "managedFields": st.just([{"manager": "kubectl"}]),
    },
)
statuses = st.sampled_from([{}, {"usage": {"total": 3, "used": 1}}, {"egressIP": "10.0.0.2"}])


def objects(version: str, kind: str, spec: st.SearchStrategy[Object]) -> st.SearchStrategy[Object]:
    fixed = {"apiVersion": st.just(version), "kind": st.just(kind), "metadata": metadata, "spec": spec}
    return st.fixed_dictionaries(fixed, optional={"status": statuses})


egress_spec = {"appliedTo": st.just({"podSelector": {}}), "egressIP": texts}
bandwidths = st.fixed_dictionaries({"rate": texts, "burst": texts})
pool_spec = {"ipRanges": ranges, "nodeSelector": st.just({})}


def in_each_range(found: list[Object], subnet: Object) -> Object:
    version = 6 if subnet["gateway"] == "fd00::1" else 4
    return {"ipVersion": version, "ipRanges": [{**one, **subnet} for one in found]}


newest = st.one_of(
    objects(NEW, "Egress", st.fixed_dictionaries(egress_spec, optional={"bandwidth": bandwidths})),
    objects(NEW, "ExternalIPPool", st.fixed_dictionaries(pool_spec, optional={"subnetInfo": subnets})),
    objects(NEW, "IPPool", st.fixed_dictionaries({"ipRanges": ranges, "subnetInfo": subnets})),
)
oldest = st.one_of(
    objects(OLD, "Egress", st.fixed_dictionaries(egress_spec)),
    objects(OLD, "ExternalIPPool", st.fixed_dictionaries(pool_spec)),
    objects(OLD, "IPPool", st.builds(in_each_range, ranges.filter(bool), subnets)),
)
empty = objects(
    OLD, "IPPool", st.fixed_dictionaries({"ipVersion": st.sampled_from([4, 6]), "ipRanges": st.just([])})
)
names = st.sampled_from(
    [
        "ipRanges",
        "subnetInfo",
        "gateway",
        "prefixLength",
        "vlan",
        "cidr",
        "bandwidth",
        "ipVersion",
        "annotations",
    ]
)
anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
fields = st.one_of(texts, st.text(max_size=3), anything.map(json.dumps))
untrusted = st.fixed_dictionaries(
    {},
    optional={
        "metadata": anything
        | st.fixed_dictionaries(
            {"annotations": st.dictionaries(st.sampled_from([ANNOTATION, OLDER]), fields)}
        ),
        "spec": anything | st.dictionaries(names, anything, max_size=4),
    },
)
KINDS = {
    (OLD, "Egress"): v1alpha2.Egress,
    (OLD, "ExternalIPPool"): v1alpha2.ExternalIPPool,
    (OLD, "IPPool"): v1alpha2.IPPool,
    (NEW, "Egress"): egress.Egress,
    (NEW, "ExternalIPPool"): pool.ExternalIPPool,
    (NEW, "IPPool"): pool.IPPool,
}


@given(newest)
def test_what_is_read_in_the_older_version_and_written_back_is_the_same_object(found: Object) -> None:
    before = copy.deepcopy(found)
    older = convert(found["kind"], OLD, found)
    msgspec.convert(older, KINDS[OLD, found["kind"]])
    assert convert(found["kind"], NEW, older) == found == before


@given(empty)
def test_an_older_pool_without_ranges_reads_back_as_it_was_written(found: Object) -> None:
    newer = convert("IPPool", NEW, found)
    assert "subnetInfo" not in newer["spec"]
    assert convert("IPPool", OLD, newer) == found


@pytest.mark.parametrize(
    ("spec", "family"),
    [
        ({"ipRanges": None, "subnetInfo": None}, 6),
        ({"ipRanges": []}, 6),
        ({"ipRanges": [], "subnetInfo": {"gateway": "10.0.0.1", "prefixLength": 24}}, 4),
    ],
)
def test_a_pool_is_read_in_the_older_version_whatever_upstream_or_a_user_has_stored(
    spec: Object, family: int
) -> None:
    kept = {"metadata": {"name": "p", "annotations": {OLDER: "{", ANNOTATION: "{"}}}
    told = convert("IPPool", OLD, {"apiVersion": NEW, "kind": "IPPool", **kept, "spec": spec})
    assert told["spec"] == {"ipVersion": family, "ipRanges": []}
    assert convert("IPPool", NEW, told)["spec"].get("subnetInfo") == spec.get("subnetInfo")


def test_a_gateway_that_an_empty_pool_is_given_later_says_its_family() -> None:
    newer = convert("IPPool", NEW, ippool())
    newer["spec"]["subnetInfo"] = {"gateway": "fd00::1", "prefixLength": 64}
    assert convert("IPPool", OLD, newer)["spec"] == {"ipVersion": 6, "ipRanges": []}


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("Egress", "bandwidth", {"rate": "1", "burst": "1"}),
        ("ExternalIPPool", "subnetInfo", {"gateway": "10.0.0.1", "prefixLength": 24}),
    ],
)
def test_what_a_user_stores_in_the_annotation_is_no_field(kind: str, field: str, value: Object) -> None:
    annotations = {ANNOTATION: json.dumps({field: value})}
    found = {"apiVersion": NEW, "kind": kind, "metadata": {"annotations": annotations}, "spec": {}}
    older = convert(kind, OLD, found)
    assert convert(kind, NEW, older) == {**found, "metadata": {}}


@given(st.sampled_from(sorted(CONVERSIONS)), st.sampled_from([(OLD, NEW), (NEW, OLD)]), untrusted)
def test_whatever_is_converted_becomes_an_object_or_is_invalid(
    kind: str, way: tuple[str, str], parts: Object
) -> None:
    found = {"apiVersion": way[0], "kind": kind, **parts}
    before = copy.deepcopy(found)
    try:
        told = convert(kind, way[1], found)
    except Invalid:
        return
    assert (told["apiVersion"], found) == (way[1], before)
    json.dumps(told)


@given(oldest)
def test_what_is_written_in_the_older_version_reads_back_as_it_was_written(found: Object) -> None:
    newer = convert(found["kind"], NEW, found)
    msgspec.convert(newer, KINDS[NEW, found["kind"]])
    assert convert(found["kind"], OLD, newer) == found


def untouched(found: Object) -> Object:
    metadata = {name: value for name, value in found["metadata"].items() if name != "annotations"}
    return {"kind": found["kind"], "metadata": metadata, "status": found.get("status")}


@given(st.one_of(newest, oldest))
def test_a_conversion_touches_nothing_but_version_annotations_and_spec(found: Object) -> None:
    told = convert(found["kind"], OLD if found["apiVersion"] == NEW else NEW, found)
    assert untouched(told) == untouched(found)


def ippool(*given: Object, version: str = OLD) -> Object:
    return {
        "apiVersion": version,
        "kind": "IPPool",
        "metadata": {"name": "p"},
        "spec": {"ipVersion": 4, "ipRanges": [*given]},
    }


def in_subnet(gateway: str, **more: int) -> Object:
    return {"cidr": "10.81.0.32/30", "gateway": gateway, "prefixLength": 24, **more}


def test_the_subnet_of_an_older_pool_is_that_of_its_ranges() -> None:
    told = convert("IPPool", NEW, ippool(in_subnet("10.81.0.1", vlan=2), in_subnet("10.81.0.1", vlan=2)))
    assert told == {
        "apiVersion": NEW,
        "kind": "IPPool",
        "metadata": {"name": "p"},
        "spec": {
            "ipRanges": [{"cidr": "10.81.0.32/30"}, {"cidr": "10.81.0.32/30"}],
            "subnetInfo": {"gateway": "10.81.0.1", "prefixLength": 24, "vlan": 2},
        },
    }


@pytest.mark.parametrize(
    ("found", "path", "why"),
    [
        (
            ippool(in_subnet("10.81.0.1"), in_subnet("10.81.0.2")),
            "spec.ipRanges",
            DIFFERENT,
        ),
        (
            {**ippool(version=NEW), "spec": {"ipRanges": [], "subnetInfo": 3}},
            "spec.subnetInfo",
            "must be an object",
        ),
        (
            {**ippool(), "metadata": {"annotations": ["a"]}},
            "metadata",
            "metadata of an object cannot be read: Expected `object | null`, got `array` - at `$.annotations`",
        ),
        (
            ippool(version=NEW),
            "apiVersion",
            "conversion from a version to itself should not call the webhook: crd.antrea.io/v1beta1",
        ),
        (
            ippool(version="crd.antrea.io/v1"),
            "apiVersion",
            'unexpected conversion fromVersion "crd.antrea.io/v1" to toVersion "crd.antrea.io/v1beta1"',
        ),
        (
            {**ippool(), "kind": "Egress"},
            "apiVersion",
            'unexpected conversion fromVersion "crd.antrea.io/v1alpha2" to toVersion "crd.antrea.io/v1beta1"',
        ),
        (
            {**ippool(), "spec": {"ipRanges": ["10.0.0.0/8"]}},
            "spec",
            "must be an object, and its ipRanges a list of objects",
        ),
        ({**ippool(), "spec": None}, "spec", "must be an object, and its ipRanges a list of objects"),
    ],
)
def test_a_conversion_that_cannot_be_says_why(found: Object, path: str, why: str) -> None:
    wanted = OLD if path == "spec.subnetInfo" else NEW
    with pytest.raises(Invalid) as raised:
        convert("IPPool", wanted, found)
    assert (raised.value.path, raised.value.why) == (path, why)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"bandwidth": 3}',
        '{"bandwidth": {"rate": "1M"}}',
        '{"colour": "red"}',
        '{"subnetInfo": {"gateway": "10.0.0.1", "prefixLength": 24, "vlan": 4095}}',
        '{"subnetInfo": {"gateway": "10.0.0.1", "prefixLength": 128}}',
    ],
)
def test_fields_that_a_user_puts_into_the_annotation_are_checked(text: str) -> None:
    found = {
        "apiVersion": OLD,
        "kind": "Egress",
        "metadata": {"name": "e", "annotations": {ANNOTATION: text}},
        "spec": {"appliedTo": {}, "egressIP": "10.0.0.1"},
    }
    with pytest.raises(Invalid, match=r"crd\.antrea\.io/v1beta1-fields"):
        convert("Egress", NEW, found)


def test_a_limit_of_an_egress_survives_an_edit_in_the_older_version() -> None:
    limited: Object = {
        "apiVersion": NEW,
        "kind": "Egress",
        "metadata": {"name": "e", "annotations": {"a": "b"}},
        "spec": {"appliedTo": {}, "egressIP": "10.0.0.1", "bandwidth": {"rate": "1M", "burst": "2M"}},
    }
    older = convert("Egress", OLD, limited)
    assert json.loads(older["metadata"]["annotations"][ANNOTATION]) == {
        "bandwidth": {"rate": "1M", "burst": "2M"}
    }
    older["spec"]["egressIP"] = "10.0.0.9"
    assert convert("Egress", NEW, older) == {**limited, "spec": {**limited["spec"], "egressIP": "10.0.0.9"}}


def test_every_kind_with_two_versions_has_its_conversion() -> None:
    from antrea.features.registry.crds import CRDS

    declared = {crd.conversion: crd.kind for crd in CRDS if len(crd.versions) > 1}
    assert declared == PATHS
    assert set(PATHS.values()) == set(CONVERSIONS)
