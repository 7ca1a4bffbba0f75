"""Antrea's objects in nftables: table `inet antrea` (chains, rules, sets, maps, their elements) and table `netdev antrea`,
and for what family inet does not have tables `ip antrea`, `ip6 antrea` and `arp antrea`.

Text is nft's own (nft(8)); values are written the way `nft list` prints them, so that a person can compare.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import ClassVar, Final

import msgspec

from antrea.rank import Rank

TABLE: Final = "inet antrea"
SHIELD_TABLE: Final = "netdev antrea"
IPV4_TABLE: Final = "ip antrea"
IPV6_TABLE: Final = "ip6 antrea"
ARP_TABLE: Final = "arp antrea"
TAG_PREFIX: Final = "tag-"
RELAY_PREFIX: Final = "relay-"
SILENCE_PREFIX: Final = "silence-"
HOPS_PREFIX: Final = "hops-"
ARP_SOURCE_PREFIX: Final = "arp-source-"
"""Before the address in hexadecimal digits: names of chains have no colons."""


class NftSet(msgspec.Struct, frozen=True, kw_only=True):
    """A set, or with `data` a map (then rules read it as `map @name`)."""

    name: str
    type: str
    """"ipv4_addr", "ipv4_addr . inet_proto . inet_service", "mark"."""
    data: str = ""
    """Type of a map's values: "ipv4_addr", "mark"; empty for a set."""
    flags: tuple[str, ...] = ()
    """("interval",) when elements are networks or ranges."""
    category: int = 0

    rank: ClassVar[int] = Rank.RECEIVES

    @property
    def key(self) -> str:
        return self.name


class NftElement(msgspec.Struct, frozen=True, kw_only=True):
    """One element; `data` only in a map."""

    set: str
    value: str
    """"10.1.1.1", "10.1.1.1 . tcp . 30080", "0x00000001"."""
    data: str = ""
    rank: int = Rank.RECEIVES
    category: int = 0

    @property
    def key(self) -> tuple[str, str]:
        return (self.set, self.value)


class NftCounter(msgspec.Struct, frozen=True, kw_only=True):
    """A counter by name, which keeps its count while rules that count with it are replaced."""

    name: str
    category: int = 0

    rank: ClassVar[int] = Rank.RECEIVES

    @property
    def key(self) -> str:
        return self.name


class NftChain(msgspec.Struct, frozen=True, kw_only=True):
    """A chain; a base chain has the hook where packets enter it."""

    name: str
    hook: str = ""
    """"type nat hook postrouting priority srcnat; policy accept;"; empty for a chain that rules jump to."""
    category: int = 0

    rank: ClassVar[int] = Rank.RECEIVES

    @property
    def key(self) -> str:
        return self.name


class NftRule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule. In a chain rules stand by (`order`, `name`), regardless of their time.

    # parity: pkg/agent/route/route_linux.go, which appends in the order of its source
    """

    chain: str
    name: str
    """Unique in the chain; shown as the rule's comment. At most 100 bytes, no double quote."""
    text: str
    """Matches and statements: `oifname != "antrea-gw0" masquerade`. No comment."""
    order: int = 100
    rank: int = Rank.RECEIVES
    category: int = 0

    @property
    def key(self) -> tuple[str, str]:
        return (self.chain, self.name)


class NftShield(msgspec.Struct, frozen=True):
    """Keeps the kernel from handling what comes in on an interface that the userspace datapath of OVS reads.

    OVS gets a copy of each frame (AF_PACKET); without the shield the kernel would forward, or answer, the other one.
    """

    dev: str
    instance: str = ""
    """Differs when the interface was made anew under the same name (the uuid of its OVS port), so that it is shielded again."""
    category: int = 1

    rank: ClassVar[int] = Rank.RECEIVES

    @property
    def key(self) -> str:
        return self.dev

    @property
    def chain(self) -> str:
        """Name of the chain, safe for any name of an interface: nft allows few characters in the name of a chain."""
        name = re.sub(r"[^A-Za-z0-9_.-]", lambda match: f"/{ord(match[0]):x}", self.dev)
        return f"shield-{name}"


class NftTag(msgspec.Struct, frozen=True, kw_only=True):
    """Gives frames that the kernel sends out of an interface another source MAC, if their packet has a bit in its mark."""

    dev: str
    bit: int = 0
    """0 in what an earlier start left: which one is not read back."""
    mac: str = ""
    category: int = 0

    rank: ClassVar[int] = Rank.RECEIVES

    @property
    def key(self) -> str:
        return self.dev

    @property
    def chain(self) -> str:
        return f"{TAG_PREFIX}{self.dev}"


class NftRelay(msgspec.Struct, frozen=True, kw_only=True):
    """Answers to an address of this Node whose connection it does not know are handed on to a neighbour on `dev`.

    What comes in by `dev` itself is not: so none goes round in circles.
    """

    ip: str
    via: str = ""
    """The neighbour; empty in what an earlier start left: which one is not read back."""
    dev: str = ""
    instance: int = 0
    """Index of `dev`: another one for an interface that was made anew under its name, as rules hold the index; 0: it is not there, or not read back."""
    mark: int = 0
    """Mark that all packets to `dev` get: one that changes in chain `output` would be routed anew, back to the address."""
    rank: int = Rank.DIVERTS
    category: int = 0

    @property
    def key(self) -> str:
        return self.ip

    @property
    def chain(self) -> str:
        return f"{RELAY_PREFIX}{ip_address(self.ip).packed.hex()}"

    @property
    def table(self) -> str:
        """Statement `dup` is not known in family inet."""
        return IPV6_TABLE if ":" in self.ip else IPV4_TABLE


class NftHops(msgspec.Struct, frozen=True, kw_only=True):
    """Forwarding of packets that arrive at `dev`, unchanged, to the neighbour on `out` that their source MAC encodes.

    Before the host tracks or routes it, whatever its destination: that may be an address of this Node.
    """

    ipv6: bool
    dev: str = ""
    out: str = ""
    instance: int = 0
    """Index of `out`: another one for an interface that was made anew under its name, as rules hold the index; 0: it is not there, or not read back."""
    hops: tuple[tuple[str, str], ...] = ()
    """MAC and neighbour, sorted."""
    category: int = 0

    rank: ClassVar[int] = Rank.RECEIVES

    @property
    def key(self) -> bool:
        return self.ipv6

    @property
    def chain(self) -> str:
        return f"{HOPS_PREFIX}{'6' if self.ipv6 else '4'}"

    @property
    def table(self) -> str:
        """Statement `dup` is not known in family inet."""
        return IPV6_TABLE if self.ipv6 else IPV4_TABLE


class NftArpSource(msgspec.Struct, frozen=True):
    """ARP requests of the kernel on `dev` have this IPv4 address as their sender, though no device has it."""

    ip: str
    dev: str = ""
    """Empty in what an earlier start left: which one is not read back."""
    category: int = 0

    rank: ClassVar[int] = Rank.RECEIVES

    @property
    def key(self) -> str:
        return self.ip

    @property
    def chain(self) -> str:
        return f"{ARP_SOURCE_PREFIX}{ip_address(self.ip).packed.hex()}"

    @property
    def table(self) -> str:
        """The kernel asks for neighbours of IPv6 by its link-local address."""
        return ARP_TABLE


class NftSilence(msgspec.Struct, frozen=True):
    """The Node has this address, and does not answer neighbours that ask who has it."""

    ip: str
    category: int = 0

    rank: ClassVar[int] = Rank.SENDS

    @property
    def key(self) -> str:
        return self.ip

    @property
    def chain(self) -> str:
        return f"{SILENCE_PREFIX}{ip_address(self.ip).packed.hex()}"

    @property
    def table(self) -> str:
        return IPV6_TABLE if ":" in self.ip else ARP_TABLE
