"""What a feature declares to the agent: the tables it needs and the units that fill them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from antrea.config.agent import AgentConfig
from antrea.engine import Unit
from antrea.facts.fact import Fact
from antrea.features.admission import Watched
from antrea.features.controlplane import GroupKind, ObjectKind
from antrea.openflow.pipeline import Pipeline
from antrea.openflow.table import Table


class Families(msgspec.Struct, frozen=True):
    """The address families of the cluster's Pods."""

    ipv4: bool
    ipv6: bool

    @classmethod
    def of(cls, cidrs: Iterable[str]) -> Families:
        """The families of these addresses or CIDRs."""
        version6 = [":" in cidr for cidr in cidrs]
        return cls(ipv4=not all(version6) if version6 else False, ipv6=any(version6))


class Realised(Fact, frozen=True):
    """The pipeline that this agent numbered at start."""

    pipeline: Pipeline


class AgentFeature(msgspec.Struct, frozen=True):
    """One feature as the agent's assembly sees it."""

    name: str
    tables: Callable[[AgentConfig, Families], tuple[Table, ...]]
    """Tables that must be realised while the feature is on."""
    units: tuple[Unit, ...] = ()
    watches: tuple[ObjectKind | GroupKind, ...] = ()
    """What it hears of the controller."""
    watched: tuple[Watched, ...] = ()
    """Collections of the API that its rows come from."""
    gate: str = ""
    """What it is part of; empty: always on."""
    within: str = ""
    """A second gate without which it is off, too."""
    meters: bool = False
    """Whether it is left out where the switch has no meters."""
    limits: tuple[tuple[str, int], ...] = ()
    """Pools of numbers, and the highest that there is room for."""
    ranks: tuple[tuple[str, int, int], ...] = ()
    """Pools of order numbers, and the lowest and highest that there is room for."""
