"""Policies that are reverted automatically unless they are confirmed: annotation `antrea.io/confirm-within`.

Each Node has its own deadline, from when it received this generation of the policy: it applies also to a Node that the policy
has cut off. `antrea.io/confirmed` names the generation that stays; removing the first annotation has the same effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.annotation import CONFIRM_WITHIN, CONFIRMED
from antrea.config.shape import seconds
from antrea.errors import Invalid
from antrea.facts.fact import Fact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.apis import controlplane as cp
    from antrea.engine import Facts

MAX_SECONDS = 3600


class TakenBack(Fact, frozen=True):
    """Generation of a policy that was not confirmed in time; the agent's deadlines write it."""

    policy: str
    """UID of the policy."""
    generation: int

    @property
    def key(self) -> str:
        return f"{self.policy} {self.generation}"


def check_confirmation(annotations: Mapping[str, str]) -> None:
    """Check the annotation. Raises Invalid."""
    text = annotations.get(CONFIRM_WITHIN)
    if text is not None and not _seconds(text):
        raise Invalid(
            f"metadata.annotations[{CONFIRM_WITHIN}]",
            f"{text[:100]!r} is not a duration between 1s and {MAX_SECONDS}s, such as 60s",
        )


def unconfirmed_seconds(annotations: Mapping[str, str], generation: int) -> int:
    """Return the seconds within which this generation must be confirmed; 0 if it is permanent."""
    if annotations.get(CONFIRMED, "").strip() == str(generation):
        return 0
    return _seconds(annotations.get(CONFIRM_WITHIN, ""))


def _seconds(text: str) -> int:
    """Parse a duration; 0 if it is invalid."""
    try:
        duration = seconds(text)
    except ValueError:
        return 0
    return int(duration) if 1 <= duration <= MAX_SECONDS else 0


def deadline_seconds(policy: cp.NetworkPolicy) -> int:
    """Return the seconds until the deadline of a policy from the controller."""
    return _seconds(policy.metadata.annotations.get(CONFIRM_WITHIN, ""))


def taken_back(facts: Facts, policy: cp.NetworkPolicy) -> str:
    """Return why nothing of this policy is enforced on this Node; empty if it is not reverted."""
    meta, limit = policy.metadata, deadline_seconds(policy)
    if not limit or facts.get(TakenBack, f"{meta.name} {meta.generation}") is None:
        return ""
    return (
        f"taken back: generation {meta.generation} was not confirmed within {limit} s:"
        f" annotate it with {CONFIRMED}={meta.generation}"
    )
