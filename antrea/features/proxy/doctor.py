"""Finding of `antctl doctor`: rules without which direct server return between Nodes without tunnels is none."""

from __future__ import annotations

from antrea.features.framework.doctor import ConditionCheck

CONDITIONS = (
    ConditionCheck(
        "load-balancer-mode",
        "LoadBalancerModeUnavailable",
        "warning",
        "modprobe -a nft_dup_ipv4 nft_dup_ipv6",
    ),
)
