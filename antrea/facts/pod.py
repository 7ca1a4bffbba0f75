"""Pods of the agent's Node."""

from __future__ import annotations

from antrea.facts.fact import Fact


class LocalPod(Fact, frozen=True):
    """A Pod that is bound to this Node and has a network of its own; the Pod feed writes it."""

    namespace: str
    name: str
    uid: str = ""
    """UID in kubelet: that of a static Pod is not the UID of its mirror Pod."""
    version: int = 0
    """Its resourceVersion."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"
