"""Summary of what this Node advertises and to which routers, for the conditions of Services and Egresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis.controlplane_report import AdvertisedObject, NodeBgpSummary
from antrea.apis.meta import ObjectMetadata
from antrea.facts.family import is_ipv6
from antrea.features.bgp_policy.advertisement import AdvertisedPrefix
from antrea.features.bgp_policy.route_type import EGRESS_TYPE, POD_TYPE
from antrea.features.bgp_policy.state import ESTABLISHED, BgpPeerState

if TYPE_CHECKING:
    from collections.abc import Container

    from antrea.engine import Facts

SERVICE, EGRESS = "Service", "Egress"
MAX_OBJECTS: Final = 10_000
"""Objects of one summary, which keeps it below the size that a server accepts."""


def summary(facts: Facts, node: str, advertised: Container[str]) -> NodeBgpSummary:
    """Make the summary of this Node; `advertised` has the networks in the configuration of its speaker."""
    families: dict[tuple[str, str, str], set[str]] = {}
    for row in facts.all(AdvertisedPrefix):
        if row.type != POD_TYPE and row.prefix in advertised:
            namespace, _, name = row.object.rpartition("/")
            kind = EGRESS if row.type == EGRESS_TYPE else SERVICE
            families.setdefault((kind, namespace, name), set()).add("IPv6" if is_ipv6(row.prefix) else "IPv4")
    return NodeBgpSummary(
        metadata=ObjectMetadata(name=node),
        peers=tuple(sorted(row.address for row in facts.all(BgpPeerState) if row.state == ESTABLISHED)),
        objects=tuple(
            AdvertisedObject(kind=kind, namespace=namespace, name=name, ip_families=tuple(sorted(versions)))
            for (kind, namespace, name), versions in sorted(families.items())[:MAX_OBJECTS]
        ),
    )
