"""Detection of which end has opened a connection that connection tracking has lost and then tracks again.

Tracking loses connections when the switch is restarted, when they are idle for long, and when their entries are flushed. It
tracks such a connection again from its next packet on, which may be sent by the server: then the server is the source of the
entry. The switch marks TCP connections whose first tracked segment is not a SYN. Their direction is, in this order, that of the
same connection before; from any end to an end that is known as a server; from an ephemeral port to another port. Otherwise it
is unknown. A first datagram of UDP or SCTP opens a connection, except where it may be a late answer, which is unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from antrea.facts.service import ServiceEndpoint
from antrea.features.flow_export.connection import ENDED
from antrea.features.flow_export.port_local import PROTOCOLS
from antrea.openflow.fields import CONN_SNAT, HAIRPIN, PICKED_UP, SERVICE

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from antrea.engine import Facts
    from antrea.openflow.tracked_connection import TrackedConnection

FIRST_EPHEMERAL: Final = 32768
"""First port that systems choose for clients (RFC 6335 from 49152 on; Linux: ip_local_port_range)."""
MAX_LOST: Final = 65_536
"""Maximum number of lost connections whose direction is kept."""
MAX_SERVERS: Final = 16_384
"""Maximum number of ends that are known to be servers."""
TCP: Final = 6
_TRANSLATED: Final = SERVICE.mask | CONN_SNAT.mask | HAIRPIN.mask
Ends = tuple[int, str, int, str, int]
"""Protocol, client and port, server and port."""
Server = tuple[int, str, int]


def ends_of(connection: TrackedConnection) -> Ends:
    """Return the ends of a connection, as connection tracking has them."""
    return connection.key[:5]


def turned_ends(ends: Ends) -> Ends:
    """Return the same ends with the other one as the client."""
    protocol, source, source_port, destination, port = ends
    return protocol, destination, port, source, source_port


def turned(connection: TrackedConnection) -> TrackedConnection:
    """Return the connection with its ends exchanged, without its rules: these let a packet of the other direction pass."""
    protocol, source, source_port, server, port, echo = connection.key
    return connection._replace(
        key=(protocol, server, port, source, source_port, echo),
        destination=source,
        port=source_port,
        source_seen=server,
        source_port_seen=port,
        packets=connection.reply_packets,
        byte_count=connection.reply_byte_count,
        reply_packets=connection.packets,
        reply_byte_count=connection.byte_count,
        label=0,
    )


class Directions:
    """Decisions on which end has opened a connection, once for as long as it is tracked."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._opened: dict[Ends, None] = {}
        """Connections that are tracked and whose client is known."""
        self._lost: dict[Ends, None] = {}
        """Connections that tracking has lost before they ended, the oldest first."""
        self._servers: dict[Server, None] = {}
        """Ends to which connections were opened, the one used longest ago first."""
        self._decided: dict[Hashable, bool | None] = {}
        """Whether the ends of a connection whose opening was not seen are exchanged, by its identity; None if unknown."""

    def directed_changes(
        self, changed: Iterable[TrackedConnection], gone: Iterable[TrackedConnection]
    ) -> tuple[list[TrackedConnection], list[TrackedConnection]]:
        """Return both with clients as sources; a connection that was lost and is tracked again is not gone."""
        gone = list(gone)
        ended = [self.directed(connection) for connection in gone]
        changed = list(changed)
        self._decide(changed, gone)
        directed = [self.directed(connection) for connection in changed]
        there = {connection.identity for connection in directed}
        return directed, [connection for connection in ended if connection.identity not in there]

    def _decide(self, changed: Iterable[TrackedConnection], gone: Iterable[TrackedConnection]) -> None:
        """Decide on new connections."""
        doubtful = []
        for connection in gone:
            self._forget(connection)
        for connection in changed:
            if _is_certain(connection):
                self._decided.pop(connection.identity, None)
                self._learn(ends_of(connection))
            elif connection.identity not in self._decided:
                doubtful.append(connection)
        endpoints = self._endpoints() if doubtful else set()
        for connection in doubtful:
            ends = ends_of(connection)
            is_turned = self._decided[connection.identity] = self._decision(ends, endpoints)
            if is_turned is not None:
                self._learn(turned_ends(ends) if is_turned else ends)

    def directed(self, connection: TrackedConnection) -> TrackedConnection:
        """The connection with its client as the source, if that is known."""
        if connection.identity not in self._decided:
            return connection
        is_turned = self._decided[connection.identity]
        if is_turned is None:
            return connection._replace(is_direction_known=False)
        return turned(connection) if is_turned else connection

    def is_known(self, ends: Ends) -> bool:
        """Whether the sender of a packet with these ends, which opens no connection, is the client."""
        return self._decision(ends, set()) is False

    def _decision(self, ends: Ends, endpoints: set[Server]) -> bool | None:
        """Whether the ends have to be exchanged; None if unknown."""
        for memory in (self._opened, self._lost):
            if ends in memory:
                return False
            if turned_ends(ends) in memory:
                return True
        protocol, source, source_port, destination, port = ends
        here, there = (protocol, source, source_port), (protocol, destination, port)
        for servers in (self._servers, endpoints):
            if (here in servers) != (there in servers):
                return here in servers
        if protocol != TCP:
            return None if source_port < FIRST_EPHEMERAL <= port else False
        if (source_port < FIRST_EPHEMERAL) != (port < FIRST_EPHEMERAL):
            return source_port < FIRST_EPHEMERAL
        return None

    def _learn(self, ends: Ends) -> None:
        self._opened[ends] = None
        self._lost.pop(ends, None)
        server = (ends[0], *ends[3:])
        self._servers.pop(server, None)
        self._servers[server] = None
        _bound(self._servers, MAX_SERVERS)

    def _forget(self, connection: TrackedConnection) -> None:
        is_turned = self._decided.pop(connection.identity, False)
        ends = turned_ends(ends_of(connection)) if is_turned else ends_of(connection)
        if is_turned is not None and ends in self._opened:
            del self._opened[ends]
            if connection.state not in ENDED:
                self._lost[ends] = None
                _bound(self._lost, MAX_LOST)

    def _endpoints(self) -> set[Server]:
        """All Endpoints of Services."""
        numbers = {name: number for number, name in PROTOCOLS.items()}
        return {
            (numbers[endpoint.protocol], endpoint.ip, endpoint.port)
            for endpoint in self._facts.all(ServiceEndpoint)
            if endpoint.protocol in numbers
        }


def _is_certain(connection: TrackedConnection) -> bool:
    """Whether the first tracked packet is of the client: it opens the connection, or was translated for a Service."""
    if connection.key[0] not in PROTOCOLS or connection.mark & _TRANSLATED or connection.host:
        return True
    if connection.key[0] == TCP:
        return not connection.mark & PICKED_UP.mask
    return (
        connection.key[2] == connection.key[4]
    )  # peers that use one port, as of gossip, open connections both ways


def _bound(memory: dict[Any, None], most: int) -> None:
    while len(memory) > most:
        del memory[next(iter(memory))]
