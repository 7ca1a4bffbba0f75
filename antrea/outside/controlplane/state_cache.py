"""The last state of antrea-controller, in a file that outlives a reboot: an agent without a controller starts with it.

One header (format and digest), then records of (name of a kind, its rows); the last one has the UIDs of the Pods that all of this covers.
Replaced at once and as a whole; one that is not whole counts for nothing.
parity: pkg/agent/controller/networkpolicy/filestore.go, which has a file per object, under /var/run
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from antrea.decoding import decode_msgpack
from antrea.errors import Invalid
from antrea.outside.disk.atomic_file import exchange
from antrea.outside.disk.state_file import DIGEST, Damaged, read_bytes, sealed, set_aside, unsealed
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path

    from antrea.facts.fact import Fact

log = klog.logger(__name__)

FORMAT = b"antrea last word 1\n"
MAX_BYTES = 64 << 20
"""Bytes. A word that is longer is not kept, and the one before neither: Pods wait for the controller then."""
SLICE = 2000
"""Rows that are written down before others have their turn."""
EVERY_SECONDS, SHARE = 1.0, 20
"""Least time between two writes, and how many times what the last one took."""


class CachedState(NamedTuple):
    """Content of the file."""

    rows: list[Fact]
    covered: tuple[str, ...]
    """UIDs of Pods."""


class StateCacheFile:
    """The file at `path`, with rows of `kinds`."""

    def __init__(self, path: Path, kinds: Iterable[type[Fact]]) -> None:
        self._path = path
        self._kinds = {kind.__name__: kind for kind in kinds}
        self._trouble = ""

    def read(self) -> CachedState:
        """Nothing, if there is no file or it is not what was written; that is logged."""
        try:
            return self._decoded(read_bytes(self._path, MAX_BYTES))
        except FileNotFoundError:
            return CachedState([], ())
        except OSError as error:
            log.warning("Failed to read the cached controller state", path=self._path, err=str(error))
        except (Damaged, Invalid) as error:
            log.error(
                "The cached controller state is damaged; Pods wait for antrea-controller",
                error=error, path=self._path, aside=set_aside(self._path),
            )  # fmt: skip
        return CachedState([], ())

    async def follow(
        self,
        changed: asyncio.Event,
        now: Callable[[], list[Fact] | None],
        covered: Callable[[], Collection[str]],
    ) -> None:
        """Write the state some time after each `changed` until cancelled, and at the end what was not written yet.

        `now` is None while there is nothing whole.
        """
        written = True
        try:
            while True:
                await changed.wait()
                changed.clear()
                written = False
                took = await self._write_now(now, covered)
                written = True
                await asyncio.sleep(max(EVERY_SECONDS, SHARE * took))
        finally:
            if changed.is_set() or not written:
                await self._write_now(now, covered)

    async def _write_now(
        self, now: Callable[[], list[Fact] | None], covered: Callable[[], Collection[str]]
    ) -> float:
        """Returns how many seconds it took."""
        rows, uids = now(), sorted(covered())
        if rows is None:
            return 0.0
        began = time.monotonic()
        await self.write(CachedState(rows, tuple(uids)))
        return time.monotonic() - began

    async def write(self, word: CachedState) -> None:
        """Replace the file. A full disk is logged, once, and tried again with the next change."""
        records = await self._encoded(word)
        try:
            await asyncio.to_thread(self._replace, records)
        except OSError as error:
            if str(error) != self._trouble:
                log.warning("Failed to save the controller state", path=self._path, err=str(error))
            self._trouble = str(error)
        else:
            self._trouble = ""

    async def _encoded(self, word: CachedState) -> list[bytes]:
        by_kind: dict[str, list[Fact]] = {}
        for row in word.rows:
            by_kind.setdefault(type(row).__name__, []).append(row)
        records = []
        for name, rows in by_kind.items():
            for start in range(0, len(rows), SLICE):
                records.append(_record(name, rows[start : start + SLICE]))
                await asyncio.sleep(0)
        return [*records, _record("", word.covered)]

    def _replace(self, records: list[bytes]) -> None:
        if sum(map(len, records)) > MAX_BYTES - len(FORMAT) - DIGEST:
            self._path.unlink(missing_ok=True)
            raise OSError(f"it has more than {MAX_BYTES} bytes")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        exchange(self._path, sealed(FORMAT, records), sync=True)

    def _decoded(self, data: bytes) -> CachedState:
        """Raises Damaged, Invalid."""
        body = unsealed(FORMAT, data)
        rows: list[Fact] = []
        covered: tuple[str, ...] = ()
        while body:
            size = int.from_bytes(body[:4], "big")
            name, raw = decode_msgpack(body[4 : 4 + size], tuple[str, msgspec.Raw], str(self._path))
            body = body[4 + size :]
            if not name:
                covered = decode_msgpack(raw, tuple[str, ...], str(self._path))
            elif kind := self._kinds.get(name):
                decoded: list[Any] = decode_msgpack(raw, list[kind], str(self._path))  # type: ignore[valid-type]
                rows += decoded
        return CachedState(rows, covered)


def _record(name: str, rows: Collection[Any]) -> bytes:
    body = msgspec.msgpack.encode((name, rows))
    return len(body).to_bytes(4, "big") + body
