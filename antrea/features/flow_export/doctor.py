"""Findings of `antctl doctor`: a collector that does not answer, destinations while flow export is off."""

from __future__ import annotations

from antrea.features.framework.doctor import CRD, EDIT_CONFIGURATION, ConditionCheck, GatedKind

CONDITIONS = (ConditionCheck("flow-collector", "FlowCollectorUnreachable", "warning", EDIT_CONFIGURATION),)
GATED_KINDS = (
    GatedKind(f"{CRD}/v1alpha1/flowexporterdestinations", "FlowExporterDestination", "FlowExporter"),
)
