"""IPPool between v1alpha2, where every range has a subnet, and v1beta1, where the pool has one.

Source: upstream pkg/controller/ipam/convert.go
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import Any

from antrea.errors import Invalid
from antrea.features.carried import Spec, carried, carry

SUBNET = ("gateway", "prefixLength", "vlan")


def newer(spec: Spec, annotations: dict[str, str]) -> Spec:
    """Spec of v1beta1. Raises Invalid if the ranges have different subnets, or if there is none to take one from."""
    ranges = [{**found} for found in spec.get("ipRanges", ())]
    subnets = [{name: found.pop(name) for name in SUBNET if name in found} for found in ranges]
    if any(_told(subnet) != _told(subnets[0]) for subnet in subnets):
        raise Invalid(
            "spec.ipRanges",
            "failed to convert IPPool from version v1alpha2 to to version v1beta1 because the original ipRanges "
            "have different subnet information",
        )
    kept = carried(annotations).get("subnetInfo")
    if not subnets and kept is None:
        raise Invalid("spec.ipRanges", "is empty, so there is no subnet to take for spec.subnetInfo")
    others = {name: value for name, value in spec.items() if name not in ("ipVersion", "ipRanges")}
    return {**others, "ipRanges": ranges, "subnetInfo": subnets[0] if subnets else kept}


def older(spec: Spec, annotations: dict[str, str]) -> Spec:
    """Spec of v1alpha2; without ranges the subnet goes into an annotation."""
    others = {name: value for name, value in spec.items() if name not in ("subnetInfo", "ipRanges")}
    subnet, ranges = spec.get("subnetInfo", {}), spec.get("ipRanges", [])
    if not ranges:
        carry({"subnetInfo": subnet}, annotations)
    told = {name: subnet[name] for name in SUBNET if name in subnet}
    version = _version(str(subnet.get("gateway", "")))
    return {**others, "ipVersion": version, "ipRanges": [{**found, **told} for found in ranges]}


def _told(subnet: dict[str, Any]) -> tuple[Any, ...]:
    return (subnet.get("gateway"), subnet.get("prefixLength"), subnet.get("vlan", 0))


def _version(gateway: str) -> int:
    try:
        address = ip_address(gateway)
    except ValueError:
        return 6  # parity: what Go cannot parse is not IPv4
    return 4 if isinstance(address, IPv6Address) and address.ipv4_mapped else address.version
