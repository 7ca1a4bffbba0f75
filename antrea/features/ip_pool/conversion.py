"""IPPool between v1alpha2, where every range has a subnet, and v1beta1, where the pool has one.

Source: upstream pkg/controller/ipam/convert.go
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import Any

from antrea.errors import Invalid
from antrea.features.framework.conversion_annotation import OLDER, Conversion, Spec, carried, carry

SUBNET = ("gateway", "prefixLength", "vlan")
FOUR = '{"ipVersion":4}'


def newer(spec: Spec, annotations: dict[str, str]) -> Spec:
    """Spec of v1beta1; without ranges it has no subnet, as upstream leaves it, until a user gives one.

    Raises Invalid if the ranges have different subnets.
    """
    ranges = [{**ip_range} for ip_range in spec.get("ipRanges") or ()]
    subnets = [{name: ip_range.pop(name) for name in SUBNET if name in ip_range} for ip_range in ranges]
    if any(_subnet_key(subnet) != _subnet_key(subnets[0]) for subnet in subnets):
        raise Invalid(
            "spec.ipRanges",
            "failed to convert IPPool from version v1alpha2 to to version v1beta1 because the original ipRanges "
            "have different subnet information",
        )
    kept = carried(annotations).get("subnetInfo")
    subnet = subnets[0] if subnets else kept
    others = {name: value for name, value in spec.items() if name not in ("ipVersion", "ipRanges")}
    # without a gateway nothing else says of which family the pool is
    carry({} if subnet or "ipVersion" not in spec else {"ipVersion": spec["ipVersion"]}, annotations, OLDER)
    return {**others, "ipRanges": ranges, **({"subnetInfo": subnet} if subnet else {})}


def older(spec: Spec, annotations: dict[str, str]) -> Spec:
    """Spec of v1alpha2; without ranges the subnet goes into an annotation.

    Raises Invalid if the subnet is not an object. Whatever else is in the store is served: a list with one object that
    cannot be converted fails for all.
    """
    others = {name: value for name, value in spec.items() if name not in ("subnetInfo", "ipRanges")}
    subnet, ranges = spec.get("subnetInfo") or {}, spec.get("ipRanges") or []
    if not isinstance(subnet, dict):
        raise Invalid("spec.subnetInfo", "must be an object")
    carry({"subnetInfo": subnet} if subnet and not ranges else {}, annotations)
    subnet_fields = {name: subnet[name] for name in SUBNET if name in subnet}
    family = _family(annotations.pop(OLDER, ""))
    version = _version(str(subnet["gateway"])) if "gateway" in subnet else family
    return {
        **others,
        "ipVersion": version,
        "ipRanges": [{**ip_range, **subnet_fields} for ip_range in ranges],
    }


def _subnet_key(subnet: dict[str, Any]) -> tuple[Any, ...]:
    return (subnet.get("gateway"), subnet.get("prefixLength"), subnet.get("vlan", 0))


def _version(gateway: str) -> int:
    try:
        address = ip_address(gateway)
    except ValueError:
        return 6  # parity: what Go cannot parse is not IPv4
    return 4 if isinstance(address, IPv6Address) and address.ipv4_mapped else address.version


def _family(text: str) -> int:
    """Return the family that a pool without a subnet was written with. A user may have changed it, so any text is accepted."""
    return 4 if text == FOUR else 6  # parity: what has no gateway is not IPv4


CONVERSIONS = (Conversion("IPPool", newer, older),)
