"""Connections that the datapath tracks, asked of ovs-vswitchd, which has them of the kernel's or its own.

Source: ovs-vswitchd(8) "dpctl/dump-conntrack", "dpctl/flush-conntrack", "revalidator/wait"; lib/ct-dpif.c for the texts.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.errors import Unavailable
from antrea.outside.ovs_control import control
from antrea.outside.ovsdb_session import RpcError

if TYPE_CHECKING:
    from pathlib import Path

    from antrea.outside.ovsdb_session import Session

PATIENCE: Final = 30.0
"""Seconds for one list of all connections."""
_LINE = re.compile(r"(\w+),orig=\(([^)]*)\)")
_NUMBERS: Final = {"tcp": 6, "udp": 17, "sctp": 132, "icmp": 1, "icmpv6": 58}


class Tracked(NamedTuple):
    """A connection as its first packet had it; ports are 0 for ICMP, which `echo` is for: id, type, code."""

    zone: int
    protocol: str
    source: str
    destination: str
    source_port: int
    port: int
    echo: tuple[int, int, int]

    @property
    def text(self) -> str:
        """As ovs-vswitchd wants to be told which it is."""
        v6 = "ipv6" if ":" in self.source else "nw"
        ends = (
            f"ct_{v6}_src={self.source},ct_{v6}_dst={self.destination},ct_nw_proto={_NUMBERS[self.protocol]}"
        )
        if self.protocol.startswith("icmp"):
            number, kind, code = self.echo
            return f"{ends},icmp_id={number},icmp_type={kind},icmp_code={code}"
        return f"{ends},ct_tp_src={self.source_port},ct_tp_dst={self.port}"


class Conntrack:
    """That of the datapath of one ovs-vswitchd."""

    def __init__(self, run_directory: Path) -> None:
        """`run_directory` has its control socket."""
        self._directory = run_directory

    async def connections(self, zone: int) -> list[Tracked]:
        """All of a zone, after the datapath has heard of every flow that has changed. Raises Unavailable."""
        try:
            async with asyncio.timeout(PATIENCE), control(self._directory) as ovs:
                await ovs.call("revalidator/wait")
                text = str(await ovs.call("dpctl/dump-conntrack", f"zone={zone}"))
        except RpcError as no:
            raise Unavailable(f"connections of zone {zone}: {no}") from no
        except TimeoutError:
            raise Unavailable(f"connections of zone {zone} within {PATIENCE:.0f} s") from None
        return [one for line in text.splitlines() if (one := tracked(zone, line))]

    async def forget(self, found: list[Tracked]) -> None:
        """Their next packets are first ones. Raises Unavailable; one that is gone by itself is no failure."""
        try:
            async with asyncio.timeout(PATIENCE), control(self._directory) as ovs:
                for one in found:
                    await _forget(ovs, one)
        except TimeoutError:
            raise Unavailable(f"answer of ovs-vswitchd within {PATIENCE:.0f} s") from None


async def _forget(ovs: Session, one: Tracked) -> None:
    try:
        await ovs.call("dpctl/flush-conntrack", f"zone={one.zone}", one.text)
    except RpcError as no:
        if "No such file" not in str(no):
            raise Unavailable(f"end of connection {one.text}: {no}") from no


def tracked(zone: int, line: str) -> Tracked | None:
    """None for a line that tells of no connection with ports or of an echo."""
    found = _LINE.match(line)
    if found is None or found[1] not in _NUMBERS:
        return None
    given = dict(part.partition("=")[::2] for part in found[2].split(","))
    ports = (int(given.get("sport", 0)), int(given.get("dport", 0)))
    echo = (int(given.get("id", 0)), int(given.get("type", 0)), int(given.get("code", 0)))
    return Tracked(zone, found[1], given["src"], given["dst"], *ports, echo)
