"""Findings of `antctl doctor`: domain names of which more would be forgotten, DNS servers that are not trusted."""

from __future__ import annotations

from antrea.features.framework.doctor import EDIT_CONFIGURATION, ConditionCheck, PolicyKind

CONDITIONS = (
    ConditionCheck(
        "fqdn-cache",
        "FqdnCacheNearlyFull",
        "warning",
        "kubectl -n {namespace} exec {pod} -c antrea-agent -- antctl get fqdncache",
    ),
    ConditionCheck("fqdn-servers", "FqdnServersUntrusted", "warning", EDIT_CONFIGURATION),
)
POLICY_KINDS = (
    PolicyKind("/apis/crd.antrea.io/v1beta1/clusternetworkpolicies", "ClusterNetworkPolicy", "acnp"),
    PolicyKind("/apis/crd.antrea.io/v1beta1/networkpolicies", "NetworkPolicy", "annp"),
)
