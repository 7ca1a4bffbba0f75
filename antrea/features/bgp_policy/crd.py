"""Kind of BGPPolicy, and how the API server serves it."""

from __future__ import annotations

from antrea.apis.crd import bgp
from antrea.apis.crd.definition import AGE, Column, Crd, Version
from antrea.features.bgp_policy.gate import GATE

CRDS = (
    Crd(
        "bgppolicies",
        (),
        "Cluster",
        (
            Version(
                "v1alpha1",
                bgp.BGPPolicy,
                (Column("Local ASN", "integer", ".spec.localASN", "AS number of the Nodes."), AGE),
                status=True,
            ),
        ),
        (GATE,),
    ),
)
