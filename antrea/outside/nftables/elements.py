"""Reads the elements of a set or map of our table of nftables."""

from __future__ import annotations

import asyncio

from antrea.host.nft import TABLE, NftElement
from antrea.outside.nftables import text as nft_text
from antrea.outside.nftables.libnftables import Nft, NftError, connect


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
