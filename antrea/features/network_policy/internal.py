"""What the controller makes of a policy, whichever its kind, before it is known which Nodes need it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis import controlplane as cp
from antrea.apis.annotation import FLUSH, ON_DENY
from antrea.facts.fact import Fact

if TYPE_CHECKING:
    from collections.abc import Mapping


class Internal(Fact, frozen=True):
    """A policy as agents need it."""

    found: cp.NetworkPolicy

    def __hash__(self) -> int:
        # its metadata has mappings
        return hash(self.key)

    @property
    def key(self) -> str:
        return self.found.metadata.name


def cuts(found: Mapping[str, str]) -> bool:
    """Whether a policy with these annotations cuts connections that it comes to forbid."""
    return found.get(ON_DENY) == FLUSH


def told_annotations(*, cuts: bool) -> dict[str, str]:
    """Those that agents are told."""
    return {ON_DENY: FLUSH} if cuts else {}
