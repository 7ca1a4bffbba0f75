"""NodeLatencyMonitor of crd.antrea.io/v1alpha1.

Source: upstream pkg/apis/crd/v1alpha1/types.go, build/charts/antrea/crds/nodelatencymonitor.yaml
"""

from __future__ import annotations

from typing import Annotated

from antrea.apis.crd.part import CrdStruct, Metadata
from antrea.apis.schema import doc


class NodeLatencyMonitorSpec(CrdStruct, frozen=True):
    """How often."""

    ping_interval_seconds: Annotated[
        int, doc("Seconds between two pings.", format="int32", minimum=1, default=60)
    ]


class NodeLatencyMonitor(CrdStruct, frozen=True):
    """Round-trip times between Nodes; the one that counts is named default."""

    spec: NodeLatencyMonitorSpec
    metadata: Metadata = Metadata()
