"""Routers outside the cluster that this Node has sessions with."""

from __future__ import annotations

from antrea.facts.fact import Fact


class RouterSession(Fact, frozen=True):
    """A session with a router, by BGP, BFD or both; derived."""

    address: str
    listen_port: int = 0
    """TCP port of this Node that the router connects to; 0: no BGP."""
    port: int = 0
    """TCP port of the router; 0: no BGP."""
    bfd_port: int = 0
    """UDP port of both; 0: no BFD."""

    @property
    def key(self) -> str:
        return self.address
