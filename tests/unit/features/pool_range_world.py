"""Ranges of addresses as ExternalIPPools and IPPools have them, and what their webhooks answer to them."""

from __future__ import annotations

from typing import Any

from admission_world import OK

INFO = {"gateway": "10.5.0.254", "prefixLength": 24}
NET = {"cidr": "10.5.0.0/28"}
SOME = {"start": "10.5.0.20", "end": "10.5.0.29"}
RANGES: dict[str, tuple[list[dict[str, Any]], dict[str, Any], str]] = {
    "good ones": ([NET, SOME], INFO, OK),
    "of IPv6": ([{"cidr": "fd00::/120"}], {"gateway": "fd00::ffff", "prefixLength": 64}, OK),
    "no gateway": ([NET], {"gateway": "x", "prefixLength": 24}, "spec.subnetInfo.gateway: invalid gateway address x"),
    "a host's prefix": (
        [NET], {"gateway": "10.5.0.1", "prefixLength": 32}, "spec.subnetInfo.prefixLength: invalid prefixLength 32",
    ),
    "no CIDR": ([{"cidr": "10.5.0.0/40"}], INFO, "spec.ipRanges[0].cidr: invalid cidr 10.5.0.0/40"),
    "a bare address": ([{"cidr": "10.5.0.7"}], INFO, "spec.ipRanges[0].cidr: invalid cidr 10.5.0.7"),
    "no start": ([{"start": "x", "end": "10.5.0.9"}], INFO, "spec.ipRanges[0].start: invalid start ip address x"),
    "no end": ([{"start": "10.5.0.9", "end": "x"}], INFO, "spec.ipRanges[0].end: invalid end ip address x"),
    "two families": (
        [{"start": "10.5.0.9", "end": "fd00::1"}],
        INFO,
        "spec.ipRanges[0].end: range start 10.5.0.9 and range end fd00::1 should belong to same family",
    ),
    "backwards": (
        [{"start": "10.5.0.9", "end": "10.5.0.8"}],
        INFO,
        "spec.ipRanges[0].end: range start 10.5.0.9 should not be greater than range end 10.5.0.8",
    ),
    "outside": (
        [NET, {"start": "10.5.0.250", "end": "10.5.1.1"}],
        INFO,
        "spec.ipRanges[1]: range [10.5.0.250-10.5.1.1] must be a strict subset of the subnet 10.5.0.254/24",
    ),
    "overlapping": (
        [NET, SOME, {"cidr": "10.5.0.8/30"}],
        INFO,
        "spec.ipRanges[2]: range [10.5.0.8/30] overlaps with range [10.5.0.0/28]",
    ),
}  # fmt: skip
UPDATES: tuple[tuple[list[dict[str, Any]], list[dict[str, Any]], str], ...] = (
    ([SOME, NET], [NET], OK),
    (
        [{"cidr": "10.5.0.0/27"}],
        [NET, SOME],
        "spec.ipRanges: existing IPRanges [10.5.0.0/28 10.5.0.20-10.5.0.29] cannot be updated or deleted",
    ),
)
"""Ranges, those before, and the answer."""
