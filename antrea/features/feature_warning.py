"""Webhooks of kinds that upstream has none for: their one task is to say that a feature is not built yet.

They never deny, also while nobody answers. A feature that is built loses its row here.
"""

from __future__ import annotations

from typing import Any

from antrea.features.admission import Webhook

_KINDS = (
    # resource, version, gate of the feature that acts on it
    ("bgppolicies", "v1alpha1", "BGPPolicy"),
    ("trafficcontrols", "v1alpha2", "TrafficControl"),
    ("flowexporterdestinations", "v1alpha1", "FlowExporter"),
    ("nodelatencymonitors", "v1alpha1", "NodeLatencyMonitor"),
    ("externalnodes", "v1alpha1", "ExternalNode"),
    ("externalentities", "v1alpha2", "ExternalNode"),
)

WEBHOOKS = tuple(
    Webhook(
        f"{resource}.feature.antrea.io", f"/validate/feature/{resource}", ("CREATE",), "crd.antrea.io", (version,),
        resource, "*", dict[str, Any], "warns while the feature is not built", feature=gate, failure="Ignore",
    )
    for resource, version, gate in _KINDS
)  # fmt: skip
