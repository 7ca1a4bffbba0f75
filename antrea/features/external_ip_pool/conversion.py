"""ExternalIPPool between v1alpha2 and v1beta1, which has `subnetInfo` besides.

Source: build/charts/antrea/crds/externalippool.yaml of upstream v1.15.1 and of main
"""

from __future__ import annotations

from antrea.features.framework.conversion_annotation import Conversion, Spec, added, removed


def newer(spec: Spec, annotations: dict[str, str]) -> Spec:
    """Make the spec of v1beta1. Raises Invalid if the annotation with what v1alpha2 lacks is invalid."""
    return added(spec, annotations, "subnetInfo")


def older(spec: Spec, annotations: dict[str, str]) -> Spec:
    """Make the spec of v1alpha2; fields that it lacks go into an annotation."""
    return removed(spec, annotations, "subnetInfo")


CONVERSIONS = (Conversion("ExternalIPPool", newer, older),)
