"""Validation of an Egress: one address, or lists of them, of pools that have them.

Upstream has the lists in its API and rejects them; by its documentation entries of one index belong together.
parity: pkg/controller/egress/validate.go
"""

from __future__ import annotations

from ipaddress import ip_address, ip_interface
from typing import TYPE_CHECKING, Any, NamedTuple

from antrea.apis.annotation import PREFERRED_NODES
from antrea.apis.crd.egress import Egress, EgressStatus
from antrea.apis.crd.pool import ExternalIPPool
from antrea.errors import Invalid, Unavailable
from antrea.facts.family import is_ipv6
from antrea.features.egress.preference import doubts, survival_doubts
from antrea.features.egress.spec import KILO, MAX_KILOBITS, requested_entries
from antrea.features.external_ip_pool.pool import POOLS, PoolRow, pool_row
from antrea.features.framework.address import canonical, read
from antrea.features.framework.admission import Find, Patch, Warn, Webhook
from antrea.features.framework.ip_range import prefix, single_address, unusable_addresses
from antrea.features.framework.quantity import fault, whole
from antrea.features.framework.selector_warning import selector_doubts

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from ipaddress import IPv4Network, IPv6Network

    from antrea.apis.crd.egress import Bandwidth, Destinations, EgressSpec
    from antrea.engine import Facts
    from antrea.features.framework.admission import Review, Step, Steps

    Network = IPv4Network | IPv6Network

EVERYTHING = {4: "0.0.0.0/0", 6: "::/0"}


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


def check_destinations(wanted: Destinations, address: str) -> Steps:
    """Check the destinations. Raises Invalid; warns of entries that change nothing, or leave nothing."""
    networks: dict[str, list[Network]] = {"cidrs": [], "except": []}
    for field, cidrs in (("cidrs", wanted.cidrs), ("except", wanted.except_)):
        for number, cidr in enumerate(cidrs):
            path = f"spec.destinations.{field}[{number}]"
            try:
                network = prefix(cidr)
            except ValueError as error:
                raise Invalid(path, f"invalid cidr {cidr}") from error
            networks[field].append(network.network)
            if network.ip != network.network.network_address:
                yield Warn(f"{path}: {cidr} counts as {network.network}")
            if address and is_ipv6(address) != is_ipv6(cidr):
                yield Warn(f"{path}: {network.network} is not of the family of {address}, it changes nothing")
    if wanted.cidrs and address and all(is_ipv6(cidr) != is_ipv6(address) for cidr in wanted.cidrs):
        yield Warn(f"spec.destinations.cidrs: none is of the family of {address}, so nothing leaves with it")
    if _leaves_nothing(networks["cidrs"], networks["except"], address):
        yield Warn("spec.destinations.except: leaves nothing that the Egress is for")


def _leaves_nothing(cidrs: Iterable[Network], holes: Iterable[Network], address: str) -> bool:
    """Whether each of the networks is in one of the exceptions."""
    families = (6 if is_ipv6(address) else 4,) if address else (4, 6)
    wide = [ip_interface(EVERYTHING[family]).network for family in families]
    inside = [network for network in cidrs or wide if network.version in families]
    return bool(inside) and all(any(_in(network, hole) for hole in holes) for network in inside)


def _in(network: Network, hole: Network) -> bool:
    same = network.version == hole.version
    return same and network.prefixlen >= hole.prefixlen and network.network_address in hole


FRAME = 1514
"""Bytes of a full Ethernet frame."""


def validate_egress(facts: Facts, review: Review[Egress]) -> Steps:
    """Validate an Egress. Raises Invalid."""
    egress = review.new
    spec = egress.spec
    check_lists(spec)
    old = review.old.spec if review.old is not None else None
    if spec.bandwidth is not None:
        is_new = old is None or old.bandwidth != spec.bandwidth
        yield from _check_bandwidth(egress.metadata.name, spec.bandwidth, is_new=is_new)
    if spec.destinations is not None:
        yield from check_destinations(spec.destinations, spec.egress_ip)
    before = {place.named for place in places(old)} if old is not None else set()
    for place in places(spec):
        if place.address and place.named not in before:
            yield from _check_address(facts, place)
        elif place.pool and place.named not in before:
            yield from _pool_doubts(facts, place)
    if old != spec:
        yield from _spec_doubts(spec)
    yield from _annotation_doubts(review)


def _annotation_doubts(review: Review[Egress]) -> Steps:
    """Warn of annotations, and of the field that takes precedence of one, when they change."""
    egress, old = review.new, review.old
    pooled = next((place.pool for place in places(egress.spec) if place.pool), "")
    is_new = egress.metadata.annotations != (old.metadata.annotations if old is not None else {})
    if is_new:
        yield from doubts(egress.metadata.annotations, pooled)
    if is_new or old is None or old.spec.survive != egress.spec.survive:
        yield from survival_doubts(egress, pooled)


def warn_of_status(_: Facts, review: Review[Egress]) -> Steps:
    """Warn about manifests that name a Node in the status to choose it; the API server drops that silently."""
    if review.new.status != EgressStatus():
        yield Warn(
            "status: dropped, it does not choose a Node; those that are to have the address first are named"
            f" by the annotation {PREFERRED_NODES}"
        )


def _unchanged(_: Facts, __: Review[Egress]) -> tuple[Patch, ...]:
    return ()


def _check_bandwidth(name: str, bandwidth: Bandwidth, *, is_new: bool) -> Steps:
    """Check that a new bandwidth is of a size that a meter can count; upstream accepts any quantity."""
    for field, text in (("rate", bandwidth.rate), ("burst", bandwidth.burst)):
        what = f"{field.capitalize()} {text} in Egress {name} is invalid"
        if why := fault(text):
            raise Invalid(f"spec.bandwidth.{field}", f"{what}: {why}")
        if is_new and not KILO <= whole(text) < (MAX_KILOBITS + 1) * KILO:
            raise Invalid(f"spec.bandwidth.{field}", f"{what}: it must be 1k to {MAX_KILOBITS}k")
    if is_new and whole(bandwidth.burst) < 8 * FRAME:
        yield Warn(
            f"spec.bandwidth.burst: frames of more than {whole(bandwidth.burst) // 8} bytes never pass,"
            f" 13k is room for one of {FRAME}"
        )


def _spec_doubts(spec: EgressSpec) -> Steps:
    if not any(place.address or place.pool for place in places(spec)):
        yield Warn(
            "spec: names neither an address nor an ExternalIPPool to be given one of, so it does nothing"
        )
    yield from selector_doubts(spec)


def _check_address(facts: Facts, place: RequestedAddress) -> Steps:
    """Check the address; upstream checks only those of pools."""
    if place.pool:
        yield from _check_in_pool(facts, place)
    address = read(place.address)
    if address is None:
        raise Invalid(place.address_field, f"IP {place.address} is not valid")
    if why := unusable_addresses(single_address(address)):
        raise Invalid(place.address_field, f"IP {place.address} is one of {why}")


def _check_in_pool(facts: Facts, place: RequestedAddress) -> Steps:
    try:
        address = ip_address(place.address)
    except ValueError as error:
        raise Invalid(place.address_field, f"IP {place.address} is not valid") from error
    pool = yield from _pool(facts, place.pool)
    if pool is None:
        raise Invalid(place.pool_field, f"ExternalIPPool {place.pool} does not exist")
    if not any(span.holds(address) for span in pool.spans):
        raise Invalid(place.address_field, f"IP {place.address} is not within the IP range")


def _pool_doubts(facts: Facts, place: RequestedAddress) -> Steps:
    """Warn about a pool that does not exist, which is admitted, as it may come later; upstream does not warn."""
    try:
        pool = yield from _pool(facts, place.pool)
    except Unavailable:
        return  # who cannot be asked is not warned of
    if pool is None:
        yield Warn(
            f"{place.pool_field}: ExternalIPPool {place.pool} does not exist: until it does, Pods that the Egress"
            " selects get no packet out of the cluster"
        )


def _pool(facts: Facts, name: str) -> Generator[Step, Any, PoolRow | None]:
    """Return the pool, also if it was created too recently for the watch."""
    pool = facts.get(PoolRow, name)
    if pool is None:
        stored = yield Find(POOLS, name, ExternalIPPool)
        return pool_row(stored) if stored else None
    return pool


WEBHOOKS = (
    Webhook(
        "egressvalidator.antrea.io", "/validate/egress", ("CREATE", "UPDATE"), "crd.antrea.io", ("v1beta1",),
        "egresses", "Cluster", Egress,
        "addresses and pools of lists match in number and family; bandwidth consists of quantities and destinations of CIDRs; a new address is one that a Node can use as source, in a pool that exists. Warns about pools that do not exist, and about annotations, selectors and destinations without effect",
        validate=validate_egress, gates=("Egress",),
    ),
    # a mutating one, because those that validate see the object after the API server has dropped its status
    Webhook(
        "egressmutator.antrea.io", "/mutate/egress", ("CREATE",), "crd.antrea.io", ("v1beta1",),
        "egresses", "Cluster", Egress, "changes nothing. Warns that a status is dropped, and names the annotation that selects Nodes",
        "crdmutator.antrea.io", validate=warn_of_status, mutate=_unchanged, gates=("Egress",), failure="Ignore",
    ),
)  # fmt: skip
