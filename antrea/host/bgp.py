"""Sessions of this Node with routers as values: BGP, and BFD that watches a path. No I/O.

What runs them is FRR in a container of its own; `antrea.outside.frr` writes them in its language.
Source: RFC 4271 (BGP), RFC 5880 (BFD), docs.frrouting.org/en/stable-10.3/bgp.html
"""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from antrea.rank import Rank


class Password(msgspec.Struct, frozen=True):
    """A text that is never printed or logged."""

    text: str

    def __repr__(self) -> str:
        return "Password(...)"


class BfdTimers(msgspec.Struct, frozen=True):
    """How soon a path counts as dead: after `multiplier` packets that are missing."""

    transmit: int = 300
    """Milliseconds."""
    receive: int = 300
    """Milliseconds."""
    multiplier: int = 3


class BgpImports(msgspec.Struct, frozen=True):
    """Routes that are taken from a router."""

    networks: tuple[str, ...]
    """Only routes within these are taken."""
    default_route: bool = False
    """Whether the default route is taken as well."""
    maximum: int = 100
    """Accepted routes above which the session ends."""


class BgpSpeaker(msgspec.Struct, frozen=True):
    """The one BGP speaker of the Node."""

    asn: int
    router_id: str
    listen_port: int = 179
    confederation: int = 0
    """AS number that routers outside the confederation see; 0: there is none."""
    members: tuple[int, ...] = ()
    """AS numbers of the other members, sorted."""
    restart_time: int = 120
    """Seconds that routers keep the routes of a speaker that restarts."""

    category: int = 0

    rank: ClassVar[int] = Rank.SENDS

    @property
    def key(self) -> str:
        return "self"


class BgpNeighbor(msgspec.Struct, frozen=True, kw_only=True):
    """A router that the speaker has a session with."""

    address: str
    asn: int
    port: int = 179
    ttl: int = 1
    """Hops to the router, at most."""
    password: Password = Password("")
    """Password of TCP MD5 (RFC 2385); empty: none."""
    graceful_restart: bool = True
    hold: int = 90
    """Seconds without a message after which the session ends."""
    keepalive: int = 30
    """Seconds between messages, at most a third of `hold`."""
    connect_retry: int = 10
    """Seconds between tries to connect."""
    idle_hold: int = 5
    """Seconds that a session is idle after it ended, at most."""
    bfd: BfdTimers | None = None
    """None: BFD does not watch the session."""
    communities: tuple[tuple[int, int], ...] = ()
    """Communities of the networks that the router is sent (RFC 1997), sorted."""
    local_preference: int | None = None
    """Local preference of these networks; None: the default."""
    networks: tuple[str, ...] | None = None
    """Only networks within these are sent; None: all are."""
    imports: BgpImports | None = None
    """None: no route is taken."""

    category: int = 0

    rank: ClassVar[int] = Rank.SENDS

    @property
    def key(self) -> str:
        return self.address


class BgpPrefix(msgspec.Struct, frozen=True):
    """A network that the speaker advertises; dropping it withdraws it."""

    prefix: str

    category: int = 0

    rank: ClassVar[int] = Rank.SENDS

    @property
    def key(self) -> str:
        return self.prefix


class BfdOnlySession(msgspec.Struct, frozen=True, kw_only=True):
    """A router that watches this Node by BFD without a BGP session; dropping it ends the session."""

    address: str
    local: str = ""
    """Own address of a session over several hops; empty: the router is in a network of the Node."""
    hops: int = 1
    timers: BfdTimers = BfdTimers()
    shutdown: bool = False
    """Whether the state is AdminDown, because the Node is being drained: the router stops using it."""

    category: int = 0

    rank: ClassVar[int] = Rank.SENDS

    @property
    def key(self) -> str:
        return self.address


KINDS: Final = (BgpSpeaker, BgpNeighbor, BgpPrefix, BfdOnlySession)
