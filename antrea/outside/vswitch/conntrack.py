"""Connections that the datapath tracks, asked of ovs-vswitchd, which has them of the kernel's or its own.

Source: ovs-vswitchd(8) "dpctl/dump-conntrack", "dpctl/flush-conntrack", "dpctl/ct-get-nconns", "dpctl/ct-get-maxconns",
"revalidator/wait"; lib/ct-dpif.c for the texts; Documentation/networking/nf_conntrack-sysctl.rst of Linux.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.errors import Unavailable
from antrea.outside.ovsdb.session import RpcError
from antrea.outside.vswitch.appctl import control

if TYPE_CHECKING:
    from antrea.outside.ovsdb.session import Session

TIMEOUT: Final = 30.0
"""Seconds for one list of all connections."""
MIN_ICMPV6_VERSION: Final = (3, 5)
"""Version of ovs-vswitchd from which on a connection of ICMPv6 can be removed: 3.1 aborts where it tracks connections itself."""
KERNEL: Final = Path("/proc/sys/net/netfilter")
_LINE = re.compile(r"(\w+),orig=\(([^)]*)\)(?:,reply=\(([^)]*)\))?")
_VERSION = re.compile(r"\b(\d+)\.(\d+)\.\d+")
_MARK, _LABEL = re.compile(r",mark=(\d+)"), re.compile(r",labels=(0x[0-9a-f]+)")
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
    server: str = ""
    """Address that answers, where it is another than `destination` by translation."""
    server_port: int = 0
    mark: int = 0
    label: int = 0

    @property
    def is_translated(self) -> bool:
        """Whether its first packet was sent on to another address or port."""
        return self.server not in ("", self.destination) or self.server_port not in (0, self.port)

    @property
    def text(self) -> str:
        """The connection as an argument of ovs-appctl."""
        v6 = "ipv6" if ":" in self.source else "nw"
        ends = (
            f"ct_{v6}_src={self.source},ct_{v6}_dst={self.destination},ct_nw_proto={_NUMBERS[self.protocol]}"
        )
        if self.protocol.startswith("icmp"):
            number, kind, code = self.echo
            return f"{ends},icmp_id={number},icmp_type={kind},icmp_code={code}"
        return f"{ends},ct_tp_src={self.source_port},ct_tp_dst={self.port}"


class Usage(NamedTuple):
    """How many connections there are in all zones, and how many there may be."""

    tracked: int
    most: int


class Conntrack:
    """Connection tracking of the datapath of one ovs-vswitchd."""

    def __init__(self, run_directory: Path) -> None:
        """`run_directory` has its control socket."""
        self._directory = run_directory

    async def connections(self, zone: int) -> list[Tracked]:
        """All of a zone, after the datapath has every flow that has changed. Raises Unavailable."""
        try:
            async with asyncio.timeout(TIMEOUT), control(self._directory) as ovs:
                await ovs.call("revalidator/wait")
                text = str(await ovs.call("dpctl/dump-conntrack", f"zone={zone}"))
        except RpcError as error:
            raise Unavailable(f"connections of zone {zone} cannot be listed: {error}") from error
        except TimeoutError:
            raise Unavailable(f"connections of zone {zone} were not listed within {TIMEOUT:.0f} s") from None
        return [connection for line in text.splitlines() if (connection := tracked(zone, line))]

    async def dump(self, zone: int, *, counters: bool = True) -> str:
        """All of a zone as text, with counters and times where the datapath has them. Raises Unavailable."""
        options = ("-s", f"zone={zone}") if counters else (f"zone={zone}",)
        try:
            async with asyncio.timeout(TIMEOUT), control(self._directory) as ovs:
                return str(await ovs.call("dpctl/dump-conntrack", *options))
        except RpcError as error:
            raise Unavailable(f"connections of zone {zone} cannot be listed: {error}") from error
        except TimeoutError:
            raise Unavailable(f"connections of zone {zone} were not listed within {TIMEOUT:.0f} s") from None

    async def usage(self) -> Usage:
        """Return the usage of the datapath's own table, or of the kernel's for the datapath that has none. Raises Unavailable."""
        try:
            async with asyncio.timeout(TIMEOUT), control(self._directory) as ovs:
                return Usage(
                    int(await ovs.call("dpctl/ct-get-nconns")), int(await ovs.call("dpctl/ct-get-maxconns"))
                )
        except RpcError:
            return kernel_usage()
        except ValueError as error:
            raise Unavailable(
                f"size of the connection table of ovs-vswitchd cannot be read: {error}"
            ) from error
        except TimeoutError:
            raise Unavailable(f"no answer of ovs-vswitchd within {TIMEOUT:.0f} s") from None

    async def forget(self, connections: list[Tracked]) -> None:
        """Remove connections, so that their next packets are first ones. Raises Unavailable; one that has ended is not a failure.

        Those of ICMPv6 stay with a version of ovs-vswitchd before MIN_ICMPV6_VERSION, and end 30 s after their last packet.
        """
        try:
            async with asyncio.timeout(TIMEOUT), control(self._directory) as ovs:
                has_icmpv6 = any(connection.protocol == "icmpv6" for connection in connections)
                removes_icmpv6 = not has_icmpv6 or await _version(ovs) >= MIN_ICMPV6_VERSION
                for connection in connections:
                    if removes_icmpv6 or connection.protocol != "icmpv6":
                        await _forget(ovs, connection)
        except TimeoutError:
            raise Unavailable(f"no answer of ovs-vswitchd within {TIMEOUT:.0f} s") from None


def kernel_usage(directory: Path = KERNEL) -> Usage:
    """Return the usage of this network namespace. Raises Unavailable."""
    try:
        count, most = (int((directory / f"nf_conntrack_{name}").read_text()) for name in ("count", "max"))
    except (OSError, ValueError) as error:
        raise Unavailable(f"size of the kernel's connection table cannot be read: {error}") from error
    return Usage(count, most)


async def _version(ovs: Session) -> tuple[int, ...]:
    """Major and minor number; empty for a text without them."""
    numbers = _VERSION.search(str(await ovs.call("version")))
    return tuple(map(int, numbers.groups())) if numbers else ()


async def _forget(ovs: Session, connection: Tracked) -> None:
    try:
        await ovs.call("dpctl/flush-conntrack", f"zone={connection.zone}", connection.text)
    except RpcError as error:
        if "No such file" not in str(error):
            raise Unavailable(f"connection {connection.text} cannot be removed: {error}") from error


def tracked(zone: int, line: str) -> Tracked | None:
    """None for a line that is neither a connection with ports nor an echo, or that cannot be parsed."""
    match = _LINE.match(line)
    if match is None or match[1] not in _NUMBERS:
        return None
    given, back = (
        dict(part.partition("=")[::2] for part in (text or "").split(",")) for text in match.groups()[1:]
    )
    try:
        ports = (int(given.get("sport", 0)), int(given.get("dport", 0)))
        echo = (int(given.get("id", 0)), int(given.get("type", 0)), int(given.get("code", 0)))
        server = (back.get("src", ""), int(back.get("sport", 0)))
        mark, label = (pattern.search(line) for pattern in (_MARK, _LABEL))
        mark_and_label = (int(mark[1]) if mark else 0, int(label[1], 16) if label else 0)
        return Tracked(zone, match[1], given["src"], given["dst"], *ports, echo, *server, *mark_and_label)
    except (KeyError, ValueError):
        return None
