"""What the controller knows of network policies."""

from __future__ import annotations

from antrea.apis.networking import NetworkPolicySpec
from antrea.facts.fact import Fact


class KubePolicy(Fact, frozen=True):
    """A NetworkPolicy of networking.k8s.io; its feed writes it."""

    namespace: str
    name: str
    uid: str
    generation: int
    spec: NetworkPolicySpec

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"
