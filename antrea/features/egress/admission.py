"""What an Egress may ask for: one address, of a pool that has it.

parity: pkg/controller/egress/validate.go
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from antrea.apis.annotation import PREFERRED_NODES
from antrea.apis.crd.egress import Egress, EgressStatus
from antrea.apis.crd.pool import ExternalIPPool
from antrea.errors import Invalid
from antrea.features.admission import Find, Patch, Warn, Webhook
from antrea.features.egress.preference import doubts
from antrea.features.external_ip_pool.pool import POOLS, PoolRow, pool_row
from antrea.features.quantity import fault

if TYPE_CHECKING:
    from antrea.apis.crd.egress import EgressSpec
    from antrea.engine import Facts
    from antrea.features.admission import Review, Steps


def validate_egress(facts: Facts, review: Review[Egress]) -> Steps:
    """Raises Invalid."""
    egress = review.new
    spec = egress.spec
    if spec.egress_ips:
        raise Invalid("spec.egressIPs", "spec.egressIPs is not supported yet")
    if spec.external_ip_pools:
        raise Invalid("spec.externalIPPools", "spec.externalIPPools is not supported yet")
    if spec.bandwidth is not None:
        for field, text in (("rate", spec.bandwidth.rate), ("burst", spec.bandwidth.burst)):
            if why := fault(text):
                name = f"{field.capitalize()} {text} in Egress {egress.metadata.name}"
                raise Invalid(f"spec.bandwidth.{field}", f"{name} is invalid: {why}")
    old = review.old.spec if review.old is not None else None
    before = (old.egress_ip, old.external_ip_pool) if old is not None else ("", "")
    if (spec.egress_ip, spec.external_ip_pool) != before and spec.egress_ip and spec.external_ip_pool:
        yield from _check_in_pool(facts, spec)
    before_that = review.old.metadata.annotations if review.old is not None else {}
    if egress.metadata.annotations != before_that:
        yield from doubts(egress.metadata.annotations, spec.external_ip_pool)


def warn_of_status(_: Facts, review: Review[Egress]) -> Steps:
    """Users' manifests name a Node in the status to choose it; the API server drops that without a word."""
    if review.new.status != EgressStatus():
        yield Warn(
            "status: dropped, it does not choose a Node; those that are to have the address first are named"
            f" by the annotation {PREFERRED_NODES}"
        )


def _unchanged(_: Facts, __: Review[Egress]) -> tuple[Patch, ...]:
    return ()


def _check_in_pool(facts: Facts, spec: EgressSpec) -> Steps:
    try:
        address = ip_address(spec.egress_ip)
    except ValueError as why:
        raise Invalid("spec.egressIP", f"IP {spec.egress_ip} is not valid") from why
    pool = facts.get(PoolRow, spec.external_ip_pool)
    if pool is None:
        # an Egress may come right behind its pool, before our watch has seen that
        found = yield Find(f"{POOLS}/{spec.external_ip_pool}", ExternalIPPool)
        pool = found and pool_row(found)
    if pool is None:
        raise Invalid("spec.externalIPPool", f"ExternalIPPool {spec.external_ip_pool} does not exist")
    if not any(span.holds(address) for span in pool.spans):
        raise Invalid("spec.egressIP", f"IP {spec.egress_ip} is not within the IP range")


WEBHOOKS = (
    Webhook(
        "egressvalidator.antrea.io", "/validate/egress", ("CREATE", "UPDATE"), "crd.antrea.io", ("v1beta1",),
        "egresses", "Cluster", Egress,
        "one address only; bandwidth in quantities; a new address lies in a pool that exists; warns of annotations that do nothing",
        validate=validate_egress, gates=("Egress",),
    ),
    # a mutating one, because those that validate see the object after the API server has dropped its status
    Webhook(
        "egressmutator.antrea.io", "/mutate/egress", ("CREATE",), "crd.antrea.io", ("v1beta1",),
        "egresses", "Cluster", Egress, "changes nothing; warns that a status is dropped and names the annotation that chooses Nodes",
        "crdmutator.antrea.io", validate=warn_of_status, mutate=_unchanged, gates=("Egress",), failure="Ignore",
    ),
)  # fmt: skip
