"""What the agent knows of the cluster's Services."""

from __future__ import annotations

from antrea.facts.fact import Fact


class Service(Fact, frozen=True):
    """A Service that has addresses; the Service feed writes it."""

    namespace: str
    name: str
    ips: tuple[str, ...]
    """Of the cluster, external ones, those of load balancers."""
    ports: tuple[tuple[str, int], ...]
    """Protocol and number, on each of the addresses."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"
