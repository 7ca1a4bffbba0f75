"""Machines outside the cluster that run an agent."""

from __future__ import annotations

from typing import NamedTuple

from antrea.facts.fact import Fact


class MachineInterface(NamedTuple):
    """One interface of such a machine."""

    name: str
    """Empty: it is found by its addresses."""
    ips: tuple[str, ...]
    """Addresses as Python writes them, without prefix length."""


class AgentMachine(Fact, frozen=True):
    """A machine as its ExternalNode describes it; the feed of ExternalNodes writes it."""

    namespace: str
    name: str
    uid: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    """Sorted."""
    interfaces: tuple[MachineInterface, ...] = ()

    @property
    def key(self) -> str:
        """Also the name under which its agent asks antrea-controller for its policies."""
        return f"{self.namespace}/{self.name}"
