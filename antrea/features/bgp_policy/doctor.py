"""Findings of `antctl doctor` on sessions with routers."""

from __future__ import annotations

from antrea.features.bgp_policy.gate import GATE
from antrea.features.framework.doctor import CRD, ConditionCheck, GatedKind, repair_engine

_PEERS = "kubectl -n {namespace} exec {pod} -c antrea-agent -- antctl get bgppeers"
_POLICY = "kubectl get bgppolicies -o yaml"
CONDITIONS = (
    ConditionCheck("bgp-engine", "BGPEngineDown", "error", repair_engine("antrea-bgp-engine")),
    ConditionCheck("bgp-configuration", "BGPConfigurationRefused", "error", _POLICY),
    ConditionCheck("bgp-configuration", "BGPPeersUnusable", "error", _POLICY),
    ConditionCheck("bgp-configuration", "BGPSettingsIgnored", "warning", _POLICY),
    ConditionCheck("bgp-peers", "BGPPeersDown", "error", _PEERS),
    ConditionCheck("bgp-peers", "BFDPeersDown", "error", _PEERS),
    ConditionCheck(
        "bgp-router-id",
        "BGPRouterIDDuplicate",
        "error",
        "kubectl annotate --overwrite node NODE node.antrea.io/bgp-router-id=ADDRESS",
    ),
)
GATED_KINDS = (GatedKind(f"{CRD}/v1alpha1/bgppolicies", "BGPPolicy", GATE),)
