"""Reads the named counters of our table of nftables."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from antrea.errors import Unavailable
from antrea.host.nft import TABLE
from antrea.openflow.flow_count import FlowCount
from antrea.outside.nftables.libnftables import NftError, connect

if TYPE_CHECKING:
    from antrea.outside.nftables.libnftables import Nft

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
