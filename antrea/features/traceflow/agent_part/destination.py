"""Destination of a Traceflow, read from the API where the facts of this Node do not show it."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING

from antrea.apis.core import Pod, Service
from antrea.config.agent import AgentConfig
from antrea.errors import Invalid
from antrea.features.framework.gate import EnabledGates
from antrea.features.proxy.agent import GATE as ANTREA_PROXY

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.features.traceflow.preparation import Target
    from antrea.features.traceflow.trace import RunningTrace
    from antrea.outside.kube.client import Kube


async def destination_of(facts: Facts, kube: Kube, trace: RunningTrace) -> Target:
    """Resolve the destination; None if it is an address, or not needed. Raises Invalid, Unavailable, Refused."""
    to = trace.spec.destination
    namespace = to.namespace or "default"
    if trace.receiver_only:
        return None
    if to.ip:
        _check_address(facts, to.ip)
        return None
    if to.pod:
        pod = await kube.get(f"/api/v1/namespaces/{namespace}/pods/{to.pod}", Pod)
        if pod is None:
            raise Invalid(
                "spec.destination.pod", f'failed to get the destination Pod: pods "{to.pod}" not found'
            )
        return pod
    if not to.service:
        return None
    if not _has_proxy(facts):
        raise Invalid("spec.destination.service", "using Service destination requires AntreaProxy enabled")
    service = await kube.get(f"/api/v1/namespaces/{namespace}/services/{to.service}", Service)
    if service is None:
        raise Invalid(
            "spec.destination.service",
            f'failed to get the destination Service: services "{to.service}" not found',
        )
    return service


def _check_address(facts: Facts, address: str) -> None:
    """Check an address; without AntreaProxy a ClusterIP is translated outside of the pipeline. Raises Invalid."""
    config = facts.get(AgentConfig)
    if config is None or _has_proxy(facts):
        return
    for cidr in filter(None, (config.service_cidr, config.service_cidr_v6)):
        if ip_address(address) in ip_network(cidr, strict=False):
            raise Invalid("spec.destination.ip", "using ClusterIP destination requires AntreaProxy enabled")


def _has_proxy(facts: Facts) -> bool:
    gates = facts.get(EnabledGates)
    return gates is not None and ANTREA_PROXY in gates
