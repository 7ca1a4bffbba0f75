"""State of FRR on this Node: which sessions are up, and what it refused; the part writes these rows."""

from __future__ import annotations

from typing import Any

from antrea.facts.fact import Fact
from antrea.features.framework.address import canonical

IDLE, ESTABLISHED = "Idle", "Established"
STATES = frozenset((IDLE, "Connect", "Active", "OpenSent", "OpenConfirm", ESTABLISHED))
"""States of a session (RFC 4271), as upstream names them."""
UNKNOWN = "Unknown"
BFD_DOWN = "BFD is down"
"""Reason of a session that BFD watches, and that FRR does not begin before the router answers to BFD."""
MAX_TEXT = 200
"""Characters kept of a text of FRR or of a router."""


class FrrState(Fact, frozen=True):
    """Whether FRR runs on this Node."""

    why_not: str = ""
    """Why what is wanted is not in effect; empty: it is."""
    refused: tuple[tuple[str, str], ...] = ()
    """Commands that FRR refused, and its words."""


class BgpPeerState(Fact, frozen=True):
    """State of the session with a router."""

    address: str
    asn: int
    state: str
    advertised: int = 0
    """Networks that the router was sent."""
    error: str = ""
    """Why the last session ended, in FRR's words; empty: none has."""

    @property
    def key(self) -> str:
        return self.address


class BfdPeerState(Fact, frozen=True):
    """State of the path to a router."""

    address: str
    up: bool
    diagnostic: str = ""
    """FRR's words on why it is down; empty: there are none."""

    @property
    def key(self) -> str:
        return self.address


def bgp_states(neighbors: Any) -> tuple[BgpPeerState, ...]:
    """Read the output of `show bgp neighbors json`; what is of another form is left out."""
    if not isinstance(neighbors, dict):
        return ()
    return tuple(
        _bgp_state(ip, neighbor)
        for address, neighbor in neighbors.items()
        if isinstance(neighbor, dict) and (ip := canonical(address))
    )


def _bgp_state(address: str, neighbor: dict[str, Any]) -> BgpPeerState:
    state, asn = _text(neighbor.get("bgpState")), neighbor.get("remoteAs")
    families = neighbor.get("addressFamilyInfo")
    counts = [
        family.get("sentPrefixCounter", 0)
        for family in (families.values() if isinstance(families, dict) else ())
        if isinstance(family, dict)
    ]
    return BgpPeerState(
        address,
        asn if isinstance(asn, int) else 0,
        state if state in STATES else UNKNOWN,
        sum(count for count in counts if isinstance(count, int)),
        "" if state == ESTABLISHED else _last_error(neighbor),
    )


def _last_error(neighbor: dict[str, Any]) -> str:
    """Return why the session is down: the notification, else the reset."""
    bfd = neighbor.get("peerBfdInfo")
    is_down = isinstance(bfd, dict) and bfd.get("status") == "Down"
    parts = (
        BFD_DOWN if is_down else "",
        neighbor.get("lastNotificationReason"),
        neighbor.get("lastResetDueTo"),
    )
    return "; ".join(dict.fromkeys(text for part in parts if (text := _text(part))))


def bfd_states(peers: Any) -> tuple[BfdPeerState, ...]:
    """Read the output of `show bfd peers json`; what is of another form is left out."""
    if not isinstance(peers, list):
        return ()
    rows = {}
    for peer in peers:
        if isinstance(peer, dict) and (address := canonical(_text(peer.get("peer")))):
            up = peer.get("status") == "up"
            diagnostic = _text(peer.get("diagnostic"))
            rows[address] = BfdPeerState(address, up, "" if up or diagnostic == "ok" else diagnostic)
    return tuple(rows.values())


def _text(value: Any) -> str:
    """Return a text without what is not printable; empty for what is none."""
    if not isinstance(value, str):
        return ""
    return "".join(character if character.isprintable() else " " for character in value)[:MAX_TEXT].strip()
