"""A flow as a message of OpenFlow 1.5, where it is of the urgent kind: an address in conjunctions of rules.

All others are put into messages by ovs-ofctl.
Source: OpenFlow Switch Specification 1.5.1, 7.2 and 7.3.4.2; openvswitch/ofp-actions.c (struct nx_action_conjunction)
"""

from __future__ import annotations

import re
import struct
from ipaddress import ip_address
from typing import TYPE_CHECKING

from antrea.openflow.cookie import cookie

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.openflow.flow import Flow
    from antrea.openflow.pipeline import Pipeline

_ADD, _DELETE_STRICT = 0, 4
_ANY = 0xFFFFFFFF
_NOBODYS, _LAST_TABLE = 0xFFFFFFFFFFFFFFFF, 253
"""A cookie and a table that no flow has."""
_HEAD = struct.Struct("!QQBBHHHIIIHH")
"""cookie, its mask, table, command, idle and hard timeout, priority, buffer, port, group, flags, importance"""
_MATCH, _INSTRUCTION = struct.Struct("!HH"), struct.Struct("!HH4x")
_OXM, _APPLY_ACTIONS = 1, 4
_BASIC, _ETH_TYPE = 0x8000, 5
_FAMILIES = {"ip": 0x0800, "ipv6": 0x86DD}
_ADDRESSES = {"nw_src": 11, "nw_dst": 12, "ipv6_src": 26, "ipv6_dst": 27}
"""Numbers of fields."""
_CONJUNCTION = struct.Struct("!HHIHBBI")
_NICIRA, _CONJUNCTION_TYPE = 0x00002320, 34
_PART = re.compile(r"conjunction\((\d+),(\d+)/(\d+)\)")


def flow_mod(flow: Flow, pipeline: Pipeline, cookie_round: int, *, put: bool) -> bytes | None:
    """The body of the message that adds exactly this flow, or deletes it; None for flows of another kind."""
    match = _match(flow)
    if match is None or flow.hard_timeout or not flow.parts:
        return None
    value = cookie(cookie_round, flow.category, flow.object_id) if put else 0
    command = _ADD if put else _DELETE_STRICT
    table = pipeline.id(flow.table)
    head = _HEAD.pack(value, 0, table, command, 0, 0, flow.priority, _ANY, _ANY, _ANY, 0, 0)
    return head + match + (_instruction(flow) if put else b"")


def no_deletion() -> bytes:
    """The body of a message that deletes a flow that there is not, which ovs-vswitchd takes for a change of its flows."""
    head = _HEAD.pack(_NOBODYS, _NOBODYS, _LAST_TABLE, _DELETE_STRICT, 0, 0, 0, _ANY, _ANY, _ANY, 0, 0)
    return head + _MATCH.pack(_OXM, _MATCH.size) + bytes(8 - _MATCH.size)


def _match(flow: Flow) -> bytes | None:
    matched = [*_fields(flow.match)]
    if None in matched:
        return None
    fields = b"".join(filter(None, matched))
    whole = _MATCH.pack(_OXM, _MATCH.size + len(fields)) + fields
    return whole + bytes(-len(whole) % 8)


def _fields(terms: tuple[str, ...]) -> Iterator[bytes | None]:
    """In the order of the terms, of which the family comes first; None for one that is not known here."""
    for term in terms:
        name, _, value = term.partition("=")
        if (kind := _FAMILIES.get(term)) is not None:
            yield _field(_ETH_TYPE, kind.to_bytes(2))
        elif (number := _ADDRESSES.get(name)) is not None and "/" not in value:
            yield _field(number, ip_address(value).packed)
        else:
            yield None


def _field(number: int, value: bytes) -> bytes:
    return struct.pack("!HBB", _BASIC, number << 1, len(value)) + value


def _instruction(flow: Flow) -> bytes:
    parts = (_PART.fullmatch(part) for part in flow.parts)
    numbers = [[int(text) for text in part.groups()] for part in parts if part]
    size = _CONJUNCTION.size
    actions = b"".join(
        _CONJUNCTION.pack(0xFFFF, size, _NICIRA, _CONJUNCTION_TYPE, clause - 1, clauses, number)
        for number, clause, clauses in numbers
    )
    return _INSTRUCTION.pack(_APPLY_ACTIONS, _INSTRUCTION.size + len(actions)) + actions
