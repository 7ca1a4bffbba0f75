"""ExternalIPPools as agents see them, of all addresses: for tests that are about something else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.facts.member import PoolSelector

if TYPE_CHECKING:
    from antrea.facts.group import Requirement

EVERYTHING = ((4, 0, 2**32 - 1), (6, 0, 2**128 - 1))


def wide_pool(
    pool: str, nodes: tuple[Requirement, ...] = (), gateway: str = "", prefix: int = 0, vlan: int = 0
) -> PoolSelector:
    """Its ranges hold every address."""
    return PoolSelector(pool, nodes, gateway, prefix, vlan, EVERYTHING)
