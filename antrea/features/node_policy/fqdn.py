"""Domain names in rules on what the Node sends: sets of addresses, filled by DNS answers that the Node itself receives.

An answer is held in the kernel until its addresses are in the sets, so that the first connection to a name is judged by the
rules. While no agent takes them, answers pass unread: a Node without DNS could not even fetch the agent's image. Names of Pods
are separate: a Pod chooses its server, and could give any address a name that the Node may send to.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from antrea.engine import Unit
from antrea.facts.fact import Fact
from antrea.facts.family import is_ipv6
from antrea.features.network_policy.agent.fqdn import DENYING, DNS_PORT, FqdnAddress, FqdnPattern
from antrea.features.node_policy.match import ADDRESS_TYPES, name_set
from antrea.features.node_policy.rule import NodeRule
from antrea.host.nft import NftChain, NftElement, NftRule, NftSet
from antrea.openflow.cookie import Category

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts

CHAIN = "node-dns"
QUEUE = 10350
"""Number under which the kernel hands answers to the agent."""
MAX_HELD = 1024
"""Maximum number of answers in the kernel's queue."""


class NodeFqdnPattern(FqdnPattern, frozen=True):
    """A domain name, or a wildcard, that rules on this Node have as a peer; derived."""


class NodeFqdnAddress(FqdnAddress, frozen=True):
    """An address of names that match a pattern; the cache of answers to the Node writes it."""


class UntrustedNodeAnswer(Fact, frozen=True):
    """Address that an untrusted server gave to a name which rules on this Node drop or reject; the cache writes it."""

    pattern: str
    server: str
    indexes: ClassVar[Mapping[str, Callable[[UntrustedNodeAnswer], Iterable[Hashable]]]] = {
        "pattern": lambda row: (row.pattern,)
    }

    @property
    def key(self) -> str:
        return f"{self.pattern} {self.server}"


class AnswerQueue(Fact, frozen=True):
    """Whether the agent gets the answers; there is no row until that is known."""

    why_not: str = ""
    """Why not; empty if it does."""

    @property
    def key(self) -> str:
        return ""


def node_patterns(facts: Facts, pattern: str) -> Iterator[NodeFqdnPattern]:
    """Yield the patterns for which the cache of answers to the Node keeps addresses."""
    rules = facts.by(NodeRule, "fqdn", pattern)
    yield NodeFqdnPattern(pattern, any(rule.action in DENYING for rule in rules))


def name_sets(_: Facts, row: NodeFqdnPattern) -> Iterator[NftSet]:
    """A set for each family, which all rules share that have the pattern."""
    for ipv6, kind in ADDRESS_TYPES.items():
        yield NftSet(name=name_set(row.pattern, ipv6=ipv6), type=kind)


def name_elements(facts: Facts, row: NodeFqdnAddress) -> Iterator[NftElement]:
    """An address of a name that a rule has."""
    if facts.get(NodeFqdnPattern, row.pattern) is not None:
        name = name_set(row.pattern, ipv6=is_ipv6(row.address))
        yield NftElement(set=name, value=row.address)


def answer_entries(facts: Facts, _: str) -> Iterator[NftChain | NftRule]:
    """Hold answers to questions of the Node, while there are rules on names.

    Whether something is an answer is judged by connection tracking: a reply from where the Node has sent its question, by
    the address and port before any translation. A cache on the Node (NodeLocal DNSCache) keeps its own packets from tracking.
    """
    if facts.need(AnswerQueue, "").why_not:
        return
    yield NftChain(
        name=CHAIN,
        hook="type filter hook input priority filter - 10; policy accept;",
        category=int(Category.NETWORK_POLICY),
    )
    held = f"queue flags bypass to {QUEUE}"
    for protocol in ("udp", "tcp"):
        reply = f"meta l4proto {protocol} ct state established ct direction reply ct original proto-dst {DNS_PORT}"
        local = f'iifname "lo" ct state untracked {protocol} sport {DNS_PORT}'
        yield _rule(f"answers over {protocol.upper()}", f"{reply} {held}")
        yield _rule(f"answers of a cache on the Node over {protocol.upper()}", f"{local} {held}")


def _rule(name: str, text: str) -> NftRule:
    return NftRule(chain=CHAIN, name=name, text=text)


ANSWERS = Unit(NodeRule, answer_entries, by="dns")
NAME_SETS = Unit(NodeFqdnPattern, name_sets)
NAME_ELEMENTS = Unit(NodeFqdnAddress, name_elements)
UNITS = (
    Unit(NodeRule, node_patterns, yields=(NodeFqdnPattern,), by="fqdn"),
    ANSWERS,
    NAME_SETS,
    NAME_ELEMENTS,
)
