"""Membership in the agent: its gossip runs while a feature needs to know which Nodes are alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.features.framework.agent_feature import AgentFeature

if TYPE_CHECKING:
    from collections.abc import Container

NEEDED_BY = ("Egress", "ServiceExternalIP")
"""Gates of the features that follow the living Nodes."""


def is_needed(gates: Container[str]) -> bool:
    """Whether any such feature is on."""
    return any(gate in gates for gate in NEEDED_BY)


FEATURES = (AgentFeature(name="Membership"),)
"""Feature that is always on, so that /memberlist explains why it has nothing to show."""
