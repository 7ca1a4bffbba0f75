"""Where flow records go, beside the collector of the configuration."""

from __future__ import annotations

from antrea.facts.fact import Fact


class FlowDestination(Fact, frozen=True):
    """A destination of flow records, as agents need it."""

    name: str
    uid: str
    address: str
    """host:port, where the host may be namespace/name of a Service."""
    protocol: str
    """tls, tcp, udp or grpc."""
    protocols: tuple[str, ...] = ()
    """Names of those that are exported; none: all."""
    active: int = 5
    idle: int = 15
    """Seconds, as both of the configuration."""
    authority: str = ""
    """namespace/name of the ConfigMap with the collector's authority; empty: none is given."""
    identity: str = ""
    """namespace/name of the Secret with our certificate; empty: without one."""
    server_name: str = ""
    """Name in the collector's certificate; empty: the host of the address."""
    tls13: bool = False
    """Whether TLS 1.2 is refused."""

    @property
    def key(self) -> str:
        return self.name
