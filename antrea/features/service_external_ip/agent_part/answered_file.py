"""File of the Nodes that answered for external IPs, over a restart of the agent: connections that began at these are relayed.

The file does not outlive the Node, nor do connections that it translates.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from antrea.decoding import decode_json
from antrea.errors import Invalid
from antrea.facts.external_ip import AnsweredAddress
from antrea.facts.service import Service
from antrea.outside.disk.atomic_file import exchange
from antrea.outside.disk.state_file import Damaged, read_bytes, sealed, set_aside, unsealed
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from antrea.engine import Facts

log = klog.logger(__name__)

NAME: Final = "answered-external-ips"
KIND: Final = b"antrea answered external IPs 1\n"
GAP_SECONDS: Final = 0.2
"""Seconds between two writes: many addresses may move together."""


class AnsweredFile:
    """File in a directory of files that outlive the agent."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME
        self._kept: list[AnsweredAddress] = []

    def read(self) -> list[AnsweredAddress]:
        """Read what an earlier agent wrote; nothing of a damaged file, which is set aside."""
        try:
            data = unsealed(KIND, read_bytes(self._path))
            self._kept = decode_json(data, list[AnsweredAddress], str(self._path))
        except FileNotFoundError:
            pass
        except (OSError, Damaged, Invalid) as error:
            log.warning("Failed to read who answered for external IPs", path=self._path, err=str(error))
            set_aside(self._path)
        return self._kept

    async def run(self, facts: Facts) -> None:
        """Write changes until cancelled."""
        with facts.watch(AnsweredAddress, Service) as news:
            while True:
                news.clear()
                self._forget(facts)
                rows = facts.all(AnsweredAddress)
                if rows != self._kept:
                    self._kept = rows
                    await asyncio.to_thread(self._write, rows)
                    await asyncio.sleep(GAP_SECONDS)
                await news.wait()

    def _forget(self, facts: Facts) -> None:
        """Remove rows of Services that were deleted while no agent ran."""
        if facts.feeds.has(Service):
            for row in facts.all(AnsweredAddress):
                if facts.get(Service, row.service) is None:
                    facts.drop(AnsweredAddress, row.key)

    def _write(self, rows: Sequence[AnsweredAddress]) -> None:
        try:
            exchange(self._path, sealed(KIND, [msgspec.json.encode(rows)]))
        except OSError as error:
            log.warning("Failed to keep who answered for external IPs", path=self._path, err=str(error))
