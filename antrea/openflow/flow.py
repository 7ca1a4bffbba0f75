"""A flow as a value: one entry of one table, in names until the wire."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from antrea.openflow.cookie import cookie
from antrea.openflow.field import masked_text, register_width
from antrea.rank import Rank

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from antrea.openflow.field import Action, Match
    from antrea.openflow.pipeline import Pipeline
    from antrea.openflow.table import Table

# The order of `match_format` in OVS lib/match.c.
_ORDER = (
    "pkt_mark conj_id ct_state ct_zone ct_mark ct_label ct_nw_src ct_ipv6_src ct_nw_dst ct_ipv6_dst ct_nw_proto "
    "ct_tp_src ct_tp_dst PROTOCOL "
    + " ".join(f"reg{n}" for n in range(16))
    + " xxreg0 xxreg1 xxreg2 xxreg3 tun_id tun_src tun_dst tun_ipv6_src tun_ipv6_dst in_port dl_vlan dl_vlan_pcp "
    "vlan_tci dl_src dl_dst nw_src nw_dst ipv6_src ipv6_dst nw_proto arp_spa arp_tpa arp_op arp_sha arp_tha nw_tos "
    "icmp_type icmp_code tp_src tp_dst tcp_flags"
).split()
_RANK = {name: rank for rank, name in enumerate(_ORDER)}
_IMPLIES = {
    **dict.fromkeys(("tcp", "udp", "sctp", "icmp", "igmp"), "ip"),
    **dict.fromkeys(("tcp6", "udp6", "sctp6", "icmp6"), "ipv6"),
}
_PROTOCOLS = {"arp", "ip", "ipv6", *_IMPLIES}
_MASKED = re.compile(r"reg\d+|xxreg\d+|ct_mark|ct_label|pkt_mark")
_CT_FLAG = re.compile(r"([+-])(new|est|rel|rpl|inv|trk|snat|dnat)")
_CT_FLAGS = ("new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat")


def normal(terms: Iterable[str]) -> tuple[str, ...]:
    """Return the one form of a match: split, merged, checked, in the order in which OVS prints it, equal for equal matches.

    Bits of one register are united (`reg0=0x1/0xf,reg0=0x200/0x200` is `reg0=0x201/0x20f`), and `ip` is
    left out beside `tcp`. Raises ValueError if two terms contradict or a term is not one we know.
    """
    return _normal(tuple(terms))


@lru_cache(1024)
def _normal(terms: tuple[str, ...]) -> tuple[str, ...]:
    fields: dict[str, str] = {}
    for term in ",".join(terms).split(","):
        if not term:
            continue
        name, _, value = term.partition("=")
        if name in _PROTOCOLS and not value:
            name, value = "PROTOCOL", name
        if name not in _RANK:
            raise ValueError(f"{term!r} is not a match we know")
        fields[name] = _unite(name, fields[name], value) if name in fields else _plain(name, value)
    ordered = sorted(fields.items(), key=lambda item: _RANK[item[0]])
    return tuple(value if name == "PROTOCOL" else f"{name}={value}" for name, value in ordered)


def _plain(name: str, value: str) -> str:
    return _ct_state(name, value) if name == "ct_state" else value


def _unite(name: str, first: str, two: str) -> str:
    if first == two:
        return first
    if name == "ct_state":
        return _ct_state(name, first + two)
    if name == "PROTOCOL" and _IMPLIES.get(first) == two:
        return first
    if name == "PROTOCOL" and _IMPLIES.get(two) == first:
        return two
    if _MASKED.fullmatch(name):
        return _united_bits(name, first, two)
    raise ValueError(f"{name} cannot be both {first} and {two}")


def _ct_state(name: str, text: str) -> str:
    flags: dict[str, str] = {}
    for sign, flag in _CT_FLAG.findall(text):
        if flags.setdefault(flag, sign) != sign:
            raise ValueError(f"{name}={text} wants {flag} both set and unset")
    if not flags or _CT_FLAG.sub("", text):
        raise ValueError(f"{name}={text} is not a list of flags")
    return "".join(f"{flags[flag]}{flag}" for flag in _CT_FLAGS if flag in flags)


def _bits(register: str, text: str) -> tuple[int, int]:
    value, _, mask = text.partition("/")
    return int(value, 0), int(mask, 0) if mask else (1 << register_width(register)) - 1


def _united_bits(register: str, first: str, two: str) -> str:
    (value, mask), (more_value, more_mask) = _bits(register, first), _bits(register, two)
    if (value ^ more_value) & mask & more_mask:
        raise ValueError(f"{register} cannot be both {first} and {two}")
    return masked_text(register, value | more_value, mask | more_mask)


RANK: Final[int] = Rank.FLOW.value
"""Rank of flows: entries that a packet meets beyond the switch are ranked before, entries that send packets to it after."""
_INPUT = {"igmp": "ip,nw_proto=2"}
"""Words of ours (and upstream) that ovs-ofctl does not read."""


class Flow(msgspec.Struct, frozen=True, gc=False):
    """One flow. Made by `flows_of(category)`, which puts the match into its normal form."""

    table: str
    priority: int
    match: tuple[str, ...]
    actions: tuple[str, ...]
    """Empty drops the packet."""
    category: int
    """Cookie category, see `Category`."""
    hard_timeout: int = 0
    """Seconds after which OVS removes the flow; 0 keeps it."""
    object_id: int = 0
    """Lower 32 bits of the cookie; the Service group of flows that learn."""
    rank: int = RANK
    """Order among flows that are applied together: smaller ones are put before the others, and removed after them."""

    @property
    def key(self) -> tuple[str, int, tuple[str, ...]]:
        """Identity of a flow in OVS."""
        return (self.table, self.priority, self.match)

    @property
    def parts(self) -> tuple[str, ...]:
        """The conjunctions of a flow that does nothing else: policies share such a flow, and unite these."""
        only = all(action.startswith("conjunction(") for action in self.actions)
        return self.actions if only else ()

    def with_parts(self, parts: Iterable[Hashable]) -> Flow:
        """This flow with the conjunctions of all its owners, each once."""
        return msgspec.structs.replace(self, actions=tuple(sorted({str(part) for part in parts})))

    def text(self, pipeline: Pipeline, cookie_round: int) -> str:
        """The line that `ovs-ofctl -O OpenFlow15 add-flows` reads; raises ValueError on a table not realized."""
        value = cookie(cookie_round, self.category, self.object_id)
        timeout = f"hard_timeout={self.hard_timeout}," if self.hard_timeout else ""
        actions = pipeline.render(",".join(self.actions), self.table) or "drop"
        return f"cookie={value:#x},{timeout}{self.match_text(pipeline)} actions={actions}"

    def match_text(self, pipeline: Pipeline) -> str:
        """Table, priority and match: the line that deletes exactly this flow (`delete_strict`)."""
        terms = (_INPUT.get(term, term) for term in self.match)
        return ",".join((f"table={pipeline.id(self.table)}", f"priority={self.priority}", *terms))

    def named(self, pipeline: Pipeline) -> str:
        """The flow for people and tests: table names, no cookie."""
        head = ",".join((f"table={self.table}", f"priority={self.priority}", *self.match))
        return f"{head} actions={pipeline.named(','.join(self.actions), self.table) or 'drop'}"


class FlowMaker(Protocol):
    """A function that creates flows of one category, as `flows_of` returns it."""

    def __call__(
        self,
        table: Table,
        priority: int,
        *match: Match,
        then: Iterable[Action],
        hard_timeout: int = 0,
        object_id: int = 0,
    ) -> Flow: ...


def flows_of(category: int, *, rank: int = RANK) -> FlowMaker:
    """The one line a feature needs to stamp its cookie category on every flow it yields.

    The maker raises ValueError if matches contradict, or on a priority of more than 16 bits.
    """

    def flow(
        table: Table,
        priority: int,
        *match: Match,
        then: Iterable[Action],
        hard_timeout: int = 0,
        object_id: int = 0,
    ) -> Flow:
        if not 0 <= priority <= 0xFFFF:
            raise ValueError(f"priority {priority} does not fit 16 bits")
        return Flow(
            table.name,
            int(priority),
            normal(match),
            tuple(then),
            int(category),
            hard_timeout,
            object_id,
            rank,
        )

    return flow
