"""Readers of our table of nftables: named counters, and the elements of a map."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from antrea.errors import Unavailable
from antrea.host.nft import TABLE, NftElement
from antrea.openflow.flow_count import FlowCount
from antrea.outside.nftables import text as nft_text
from antrea.outside.nftables.libnftables import Nft, NftError, connect

if TYPE_CHECKING:
    from antrea.outside.nftables.libnftables import Nft


class NftElements:
    """In the network namespace of the thread that makes it."""

    def __init__(self, nft: Nft | None = None) -> None:
        self._nft = nft or connect()

    async def of_map(self, name: str) -> list[NftElement]:
        """Return the elements of a map; none if the map does not exist."""
        try:
            listing = await asyncio.to_thread(self._nft.run, f"list map {TABLE} {name}\n")
        except NftError:
            return []
        return [entry for entry in nft_text.parse(listing) if isinstance(entry, NftElement)]


_COUNTER = re.compile(r"^\tcounter (\S+) \{\n(?:.*\n)*?\t\tpackets (\d+) bytes (\d+)\n\t\}$", re.MULTILINE)


class NftCounters:
    """In the network namespace of the thread that makes it."""

    def __init__(self, nft: Nft | None = None) -> None:
        self._nft = nft or connect(stateless=False)

    async def read(self) -> list[FlowCount]:
        """Read the counters by name. Raises Unavailable."""
        try:
            text = await asyncio.to_thread(self._nft.run, f"list counters table {TABLE}\n")
        except NftError as error:
            raise Unavailable(f"counters of nftables cannot be read: {error}") from error
        return [FlowCount(name, int(packets), int(size)) for name, packets, size in _COUNTER.findall(text)]
