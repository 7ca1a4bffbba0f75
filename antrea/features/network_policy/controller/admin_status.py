"""Status of policies of the network-policy-api project, which has only conditions. Upstream writes none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.network_policy_api.part import PolicyCondition
from antrea.apis.status import Status

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.apis.crd.part import Condition

MANAGER = "antrea-controller"
REALIZED = "Realized"


def realized(current: int, desired: int) -> PolicyCondition:
    """Make the condition on whether all Nodes that should enforce the policy do."""
    done = current == desired
    return PolicyCondition(
        REALIZED,
        "True" if done else "False",
        reason="AllNodesRealized" if done else "NodesPending",
        message=f"{current} of {desired} Nodes enforce the policy",
    )


def admin_status(path: str, kind: str, generation: int, conditions: Iterable[Condition]) -> Status:
    """Make the status of the object at `path`: each condition with a reason and a sentence, which the API requires."""
    return Status(
        path=path,
        kind=kind,
        manager=MANAGER,
        conditions=tuple(
            PolicyCondition(
                condition.type,
                condition.status,
                reason=condition.reason or "Supported",
                message=condition.message or "all of the policy can be enforced",
                observed_generation=generation,
            )
            for condition in conditions
        ),
    )
