"""Counters of a set as the kernel has them, against what nft lists."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from antrea.errors import Unavailable
from antrea.outside.nftables.libnftables import connect
from antrea.outside.nftables.set_counters import SetCounters, counts_of

if TYPE_CHECKING:
    from conftest import Namespaces

MANY = 3000
"""More than there is room for in one message."""
SETS = """
add table netdev t
add set netdev t four { typeof ip saddr . ip daddr . meta l4proto . th sport . th dport; flags dynamic,timeout; timeout 2m; size 65536; counter; }
add set netdev t six { typeof ip6 saddr . ip6 daddr . meta l4proto . th sport . th dport; flags dynamic,timeout; timeout 2m; size 65536; counter; }
"""


def test_all_elements_are_read_with_what_they_count_and_a_set_that_is_missing_is_named(
    netns: Namespaces,
) -> None:
    nft = connect(stateless=False)
    nft.run(SETS)
    four = (
        f"10.0.0.1 . 10.0.0.2 . tcp . {port} . 80 counter packets {port} bytes {90 * port} timeout {own}"
        for port, own in zip(range(MANY), ("2m", "1m") * MANY, strict=False)
    )
    nft.run(f"add element netdev t four {{ {', '.join(four)} }}")
    nft.run(
        "add element netdev t six { fd00::1 . fd00::2 . udp . 53 . 4000 counter packets 5000000000 bytes 7 }"
    )
    counters = SetCounters("t")
    found = {
        int.from_bytes(key[12:14]): counts_of(counter) for key, counter in counters.read("four", 20).items()
    }
    listed = re.findall(
        r"tcp . (\d+) . 80 .*?counter packets (\d+) bytes (\d+)", nft.run("list set netdev t four")
    )
    assert len(listed) == MANY
    assert found == {int(port): (int(packets), int(octets)) for port, packets, octets in listed}
    [(key, counter)] = counters.read("six", 44).items()
    assert key.hex() == f"fd{'0' * 29}1fd{'0' * 29}2110000000035" + "00000fa00000"
    assert counts_of(counter) == (5_000_000_000, 7)
    with pytest.raises(Unavailable, match="set none: ENOENT"):
        counters.read("none", 20)
