"""Status of BGPPolicies: how many Nodes follow each, and which older ones others follow instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis.core import Node
from antrea.apis.crd.part import Condition
from antrea.apis.status import Status
from antrea.engine import Unit
from antrea.features.bgp_policy import advertised
from antrea.features.bgp_policy.followed import FollowedPolicy, NodeLabels, followed_policy, node_labels
from antrea.features.bgp_policy.policy import PATH, WATCHED, BgpPolicyRow
from antrea.features.framework.admission import Watched
from antrea.features.framework.controller_feature import ControllerFeature

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts

MANAGER: Final = "antrea-controller"
EFFECTIVE: Final = "Effective"
MAX_NAMED: Final = 5
"""Nodes that a message names."""


def bgp_policy_status(facts: Facts, policy: BgpPolicyRow) -> Iterator[Status]:
    """Yield the condition of a policy."""
    if not facts.all(NodeLabels):
        return  # not listed yet
    rows = sorted(facts.by(FollowedPolicy, "selected_by", policy.name), key=lambda row: row.node)
    yield Status(
        path=f"{PATH}/{policy.name}",
        kind="BGPPolicy",
        manager=MANAGER,
        conditions=(_condition(policy.name, rows),),
    )


def _condition(name: str, rows: list[FollowedPolicy]) -> Condition:
    others = [row for row in rows if row.policy != name]
    if not rows:
        return Condition(EFFECTIVE, "False", reason="NoNodes", message="spec.nodeSelector selects no Node")
    if not others:
        return Condition(EFFECTIVE, "True", reason="Followed", message=f"{len(rows)} Nodes follow it")
    named = ", ".join(f"{row.node} follows {row.policy}" for row in others[:MAX_NAMED])
    more = f" and {len(others) - MAX_NAMED} more" if len(others) > MAX_NAMED else ""
    message = f"{len(others)} of {len(rows)} selected Nodes follow an older policy: {named}{more}"
    if len(others) < len(rows):
        return Condition(EFFECTIVE, "True", reason="PartlyFollowed", message=message)
    return Condition(EFFECTIVE, "False", reason="OlderPolicy", message=message)


FEATURES = (
    ControllerFeature(
        name="BGPPolicyStatus",
        watched=(WATCHED, Watched("/api/v1/nodes", Node, NodeLabels, node_labels)),
        units=(
            Unit(NodeLabels, followed_policy, yields=(FollowedPolicy,)),
            Unit(BgpPolicyRow, bgp_policy_status),
        ),
    ),
    advertised.FEATURE,
    advertised.EGRESSES,
)
