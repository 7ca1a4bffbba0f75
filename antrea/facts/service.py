"""Services of the cluster and the Endpoints behind them, as the agent uses them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import ClassVar, NamedTuple, Self

import msgspec

from antrea.facts.fact import Fact
from antrea.facts.family import is_ipv6, one_per_family


class Service(Fact, frozen=True):
    """A Service that has addresses; the Service feed writes it."""

    namespace: str
    name: str
    ips: tuple[str, ...]
    """All its addresses: ClusterIPs, external ones, those of load balancers."""
    ports: tuple[tuple[str, int], ...]
    """Protocol and number, on each of the addresses."""
    external_ips: tuple[str, ...] = ()
    """Members of `ips` that are not the cluster's."""
    port_names: tuple[str, ...] = ()
    """Names by which EndpointSlices refer to each of `ports`; empty if a port has none."""
    node_ports: tuple[int, ...] = ()
    """Node ports of each of `ports`; 0: none."""
    affinity_seconds: int = 0
    """How long a client stays with its Endpoint; 0: sessionAffinity None."""
    internal_local: bool = False
    """internalTrafficPolicy Local."""
    external_local: bool = False
    """externalTrafficPolicy Local."""
    proxy_name: str = ""
    """Label service.kubernetes.io/service-proxy-name: the program that serves it instead of the default one."""
    load_balancer_ips: tuple[str, ...] = ()
    """Members of `external_ips` that a load balancer gave and leaves to the Nodes."""
    source_ranges: tuple[str, ...] = ()
    """Networks whose hosts alone reach `load_balancer_ips`; an empty text stands for one that cannot be read. None: all hosts."""
    mode: str = ""
    """Annotation service.antrea.io/load-balancer-mode: nat or dsr; empty: the configuration's default."""
    health_port: int = 0
    """healthCheckNodePort: where load balancers ask whether this Node has an Endpoint; 0: nowhere."""
    created: str = ""
    """RFC 3339, in UTC."""
    uid: str = ""
    pools: tuple[str, ...] = ()
    """ExternalIPPools of its external IPs."""
    preferred: tuple[str, ...] = ()
    """Nodes that are to answer for its external IP before others, in this order."""
    failback: str = ""
    """never or when-idle: a Node that lives keeps its external IP from better ones; empty: it does not."""
    consistent: bool = False
    """Annotation service.antrea.io/consistent-endpoint-choice."""
    refused: tuple[str, ...] = ()
    """Sentences on addresses and source ranges of its spec that have no effect."""

    indexes: ClassVar[Mapping[str, Callable[[Service], Iterable[Hashable]]]] = {
        "cluster_ip": lambda row: row.cluster_ips,
        "external_ip": lambda row: row.external_ips,
        "node_port": lambda row: tuple(port for port in row.node_ports if port),
        "pooled": lambda row: row.pooled_ips,
    }

    @property
    def pooled_ips(self) -> tuple[str, ...]:
        """Its external IPs of a pool, at most one of each family."""
        return one_per_family(self.load_balancer_ips) if self.pools else ()

    @property
    def cluster_ips(self) -> tuple[str, ...]:
        """Members of `ips` that are the cluster's."""
        return tuple(ip for ip in self.ips if ip not in self.external_ips)

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class ServicePort(Fact, frozen=True):
    """One port of a Service that AntreaProxy serves; derived."""

    service: str
    """namespace/name"""
    port_name: str
    protocol: str
    """TCP, UDP or SCTP."""
    port: int
    cluster_ips: tuple[str, ...]
    external_ips: tuple[str, ...] = ()
    node_port: int = 0
    affinity_seconds: int = 0
    internal_local: bool = False
    external_local: bool = False
    guarded_ips: tuple[str, ...] = ()
    """Members of `external_ips` that only hosts in `source_ranges` reach."""
    source_ranges: tuple[str, ...] = ()
    """See Service."""
    created: str = ""
    """See Service."""
    direct: bool = False
    """Endpoints answer clients of its external addresses directly, wherever they are."""
    consistent: bool = False
    """See Service."""
    own_ips: tuple[str, ...] = ()
    """External addresses that this Node has itself and at which it serves the port; not among `external_ips`."""

    indexes: ClassVar[Mapping[str, Callable[[ServicePort], Iterable[Hashable]]]] = {
        "behind": lambda row: (row.behind,),
        "service": lambda row: (row.service,),
        "external": lambda row: [(ip, row.protocol, row.port) for ip in row.outside_ips],
    }

    @property
    def outside_ips(self) -> tuple[str, ...]:
        """All addresses at which it is reached from outside the cluster, beside the NodePort."""
        return (*self.external_ips, *self.own_ips)

    @property
    def families(self) -> frozenset[bool]:
        """Families of its ClusterIPs, which its Endpoints have, too; True is IPv6."""
        return frozenset(is_ipv6(ip) for ip in self.cluster_ips)

    @property
    def key(self) -> str:
        """Protocol and number are unique in a Service."""
        return f"{self.service}:{self.port}/{self.protocol}"

    @property
    def behind(self) -> str:
        """Key that its Endpoints share: index `behind` of ServiceEndpoint."""
        return f"{self.service}:{self.port_name}/{self.protocol}"


class ListeningPorts(Fact, frozen=True):
    """Ports at which programs of this Node listen; a feed writes it while an external address of a Service is the Node's own."""

    KEY: ClassVar[str] = ""

    ports: frozenset[tuple[str, str, int]]
    """Protocol, address and port; the address is empty for all of both families."""

    @property
    def key(self) -> str:
        return self.KEY

    def takes(self, ip: str, protocol: str, port: int) -> bool:
        """Whether a program listens at this address, or at all."""
        whole = "::" if is_ipv6(ip) else "0.0.0.0"  # noqa: S104 (it is compared)
        return any((protocol, at, port) in self.ports for at in (ip, whole, ""))


class HealthCheck(Fact, frozen=True):
    """A port at which load balancers ask whether this Node has an Endpoint of a Service; derived."""

    namespace: str
    name: str
    port: int
    uid: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class EarlierConnection(Fact, frozen=True):
    """A connection of a Node or of a host outside that began with the other proxy: before `proxyAll` was turned on, or off.

    The feed lists those that there are when the agent starts, and drops each when it has ended.
    """

    protocol: str
    """tcp, udp or sctp."""
    source: str
    source_port: int
    ip: str
    """Address of the Service, or the one that the host translates NodePorts to."""
    port: int
    by_switch: bool
    """Whether the switch translates it, or the host."""

    indexes: ClassVar[Mapping[str, Callable[[EarlierConnection], Iterable[Hashable]]]] = {
        "ipv6": lambda row: (is_ipv6(row.ip),)
    }

    @property
    def key(self) -> str:
        return f"{self.protocol} {self.source} {self.source_port} {self.ip} {self.port}"


class ServiceEndpoint(Fact, frozen=True):
    """One address and port of one EndpointSlice; the EndpointSlice feed writes it.

    While slices are rebuilt an Endpoint may stand in two of them: then there are two rows.
    """

    slice: str
    """namespace/name"""
    service: str
    """namespace/name"""
    port_name: str
    protocol: str
    """Empty for one of a slice without ports: no port of a Service leads there."""
    ip: str
    port: int
    node: str
    ready: bool
    """It takes new connections: the condition ready, or publishNotReadyAddresses."""
    serving: bool
    """It answers, though it may be terminating."""
    terminating: bool
    zones: tuple[str, ...] = ()
    """Zones whose connections it should get, from hints; sorted."""
    nodes: tuple[str, ...] = ()
    """Nodes whose connections it should get; sorted."""

    indexes: ClassVar[Mapping[str, Callable[[ServiceEndpoint], Iterable[Hashable]]]] = {
        "behind": lambda row: (row.behind,)
    }

    @property
    def key(self) -> str:
        return f"{self.slice}:{self.port_name}/{self.ip}"

    @property
    def behind(self) -> str:
        """The port of a Service that it stands behind: index `behind` of ServicePort."""
        return f"{self.service}:{self.port_name}/{self.protocol}"

    @property
    def address(self) -> str:
        """Identity of an Endpoint in the switch: slices and Services may share one."""
        return f"{self.protocol}/{self.ip}/{self.port}"

    @property
    def state(self) -> str:
        """READY, DRAINING or UNAVAILABLE."""
        if self.ready:
            return READY
        return DRAINING if self.serving and self.terminating else UNAVAILABLE


READY, DRAINING, UNAVAILABLE = "ready", "draining", "unavailable"
"""States of an Endpoint; a draining one still serves, and is used where no ready one is left."""


class EndpointState(NamedTuple):
    """State of an Endpoint on which the choice among Endpoints depends, as one Node sees it."""

    state: str
    is_local: bool
    """It is on this Node."""
    zone_hint: bool | None = None
    """Whether its hints name the zone of this Node; None: it has no hints for zones."""
    node_hint: bool | None = None
    """Whether its hints name this Node; None: it has no hints for Nodes."""


class EndpointStates(Fact, frozen=True):
    """The states that occur among the Endpoints behind a port, in one family; derived.

    It changes when a state occurs first or no more, not with each Endpoint.
    """

    behind: str
    ipv6: bool
    parts: tuple[EndpointState, ...]

    @property
    def key(self) -> str:
        return states_key(self.behind, ipv6=self.ipv6)

    def with_parts(self, parts: tuple[EndpointState, ...]) -> Self:
        """The states of all Endpoints together."""
        return msgspec.structs.replace(self, parts=parts)

    def chosen(self, *, local: bool) -> frozenset[EndpointState]:
        """States of the Endpoints that get new connections; `local`: among this Node's alone, regardless of hints.

        Hints count where every ready Endpoint has one and one of them names this Node, or its zone; draining Endpoints are
        used where no ready one is left.
        """
        parts = [part for part in self.parts if part.is_local or not local]
        ready = [part for part in parts if part.state == READY]
        if not local:
            for field in ("node_hint", "zone_hint"):
                hints = [getattr(part, field) for part in ready]
                if None not in hints and True in hints:
                    ready = [part for part in ready if getattr(part, field)]
                    break
        return frozenset(ready or (part for part in parts if part.state == DRAINING))


def states_key(behind: str, *, ipv6: bool) -> str:
    """Key of the EndpointStates row of a port in one family."""
    return f"{behind}/{'IPv6' if ipv6 else 'IPv4'}"
