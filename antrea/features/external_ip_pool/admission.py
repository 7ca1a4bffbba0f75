"""Validation of an ExternalIPPool: ranges of one subnet that overlap no other, of any pool.

Beyond upstream, a new range has only addresses with which a Node can send, and a new gateway is one that a router can have.
parity: pkg/controller/externalippool/validate.go
"""

from __future__ import annotations

from ipaddress import ip_address, ip_interface
from typing import TYPE_CHECKING

from antrea.apis import core
from antrea.apis.crd.egress import Egress
from antrea.apis.crd.pool import ExternalIPPool
from antrea.apis.egress_address import EGRESSES
from antrea.apis.service_address import SERVICES
from antrea.errors import Invalid, Unavailable
from antrea.features.external_ip_pool.crd import GATES
from antrea.features.external_ip_pool.pool import WATCHED, PoolRow, pool_row, spans_of
from antrea.features.framework.admission import FindAll, Warn, Webhook
from antrea.features.framework.ip_range import (
    TakenRanges,
    check_inside,
    check_kept,
    single_address,
    subnet,
    unusable_addresses,
)
from antrea.features.framework.selector_warning import selector_doubts
from antrea.features.framework.service_pool import pools_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from antrea.apis.crd.pool import ExternalIPPoolSpec, SubnetInfo
    from antrea.engine import Facts
    from antrea.features.framework.admission import Review, Steps
    from antrea.features.framework.ip_range import Span

__all__ = ["WATCHED", "WEBHOOKS"]

MAX_NAMED = 5


def validate_pool(facts: Facts, review: Review[ExternalIPPool]) -> Steps:
    """Validate a pool. Raises Invalid."""
    spec = review.new.spec
    info = spec.subnet_info
    within = subnet(info.gateway, info.prefix_length) if info else None
    spans = spans_of(spec.ip_ranges)
    check_inside(spans, within)
    _check_alone(facts, review.new.metadata.name, spans)
    before = pool_row(review.before).spans if review.old is not None else ()
    if review.operation == "UPDATE":
        check_kept(before, spans)
    _check_useful(spans, before)
    old = review.old.spec if review.old is not None else None
    if info and (old is None or old.subnet_info != info):
        _check_gateway(info)
    if old != spec:
        yield from _doubts(spec, spans)


def _check_useful(spans: Sequence[Span], before: Collection[Span]) -> None:
    for index, pool_range in enumerate(spans):
        if pool_range not in before and (why := unusable_addresses(pool_range)):
            raise Invalid(f"spec.ipRanges[{index}]", f"range [{pool_range.text}] has {why}")


def _check_gateway(info: SubnetInfo) -> None:
    gateway_interface = ip_interface(f"{info.gateway}/{info.prefix_length}")
    path = "spec.subnetInfo.gateway"
    if why := unusable_addresses(single_address(gateway_interface.ip)):
        raise Invalid(path, f"{info.gateway} is one of {why}")
    ends = (gateway_interface.network.network_address, gateway_interface.network.broadcast_address)
    if gateway_interface.version == 4 and info.prefix_length < 31 and gateway_interface.ip in ends:
        raise Invalid(
            path,
            f"{info.gateway} is the first or last address of {gateway_interface.network}: no router has it",
        )


def _doubts(spec: ExternalIPPoolSpec, spans: Sequence[Span]) -> Iterator[Warn]:
    if not spans:
        yield Warn("spec.ipRanges: is empty, so the pool has no address to give")
    gateway = spec.subnet_info and ip_address(spec.subnet_info.gateway)
    for index, pool_range in enumerate(spans):
        if gateway and pool_range.holds(gateway):
            yield Warn(
                f"spec.subnetInfo.gateway: {gateway} lies in spec.ipRanges[{index}]: no Egress is given it"
            )
    yield from selector_doubts(spec)


def _check_alone(facts: Facts, name: str, spans: Sequence[Span]) -> None:
    others = [(pool.name, span) for pool in facts.all(PoolRow) if pool.name != name for span in pool.spans]
    taken = TakenRanges(span for _, span in others)
    for index, pool_range in enumerate(spans):
        number = taken.first_over(pool_range)
        if number is not None:
            pool, other = others[number]
            raise Invalid(
                f"spec.ipRanges[{index}]",
                f"range [{pool_range.text}] overlaps with range [{other.text}] of ExternalIPPool {pool}",
            )


def warn_of_users(_: Facts, review: Review[ExternalIPPool]) -> Steps:
    """Warn about users of a deleted pool, whose addresses go with it; upstream gives no warning."""
    name = review.before.metadata.name
    try:
        egresses = yield FindAll(EGRESSES, Egress)
    except Unavailable:
        egresses = ()
    users = [row for row in egresses if name in (row.spec.external_ip_pool, *row.spec.external_ip_pools)]
    if users:
        yield Warn(
            f"ExternalIPPool {name} is used by Egress {_named(row.metadata.name for row in users)}: these lose their addresses,"
            " and until there is a pool of that name, Pods that they select get no packet out of the cluster"
        )
    try:
        services = yield FindAll(SERVICES, core.Service)
    except Unavailable:
        return
    balanced = [f"{row.metadata.namespace}/{row.metadata.name}" for row in services if name in pools_of(row)]
    if balanced:
        yield Warn(
            f"ExternalIPPool {name} is used by Service {_named(balanced)}: these lose their external IPs until there is a"
            " pool of that name"
        )


def _named(names: Iterable[str]) -> str:
    ordered = sorted(names)
    return ", ".join(ordered[:MAX_NAMED]) + (
        f" and {len(ordered) - MAX_NAMED} more" if len(ordered) > MAX_NAMED else ""
    )


WEBHOOKS = (
    Webhook(
        "externalippoolvalidator.antrea.io", "/validate/externalippool", ("CREATE", "UPDATE"), "crd.antrea.io",
        ("v1beta1",), "externalippools", "Cluster", ExternalIPPool,
        "each range has one IP family, is in the subnet, overlaps with no range of any pool, and has addresses that Nodes can use as source; ranges cannot be removed or changed. Warns about selectors that match nothing",
        validate=validate_pool, gates=GATES, reads=(PoolRow,), anew=WATCHED,
    ),
    # of its own, because a pool can be deleted also while no controller runs
    Webhook(
        "externalippoolusers.antrea.io", "/validate/externalippool/users", ("DELETE",), "crd.antrea.io",
        ("v1beta1",), "externalippools", "Cluster", ExternalIPPool,
        "warns that Egresses and Services use the pool that is deleted, and names the consequences for them",
        validate=warn_of_users, failure="Ignore",
    ),
)  # fmt: skip
