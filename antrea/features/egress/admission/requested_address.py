"""Addresses and pools that an Egress requests, and the fields that name each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.errors import Invalid
from antrea.features.egress.spec import requested_entries
from antrea.features.framework.address import canonical

if TYPE_CHECKING:
    from antrea.apis.crd.egress import EgressSpec


class RequestedAddress(NamedTuple):
    """An address and its pool, and the fields that name them."""

    address: str
    pool: str
    address_field: str = "spec.egressIP"
    pool_field: str = "spec.externalIPPool"

    @property
    def named(self) -> tuple[str, str]:
        return self.address, self.pool


def places(spec: EgressSpec) -> list[RequestedAddress]:
    """Return the requested addresses: one, or as many as the lists have entries."""
    return [
        RequestedAddress(address, pool, f"spec.egressIPs[{index}]", f"spec.externalIPPools[{index}]")
        for index, (address, pool) in enumerate(requested_entries(spec))
    ] or [RequestedAddress(spec.egress_ip, spec.external_ip_pool)]


def check_lists(spec: EgressSpec) -> None:
    """Check that the lists belong together entry by entry, and each has an address or a pool. Raises Invalid."""
    ips, pools = spec.egress_ips, spec.external_ip_pools
    if ips and pools and len(ips) != len(pools):
        raise Invalid(
            "spec.egressIPs",
            f"{len(ips)} addresses and {len(pools)} pools: each entry of one belongs to that of the other",
        )
    seen: dict[str, int] = {}
    for index, (ip, pool) in enumerate(requested_entries(spec)):
        if not ip and not pool:
            raise Invalid(f"spec.egressIPs[{index}]", "has neither an address nor a pool to be given one of")
        if ip and (first := seen.setdefault(canonical(ip), index)) != index:
            raise Invalid(f"spec.egressIPs[{index}]", f"IP {ip} is that of spec.egressIPs[{first}]")
