"""kube-proxy's part of a Node's ruleset, as `nft -j list table` prints it, and the commands that remove it and nothing else.

What iptables (nf_tables) made is in it, too. Names of chains: kube-proxy v1.34 pkg/proxy/iptables and pkg/proxy/ipvs;
KUBE-FIREWALL and KUBE-KUBELET-CANARY are kubelet's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from antrea.outside.nftables.listing import Lead

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antrea.outside.nftables.listing import LeadRow, ListedChain, ListedRule

CHAIN = re.compile(
    r"KUBE-(?:SERVICES|NODEPORTS|EXTERNAL-SERVICES|FORWARD|PROXY-FIREWALL|PROXY-CANARY|POSTROUTING|MARK-MASQ"
    r"|NODE-PORT|LOAD-BALANCER|SOURCE-RANGES-FIREWALL|IPVS-FILTER|IPVS-OUT-FILTER"
    r"|(?:SVC|SVL|SEP|FW|EXT|XLB)-[A-Z0-9]{16})"
)
FILLED_LAST = "KUBE-POSTROUTING"
"""Has rules in both modes of iptables and in each family, whichever Services there are."""
BUILT_IN = frozenset(("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"))
TABLE = "kube-proxy"
"""nftables table of kube-proxy in mode nftables, in the families ip and ip6."""
Place = tuple[str, str]
"""Family and table."""


class Rule(NamedTuple):
    """A rule that leads to another chain."""

    place: Place
    chain: str
    handle: int
    target: str


class Leftover(NamedTuple):
    """State of kube-proxy in the packet filter of a Node."""

    tables: tuple[Place, ...] = ()
    """Its own, of mode nftables."""
    chains: tuple[tuple[Place, str], ...] = ()
    """Removable chains of modes iptables and ipvs."""
    jumps: tuple[Rule, ...] = ()
    """Rules of built-in chains that lead to these."""
    held: tuple[Rule, ...] = ()
    """Rules of other programs that lead to chains of kube-proxy; these stay, with all that they lead to."""


def leftover(listed: Iterable[LeadRow]) -> Leftover:
    """`listed`: all tables that may have a part of it."""
    rows = list(listed)
    tables = tuple(
        (row.table.family, row.table.name) for row in rows if row.table and row.table.name == TABLE
    )
    chains = [
        (_place(row.chain), row.chain.name) for row in rows if row.chain and CHAIN.fullmatch(row.chain.name)
    ]
    known = frozenset(chains)
    leads = [rule for row in rows if row.rule for rule in _leads(row.rule) if _end(rule) in known]
    held = tuple(
        rule for rule in leads if (rule.place, rule.chain) not in known and rule.chain not in BUILT_IN
    )
    stays = _reached({_end(rule) for rule in held}, leads)
    goes = tuple(chain for chain in chains if chain not in stays)
    jumps = tuple(rule for rule in leads if rule.chain in BUILT_IN and _end(rule) in goes)
    return Leftover(tables, goes, jumps, held)


def is_complete(listed: Iterable[LeadRow], families: frozenset[str]) -> bool:
    """Whether kube-proxy has its rules: it makes chains of iptables first, and fills them once all else of a Service is there.

    Tables of nftables are made in one transaction each, those of the Node's `families` (`ip`, `ip6`) independently of each other.
    """
    rows = list(listed)
    if tables := leftover(rows).tables:
        return families <= {family for family, _ in tables}
    made = {_place(row.chain) for row in rows if row.chain and row.chain.name == FILLED_LAST}
    filled = {_place(row.rule) for row in rows if row.rule and row.rule.chain == FILLED_LAST}
    return bool(made) and made <= filled


def commands(rules: Leftover) -> str:
    """For `nft -f`: all of it goes in one transaction, or nothing."""
    return "".join(f"{line}\n" for line in _commands(rules))


def _commands(rules: Leftover) -> Iterator[str]:
    yield from (f"delete table {' '.join(place)}" for place in rules.tables)
    for rule in rules.jumps:
        yield f"delete rule {' '.join(rule.place)} {rule.chain} handle {rule.handle}"
    for way in ("flush", "delete"):
        yield from (f"{way} chain {' '.join(place)} {chain}" for place, chain in rules.chains)


def _place(row: ListedChain | ListedRule[Lead | str | None]) -> Place:
    return row.family, row.table


def _end(rule: Rule) -> tuple[Place, str]:
    return rule.place, rule.target


def _leads(rule: ListedRule[Lead | str | None]) -> Iterator[Rule]:
    for part in rule.expr:
        if isinstance(part, Lead) and (to := part.jump or part.goto):
            yield Rule(_place(rule), rule.chain, rule.handle, to.target)


def _reached(chains: set[tuple[Place, str]], leads: list[Rule]) -> set[tuple[Place, str]]:
    """These, and all that their rules lead to."""
    reached, new = set(chains), set(chains)
    while new:
        new = {_end(rule) for rule in leads if (rule.place, rule.chain) in new} - reached
        reached |= new
    return reached
