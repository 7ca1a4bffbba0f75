"""Declaration of a feature to the agent: the tables it needs and the units that fill them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache, wraps
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.config.agent import MACHINE_TYPE, NODE_TYPE, AgentConfig, NodeType
from antrea.engine import Facts, Unit
from antrea.facts.fact import Fact
from antrea.features.framework.admission import Watched
from antrea.features.framework.controlplane_watch import GroupKind, ObjectKind
from antrea.features.framework.gate import Gates
from antrea.features.framework.traffic import Counted
from antrea.host.nft import NftChain
from antrea.host.route import RoutingRule
from antrea.openflow.cookie import Category
from antrea.openflow.pipeline import Pipeline
from antrea.openflow.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

EVERYWHERE: tuple[NodeType, ...] = (NODE_TYPE, MACHINE_TYPE)


def stamped(unit: Unit, category: Category) -> Unit:
    """Return the same unit, whose entries get `category` where they have none."""
    entries, number = unit.entries, int(category)

    @wraps(entries)
    def with_category(facts: Facts, row: Any) -> Iterator[Any]:
        for entry in entries(facts, row):
            if takes_category(entry.__class__) and not entry.category:
                yield msgspec.structs.replace(entry, category=number)
            else:
                yield entry

    return msgspec.structs.replace(unit, entries=with_category)


@cache
def takes_category(kind: type) -> bool:
    """Whether entries of this kind may leave their category out, and are of one feature.

    Flows never do (`flows_of`). A chain without a category is shared by all features that have rules in it.
    """
    if kind is NftChain or not issubclass(kind, msgspec.Struct):
        return False
    return any(field.name == "category" and field.default == 0 for field in msgspec.structs.fields(kind))


class Families(msgspec.Struct, frozen=True):
    """The address families of the cluster's Pods."""

    ipv4: bool
    ipv6: bool

    @classmethod
    def of(cls, cidrs: Iterable[str]) -> Families:
        """The families of these addresses or CIDRs."""
        version6 = [":" in cidr for cidr in cidrs]
        return cls(ipv4=not all(version6) if version6 else False, ipv6=any(version6))


class RealizedPipeline(Fact, frozen=True):
    """Pipeline that this agent numbered at start."""

    pipeline: Pipeline


class NumberPattern(msgspec.Struct, frozen=True):
    """Pattern of the numbers of a pool in lines of flows and groups, and their conversion."""

    pool: str
    pattern: re.Pattern[str]
    """The first of its groups that matches is the number."""
    base: int = 0
    """Base of the number's digits; 0 to infer it from the prefix."""
    mask: int = -1
    less: int = 0

    def numbers(self, line: str) -> Iterator[int]:
        """Yield the numbers in a line."""
        for match in self.pattern.finditer(line):
            text = next(filter(None, match.groups()))
            yield (int(text, self.base) & self.mask) - self.less


class AgentFeature(msgspec.Struct, frozen=True):
    """Declaration of a feature to the agent. All fields but the name have a default: a feature sets what it has."""

    name: str
    tables: tuple[Table, ...] | Callable[[AgentConfig, Families], tuple[Table, ...]] = ()
    """Tables that must be realized while the feature is on; a function where they depend on the configuration or families."""
    units: tuple[Unit, ...] = ()
    watches: tuple[ObjectKind | GroupKind, ...] = ()
    """Watches of antrea-controller (controlplane.antrea.io) that its rows come from."""
    watched: tuple[Watched, ...] = ()
    """Watches of kube-apiserver that its rows come from."""
    gate: Gates = ""
    """Feature gate that turns it on, or several, any of which does; empty: always on."""
    within: str = ""
    """A second gate that must be on, too."""
    unless: str = ""
    """Feature gate that turns it off, because another feature takes its place."""
    meters: bool = False
    """Whether it needs meters: it is left out where the datapath has none."""
    limits: tuple[tuple[str, int], ...] = ()
    """Pools of numbers (`Facts.id`), each with its highest number."""
    ranks: tuple[tuple[str, int, int], ...] = ()
    """Pools of order numbers, each with its lowest and highest number."""
    numbers: tuple[NumberPattern, ...] = ()
    """Patterns that find the numbers of its pools in the switch: if the journal of numbers is lost, new numbers start above them."""
    rule_numbers: Callable[[RoutingRule], Iterable[tuple[str, int]]] | None = None
    """The same for the kernel's routing rules: pools and numbers of one rule."""
    category: Category | None = None
    """Category of its entries, stamped on those without one. What an earlier start left of it is removed once `sweep_after`
    is synced."""
    sweep_after: tuple[type[Fact], ...] = ()
    """Kinds of facts that entries of `category` depend on, beside ports and Nodes, which every category waits for."""
    replay_after: tuple[type[Fact], ...] = ()
    """Kinds of facts to wait for, at most some seconds, before flows of an earlier start are replaced for the first time."""
    own_ports: frozenset[str] = frozenset()
    """antrea-types of the OVS ports that it creates: ports that an earlier start left are removed with its category."""
    kept: Mapping[type[Fact], Callable[[Facts], Collection[Fact]]] = {}
    """Rows of `watched` to save on disk, by kind, beside all rows of `watches`, for a start without antrea-controller."""
    lacking: Callable[[Facts], str] | None = None
    """Return what is not synced yet but must be before a Pod starts, beside antrea-controller's watches; empty if nothing."""
    runs_on: tuple[NodeType, ...] = (NODE_TYPE,)
    """`nodeType`s of agents that have it."""
    counted: Counted | None = None
    """How to read the counters of its flows for the statistics API."""

    def __post_init__(self) -> None:
        """Stamp the category on what its units yield."""
        if self.category is not None:
            units = tuple(stamped(unit, self.category) for unit in self.units)
            msgspec.structs.force_setattr(self, "units", units)

    def tables_of(self, config: AgentConfig, families: Families) -> tuple[Table, ...]:
        """Tables that must be realized with this configuration, for Pods of these families."""
        return self.tables if isinstance(self.tables, tuple) else self.tables(config, families)
