"""Tables and chains of nftables in the kernel, read by netlink without their contents.

Source: netlink(7), linux/netfilter/nf_tables.h (NFT_MSG_GETTABLE, NFT_MSG_GETCHAIN)
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from antrea.errors import Unavailable
from antrea.outside.netlink.message import attributes
from antrea.outside.nftables.libnftables import NETFILTER
from antrea.outside.nftables.nfnetlink import dump_request, dumped, messages
from antrea.outside.nftables.watch import own_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

C = TypeVar("C")

TIMEOUT: Final = 5.0
"""Seconds for a part of an answer."""
TRIES: Final = 3
"""For a dump that another program's change of nftables interrupts."""
_ROOM: Final = 1 << 17
_NEW_TABLE, _GET_TABLE = 10 << 8, 10 << 8 | 1
"""NFNL_SUBSYS_NFTABLES with NFT_MSG_NEWTABLE and NFT_MSG_GETTABLE."""
_NAME: Final = 1
_NEW_CHAIN, _GET_CHAIN = 10 << 8 | 3, 10 << 8 | 4
_CHAIN_TABLE, _CHAIN_NAME, _CHAIN_HOOK, _CHAIN_POLICY = 1, 3, 4, 5
_HOOK_NUMBER: Final = 1
_HOOKS: Final = ("prerouting", "input", "forward", "output", "postrouting", "ingress")
_POLICIES: Final = ("drop", "accept")
_FAMILIES: Final = {"inet": 1, "ip": 2, "arp": 3, "netdev": 5, "bridge": 7, "ip6": 10}
"""NFPROTO_*"""


def dump(
    request: bytes, what: str, new: Callable[[], C], add: Callable[[C, bytes], object]
) -> tuple[C, bool]:
    """Collect the answer to a `dump_request` with `add` into a `new` collection, and return whether nothing has changed meanwhile.

    In the network namespace of the thread that calls. Raises Unavailable with `what`.
    """
    for _ in range(TRIES):
        collected, is_whole = new(), True
        for data, unchanged in _answers(request, what):
            add(collected, data)
            is_whole = is_whole and unchanged
        if is_whole:
            break
    return collected, is_whole


def _whole(kind: int, family: str, what: str, new: Callable[[], C], add: Callable[[C, bytes], object]) -> C:
    """All of a kind that a family has. Raises Unavailable, also where others change it all the time."""
    collected, is_whole = dump(dump_request(kind, _FAMILIES[family], b""), f"{what} of {family}", new, add)
    if not is_whole:
        raise Unavailable(f"{what} of {family}: they change all the time")
    return collected


def _answers(request: bytes, what: str) -> Iterator[tuple[bytes, bool]]:
    """Parts of the answer, and whether nothing has changed since the first one."""
    kind, ended = socket.SOCK_RAW | socket.SOCK_CLOEXEC, False
    try:
        with socket.socket(socket.AF_NETLINK, kind, NETFILTER) as kernel:
            kernel.bind((own_port(), 0))
            kernel.settimeout(TIMEOUT)
            kernel.send(request)
            while not ended:
                data = kernel.recv(_ROOM)
                is_whole, ended = dumped(data, what)
                yield data, is_whole
    except OSError as error:
        raise Unavailable(f"{what}: {error}") from error


def tables(family: str) -> set[str]:
    """Names of the tables of a family, such as `inet`, without what is in them. Raises Unavailable."""

    def add(names: set[str], data: bytes) -> None:
        names.update(row[_NAME].rstrip(b"\0").decode(errors="replace") for row in messages(data, _NEW_TABLE))

    return _whole(_GET_TABLE, family, "tables", set[str], add)


class ChainHead(NamedTuple):
    """A chain without its rules."""

    family: str
    table: str
    name: str
    hook: str = ""
    """Empty: other chains jump to it."""
    policy: str = ""


def chain_heads(family: str, wanted: Callable[[ChainHead], bool]) -> list[ChainHead]:
    """Return the `wanted` chains of family `ip`, `ip6` or `inet`. Raises Unavailable."""

    def add(chains: list[ChainHead], data: bytes) -> None:
        chains += filter(wanted, (_chain_head(family, row) for row in messages(data, _NEW_CHAIN)))

    return _whole(_GET_CHAIN, family, "chains", list[ChainHead], add)


def _chain_head(family: str, row: Mapping[int, bytes]) -> ChainHead:
    table, name = (row[kind].rstrip(b"\0").decode(errors="replace") for kind in (_CHAIN_TABLE, _CHAIN_NAME))
    if _CHAIN_HOOK not in row:
        return ChainHead(family, table, name)
    hook = attributes(row[_CHAIN_HOOK])[_HOOK_NUMBER]
    policy = row.get(_CHAIN_POLICY)
    return ChainHead(
        *(family, table, name, _HOOKS[int.from_bytes(hook, "big")]),
        policy=_POLICIES[int.from_bytes(policy, "big")] if policy else "",
    )
