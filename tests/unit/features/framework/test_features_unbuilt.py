"""Annotations for what is not built: who wrote one is told, and rows of what is built are found."""

from __future__ import annotations

from antrea.features.framework.gate import GATES
from antrea.features.framework.unbuilt import ANNOTATIONS, unbuilt


def test_each_annotation_of_a_feature_that_is_not_built_has_a_sentence_on_its_kind_alone() -> None:
    annotations = {"ipam.antrea.io/ippools": "p", "ipam.antrea.io/pod-ips": "10.0.0.1", "x": "y"}
    assert unbuilt("Pod", annotations) == (
        "annotation ipam.antrea.io/ippools: the feature AntreaIPAM is not built yet: addresses come from the Node's Pod CIDRs; "
        "annotation ipam.antrea.io/pod-ips: the feature AntreaIPAM is not built yet: addresses come from the Node's Pod CIDRs"
    )
    assert unbuilt("Service", annotations) == ""
    assert unbuilt("Service", {"service.antrea.io/external-ip-pool": "p"}) == ""


def test_no_row_is_left_of_a_feature_that_is_built() -> None:
    built = {gate.name: gate.built for gate in GATES}
    assert [row for row in ANNOTATIONS if built[row.gate]] == []
