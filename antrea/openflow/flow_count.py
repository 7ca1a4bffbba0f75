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
    """Table, priority and match: no other flow that stands has the same."""
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
        found = re.search(rf",{name}=(\d+)", self.flow)
        return int(found[1]) if found else None

    def value(self, field: Field) -> int | None:
        """Return the value that a field must have; None if the flow does not match all of its bits."""
        found = re.search(rf",{field.register}=0x([0-9a-f]+)(?:/0x([0-9a-f]+))?", self.flow)
        if found is None or (found[2] and field.mask & ~int(found[2], 16)):
            return None
        return (int(found[1], 16) & field.mask) >> field.lo

    def state(self, flag: str) -> bool:
        """Whether it is on packets whose connection has this state, such as +new."""
        found = re.search(r",ct_state=([^,]*)", self.flow)
        return found is not None and flag in found[1]


def flow_count(line: str) -> FlowCount | None:
    """Parse one line of a dump; None if the line is not a flow."""
    found = _FLOW.search(line)
    if found is None:
        return None
    flow = f"table={found['table']},{found['match']}"
    return FlowCount(flow, int(found["packets"]), int(found["bytes"]), found["drop"] is not None)
