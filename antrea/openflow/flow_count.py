"""Counters of a flow as ovs-ofctl prints them.

Source: ovs-ofctl(8) "dump-flows", ovs-fields(7)
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from antrea.openflow.field import Field

_FLOW = re.compile(
    r"table=(?P<table>\d+), n_packets=(?P<packets>\d+), n_bytes=(?P<bytes>\d+), .*?\b(?P<match>priority=\d+[^ ]*) actions=(?P<drop>drop\b)?"
)


class FlowCount(NamedTuple):
    """A flow and its counters, which an add that replaces the flow leaves as they are."""

    flow: str
    """Table, priority and match: no other flow in the switch has the same."""
    packets: int
    bytes: int
    drops: bool = False
    """Whether what it counts goes nowhere."""

    @property
    def priority(self) -> int:
        return int(self._number("priority") or 0)

    @property
    def port(self) -> int | None:
        """Input port of the packets; None: any."""
        return self._number("in_port")

    @property
    def ipv6(self) -> bool:
        """Whether it is on IPv6 alone."""
        return ",ipv6" in self.flow

    def _number(self, name: str) -> int | None:
        match = re.search(rf",{name}=(\d+)", self.flow)
        return int(match[1]) if match else None

    def value(self, field: Field) -> int | None:
        """Return the value that a field must have; None if the flow does not match all of its bits."""
        match = re.search(rf",{field.register}=0x([0-9a-f]+)(?:/0x([0-9a-f]+))?", self.flow)
        if match is None or (match[2] and field.mask & ~int(match[2], 16)):
            return None
        return (int(match[1], 16) & field.mask) >> field.lo

    def state(self, flag: str) -> bool:
        """Whether it is on packets whose connection has this state, such as +new."""
        match = re.search(r",ct_state=([^,]*)", self.flow)
        return match is not None and flag in match[1]


def flow_count(line: str) -> FlowCount | None:
    """Parse one line of a dump; None if the line is not a flow."""
    match = _FLOW.search(line)
    if match is None:
        return None
    flow = f"table={match['table']},{match['match']}"
    return FlowCount(flow, int(match["packets"]), int(match["bytes"]), match["drop"] is not None)
