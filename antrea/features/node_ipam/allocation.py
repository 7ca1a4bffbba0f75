"""Allocation of Pod CIDRs: one for each Node from each cluster CIDR, in the order of the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.facts.family import is_ipv6
from antrea.features.node_ipam.cidr_set import CidrSet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.config.controller import NodeIPAM

SERVICES = "addresses of Services"
"""Owner of what serviceCIDR and serviceCIDRv6 leave out."""


class Shared(NamedTuple):
    """A CIDR of a Node that others have, too."""

    cidr: str
    others: tuple[str, ...]


class Allocation:
    """CIDRs of all Nodes."""

    def __init__(self, config: NodeIPAM) -> None:
        sizes = {False: config.node_cidr_mask_size_ipv4, True: config.node_cidr_mask_size_ipv6}
        self._sets = [CidrSet(cidr, sizes[is_ipv6(cidr)]) for cidr in config.cluster_cidrs]
        self._held: dict[str, tuple[str, ...]] = {}
        """CIDRs by Node."""
        for cidr in filter(None, (config.service_cidr, config.service_cidr_v6)):
            for cidr_set in self._sets:
                cidr_set.occupy(cidr, SERVICES)

    def hold(self, node: str, cidrs: Sequence[str]) -> list[Shared]:
        """Note the CIDRs that a Node has, in place of others; return those that are not its alone."""
        self.free(node)
        self._held[node] = tuple(cidrs)
        shared = []
        for cidr in cidrs:
            others = set[str]().union(*(cidr_set.occupy(cidr, node) for cidr_set in self._sets))
            if others:
                shared.append(Shared(cidr, tuple(sorted(others))))
        return shared

    def free(self, node: str) -> bool:
        """Free the CIDRs of a Node; return whether it had any."""
        cidrs = self._held.pop(node, ())
        for cidr in cidrs:
            for cidr_set in self._sets:
                cidr_set.release(cidr, node)
        return bool(cidrs)

    def allocate(self, node: str) -> tuple[tuple[str, ...], str]:
        """Take CIDRs for a Node that has none; return them, or none and why there is none."""
        taken: list[str] = []
        self.free(node)
        for cidr_set in self._sets:
            cidr = cidr_set.allocate(node)
            if not cidr:
                self._held[node] = tuple(taken)
                self.free(node)
                return (), f"all {cidr_set.description} are in use"
            taken.append(cidr)
        self._held[node] = tuple(taken)
        return tuple(taken), ""

    def outside(self, cidrs: Sequence[str]) -> list[str]:
        """Return which CIDRs of a Node are none of those that are allocated here."""
        return [cidr for cidr in cidrs if not any(cidr_set.holds(cidr) for cidr_set in self._sets)]
