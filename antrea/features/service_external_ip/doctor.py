"""Findings of `antctl doctor`: external IPs that are missing, that every Node answers for, or that no neighbour learns of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.apis.service_address import ALLOCATED
from antrea.features.framework.doctor import (
    ConditionCheck,
    ObjectCheck,
    ObjectFinding,
    conditions_of,
    message_of,
    with_status,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

STRICT_ARP = (
    "kubectl -n kube-system get configmap kube-proxy -o yaml | sed 's/strictARP: false/strictARP: true/' | kubectl apply -f - && "
    "kubectl -n kube-system rollout restart daemonset kube-proxy"
)
CONDITIONS = (
    ConditionCheck("strict-arp", "StrictARPMissing", "error", STRICT_ARP),
    ConditionCheck("external-ips", "ExternalIPsUnheard", "error", "ip neigh; ip -s link"),
)


def service_findings(item: Mapping[str, Any]) -> Iterator[ObjectFinding]:
    """Yield why a Service that asks for an external IP has none."""
    if waits := with_status(conditions_of(item), ALLOCATED, "False"):
        yield ObjectFinding("error", f"has no external IP: {message_of(waits)}")


OBJECT_CHECKS = (
    ObjectCheck(
        "service-external-ips",
        "/api/v1/services",
        "Service",
        "services",
        service_findings,
        {"fieldSelector": "spec.type=LoadBalancer"},
    ),
)
