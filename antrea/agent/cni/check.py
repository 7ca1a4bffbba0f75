"""CNI CHECK: compare what ADD answered with the current state.

# parity: pkg/agent/cniserver/server.go validatePrevResult, pod_configuration.go checkInterfaces
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.agent.cni.context import CniContext, answering
from antrea.agent.cni.pod_interface import ports_of
from antrea.agent.cni.request import Call, Failed
from antrea.apis.cni import Code
from antrea.outside.disk.ipam import Allocation

if TYPE_CHECKING:
    from collections.abc import Iterable

_DEFAULT_ROUTES = ("0.0.0.0/0", "::/0")


async def check(context: CniContext, call: Call) -> None:
    """Compare prevResult with the reservation, the OVS port and the interfaces. Raises Failed: 3, 7, 101 or 103."""
    result = call.config.prev_result
    if result is None:
        raise Failed(Code.INVALID_NETWORK_CONFIG, "CHECK needs prevResult, the result of ADD")
    ends = {(end.name, end.sandbox): end for end in result.interfaces}
    pod_end = ends.get((call.if_name, call.netns))
    if pod_end is None:
        raise Failed(Code.INVALID_NETWORK_CONFIG, "prevResult does not match network configuration")
    ports = ports_of(context, call)
    if not ports:
        raise Failed(
            Code.UNKNOWN_CONTAINER,
            f"Container {call.container_id} has no interface {call.if_name} on this Node",
        )
    port = ports[0]
    addresses = tuple(ip.address for ip in result.ips)
    ips = {address.split("/")[0] for address in addresses}
    with answering(Code.IPAM_FAILURE):
        held = set(await context.ipam.held(call.container_id, call.if_name))
    if held != ips:
        raise Failed(Code.IPAM_FAILURE, f"Reserved are {_joined(held)}, prevResult has {_joined(ips)}")
    current = (port.pod.mac, set(port.pod.ips), (port.name, "") in ends, port.broken)
    if current != (pod_end.mac.lower(), ips, True, False):
        raise Failed(
            Code.CHECK_INTERFACE_FAILURE,
            f"OVS port {port.name} does not match prevResult",
            details=f"{port.pod.mac} {_joined(port.pod.ips)}" + ", its device is missing" * port.broken,
        )
    gateways = tuple(route.gw for route in result.routes if route.dst in _DEFAULT_ROUTES and route.gw)
    veth = context.veth(call, port.name, Allocation(addresses, gateways), mac=port.pod.mac, mtu=0)
    with answering(Code.CHECK_INTERFACE_FAILURE, unavailable=Code.CHECK_INTERFACE_FAILURE):
        await context.netns.check_pod_veth(veth)


def _joined(ips: Iterable[str]) -> str:
    return ", ".join(sorted(ips)) or "no addresses"
