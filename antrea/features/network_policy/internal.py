"""What the controller makes of a policy, whichever its kind, before it is known which Nodes need it."""

from __future__ import annotations

from antrea.apis import controlplane as cp
from antrea.facts.fact import Fact


class Internal(Fact, frozen=True):
    """A policy as agents need it."""

    found: cp.NetworkPolicy

    def __hash__(self) -> int:
        # its metadata has mappings
        return hash(self.key)

    @property
    def key(self) -> str:
        return self.found.metadata.name
