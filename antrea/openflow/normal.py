"""The one normal form of a match: split, merged, checked, and in the order in which OVS prints it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from antrea.openflow.field import masked_text, register_width

if TYPE_CHECKING:
    from collections.abc import Iterable

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
    """Equal for equal matches, whatever order they were written in.

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
