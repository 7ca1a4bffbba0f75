"""NodeIPAM in the controller: the leader gives each Node without Pod CIDRs one of each cluster CIDR.

parity: third_party/ipam/nodeipam. Upstream ends at start if a Node has a Pod CIDR outside the cluster CIDRs; here it keeps it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import msgspec

from antrea.engine import Unit
from antrea.facts.fact import Fact
from antrea.features.framework.controller_feature import ControllerFeature
from antrea.features.node_ipam.gate import GATE
from antrea.rank import Rank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.apis.core import Node
    from antrea.engine import Facts

PATH = "/api/v1/nodes"


class NodePodCidrs(Fact, frozen=True):
    """Pod CIDRs that a Node has, if any."""

    name: str
    uid: str
    cidrs: tuple[str, ...]

    @property
    def key(self) -> str:
        return self.name


class PodCidrClaim(msgspec.Struct, frozen=True):
    """An entry: the Node has Pod CIDRs. Withdrawing it frees them."""

    node: NodePodCidrs

    rank: ClassVar[int] = Rank.REPORT
    """A refusal concerns this Node alone."""
    category: ClassVar[int] = 0

    @property
    def key(self) -> str:
        return self.node.name


def node_row(node: Node) -> NodePodCidrs:
    """Make the row of a Node. The API server accepts CIDRs only."""
    meta, spec = node.metadata, node.spec
    cidrs = spec.pod_cidrs or ((spec.pod_cidr,) if spec.pod_cidr else ())
    return NodePodCidrs(meta.name, meta.uid, cidrs)


def pod_cidr_claims(_: Facts, node: NodePodCidrs) -> Iterator[PodCidrClaim]:
    """Yield the claim of each Node; there are rows only while `nodeIPAM.enableNodeIPAM` is true (controller_part.py)."""
    yield PodCidrClaim(node)


FEATURE = ControllerFeature(name=GATE, units=(Unit(NodePodCidrs, pod_cidr_claims),), gate=GATE)
FEATURES = (FEATURE,)
