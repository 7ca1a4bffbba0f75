"""Classes of addresses that many rules name by their groups: each address has one flow, which loads its class, and rules match
that.

Otherwise an address is a flow that names each rule, and of Antrea's own policies a flow for each rule: 1,000 rules for a group
of 10,000 members would be ten million of either. Addresses with the same groups share a number in a register. Upstream has only
the flows of few rules (`conjunction.peer_clause_flows`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from antrea.engine import Facts, Unit
from antrea.facts.fact import Fact
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.network_policy.agent.priority import CLOSED, IN, OUT
from antrea.features.network_policy.agent.rule import EGRESS, PolicyRule, digest
from antrea.openflow.action import resubmit
from antrea.openflow.cookie import Category
from antrea.openflow.fields import PEER_CLASS, SENDER_CLASS
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.match import dst, src
from antrea.openflow.priority import Priority

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.openflow.field import Match

MANY = 32
"""Number of rules of one direction from which they share the addresses of a group that they name."""
POOL = "peer-class"
SENDERS = SENDER_CLASS.mask
"""Bit that separates the numbers of senders from those of receivers."""
BEFORE_RULES = Priority.HIGH - 5
"""Priority between accepted connections at `HIGH` and rules at `NORMAL`."""
flow = flows_of(Category.NETWORK_POLICY)


class SharedGroup(Fact, frozen=True):
    """Group whose addresses are shared by the rules of one direction; derived."""

    named: str
    """Group and direction, by which `PolicyRule` is indexed as `peer`."""

    @property
    def key(self) -> str:
        return self.named


class SharedAddress(Fact, frozen=True):
    """Address of such a group; derived."""

    named: str
    direction: str
    address: str
    indexes: ClassVar[Mapping[str, Callable[[SharedAddress], Iterable[Hashable]]]] = {
        "end": lambda row: (f"{row.direction} {row.address}",)
    }

    @property
    def key(self) -> str:
        return f"{self.named} {self.address}"


class PeerClass(Fact, frozen=True):
    """Addresses that are in the same of these groups; derived."""

    name: str
    value: int
    """Value in the register."""
    groups: tuple[str, ...]
    """Groups, each with the direction."""
    indexes: ClassVar[Mapping[str, Callable[[PeerClass], Iterable[Hashable]]]] = {
        "group": lambda row: row.groups
    }

    @property
    def key(self) -> str:
        return self.name


def class_matches(facts: Facts, rule: PolicyRule) -> Iterator[Match]:
    """Match peers of `rule` whose addresses it shares with other rules."""
    shared = [named for named in rule.peers if facts.get(SharedGroup, named) is not None]
    values = {row.value: None for named in shared for row in facts.by(PeerClass, "group", named)}
    for value in sorted(values):
        yield PEER_CLASS(value).match


# units


def shared_groups(facts: Facts, named: str) -> Iterator[SharedGroup]:
    """Yield groups that many rules name, except those whose parts depend on the ports of each member."""
    rules = facts.by(PolicyRule, "peer", named)
    if len(rules) >= MANY and not rules[0].by_member:
        yield SharedGroup(named)


def class_flows(facts: Facts, end: str) -> Iterator[Flow | PeerClass]:
    """Yield flows that load the class of an address before any rule is matched; all rules of the direction match it.

    Senders are looked up again after the egress rules. A flow that closes a Pod at the same priority decides, whichever of both
    comes first.
    """
    realized = facts.get(RealizedPipeline)
    if realized is None:
        return
    direction, _, address = end.partition(" ")
    groups = tuple(row.named for row in facts.by(SharedAddress, "end", end))
    name = digest(*groups)
    out = direction == EGRESS
    here, value = OUT if out else IN, facts.id(POOL, name) | (0 if out else SENDERS)
    antrea = realized.pipeline.has(here.antrea)
    table, priority = (here.antrea, CLOSED) if antrea else (here.rule, BEFORE_RULES)
    matches = (PEER_CLASS(0).match, dst(address)) if out else (SENDER_CLASS(0).match, src(address))
    yield flow(table, priority, *matches, then=[PEER_CLASS(value).load, resubmit(table)])
    yield PeerClass(name, value, groups)


CLASSES = Unit(SharedAddress, class_flows, yields=(PeerClass,), by="end")
