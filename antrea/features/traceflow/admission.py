"""Validation of a Traceflow before it can start.

parity: pkg/controller/traceflow/validate.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.core import Pod
from antrea.apis.crd.traceflow import Traceflow
from antrea.errors import Invalid
from antrea.features.framework.admission import Find, Webhook

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.features.framework.admission import Review, Steps


def validate_traceflow(_: Facts, review: Review[Traceflow]) -> Steps:
    """Validate a Traceflow. Raises Invalid in upstream's words."""
    spec = review.new.spec
    source, destination = spec.source, spec.destination
    if not spec.live_traffic:
        if not (source.namespace and source.pod):
            raise Invalid("", "source Pod must be specified in non-live-traffic Traceflow")
        name = f"{source.namespace}/{source.pod}"
        # asked when needed: rows of all Pods of a large cluster would be kept for this alone
        pod = yield Find("/api/v1/pods", source.pod, Pod, source.namespace)
        if pod is None:
            raise Invalid("", f"requested source Pod {name} not found")
        if pod.spec.host_network:
            raise Invalid(
                "",
                "using hostNetwork Pod as source in non-live-traffic Traceflow is not supported",
            )
    if not source.pod and not destination.pod:
        name = review.new.metadata.name
        raise Invalid("", f"Traceflow {name} has neither source nor destination Pod specified")


WEBHOOKS = (
    Webhook(
        "traceflowvalidator.antrea.io", "/validate/traceflow", ("CREATE", "UPDATE"), "crd.antrea.io", ("v1beta1",),
        "traceflows", "Cluster", Traceflow,
        "without live traffic, the source Pod exists and does not use hostNetwork; with live traffic, a source or a destination Pod is named",
        validate=validate_traceflow, gates=("Traceflow",),
    ),
)  # fmt: skip
