"""Findings of `antctl doctor`: external IPs that every Node answers for, or that no neighbour learns of."""

from __future__ import annotations

from antrea.features.framework.doctor import ConditionCheck

STRICT_ARP = (
    "kubectl -n kube-system get configmap kube-proxy -o yaml | sed 's/strictARP: false/strictARP: true/' | kubectl apply -f - && "
    "kubectl -n kube-system rollout restart daemonset kube-proxy"
)
CONDITIONS = (
    ConditionCheck("strict-arp", "StrictARPMissing", "error", STRICT_ARP),
    ConditionCheck("external-ips", "ExternalIPsUnheard", "error", "ip neigh; ip -s link"),
)
