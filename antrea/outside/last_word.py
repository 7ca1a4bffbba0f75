"""What antrea-controller said last, in a file that outlives a reboot: an agent without a controller goes on with it.

One header (format and digest), then records of (name of a kind, its rows); the last one has the UIDs of the Pods that all of this covers.
Replaced at once and as a whole; one that is not whole counts for nothing.
parity: pkg/agent/controller/networkpolicy/filestore.go, which has a file per object, under /var/run
"""

from __future__ import annotations

import asyncio
import time
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from antrea.outside import klog
from antrea.outside.exchange import exchange

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path

    from antrea.facts.fact import Fact

log = klog.logger(__name__)

FORMAT = b"antrea last word 1\n"
DIGEST = 32
MOST = 64 << 20
"""Bytes. A word that is longer is not kept, and the one before neither: Pods wait for the controller then."""
SLICE = 2000
"""Rows that are written down before others have their turn."""
EVERY_SECONDS, SHARE = 1.0, 20
"""Least time between two writes, and how many times what the last one took."""


class Kept(NamedTuple):
    """What is in the file."""

    rows: list[Fact]
    covered: tuple[str, ...]
    """UIDs of Pods."""


class LastWord:
    """The file at `path`, with rows of `kinds`."""

    def __init__(self, path: Path, kinds: Iterable[type[Fact]]) -> None:
        self._path = path
        self._kinds = {kind.__name__: kind for kind in kinds}
        self._trouble = ""

    def read(self) -> Kept:
        """Nothing, if there is no file or it is not what was written; that is logged."""
        try:
            if self._path.stat().st_size > MOST:
                raise ValueError(f"it has more than {MOST} bytes")
            return self._decoded(self._path.read_bytes())
        except FileNotFoundError:
            return Kept([], ())
        except (OSError, ValueError, msgspec.DecodeError) as why:
            log.warning("What antrea-controller said last is not read", path=self._path, err=str(why))
            return Kept([], ())

    async def follow(
        self,
        changed: asyncio.Event,
        now: Callable[[], list[Fact] | None],
        covered: Callable[[], Collection[str]],
    ) -> None:
        """For ever: write down what there is, some time after `changed`. `now` is None while there is nothing whole."""
        while True:
            await changed.wait()
            changed.clear()
            rows, uids = now(), sorted(covered())
            took = 0.0
            if rows is not None:
                began = time.monotonic()
                await self.write(Kept(rows, tuple(uids)))
                took = time.monotonic() - began
            await asyncio.sleep(max(EVERY_SECONDS, SHARE * took))

    async def write(self, word: Kept) -> None:
        """Replace the file. A full disk is logged, once, and tried again with the next change."""
        records = await self._encoded(word)
        try:
            await asyncio.to_thread(self._replace, records)
        except OSError as why:
            if str(why) != self._trouble:
                log.warning("What antrea-controller says is not kept", path=self._path, err=str(why))
            self._trouble = str(why)
        else:
            self._trouble = ""

    async def _encoded(self, word: Kept) -> list[bytes]:
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
        if sum(map(len, records)) > MOST - len(FORMAT) - DIGEST:
            self._path.unlink(missing_ok=True)
            raise OSError(f"it has more than {MOST} bytes")
        digest = blake2b(digest_size=DIGEST)
        for record in records:
            digest.update(record)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        exchange(self._path, (FORMAT, digest.digest(), *records), sync=True)

    def _decoded(self, data: bytes) -> Kept:
        """Raises ValueError, msgspec.DecodeError."""
        body = memoryview(data)[len(FORMAT) + DIGEST :]
        if (
            not data.startswith(FORMAT)
            or blake2b(body, digest_size=DIGEST).digest() != data[len(FORMAT) :][:DIGEST]
        ):
            raise ValueError("it is not what was written")
        rows: list[Fact] = []
        covered: tuple[str, ...] = ()
        while body:
            size = int.from_bytes(body[:4], "big")
            name, raw = msgspec.msgpack.decode(body[4 : 4 + size], type=tuple[str, msgspec.Raw])
            body = body[4 + size :]
            if not name:
                covered = msgspec.msgpack.decode(raw, type=tuple[str, ...])
            elif kind := self._kinds.get(name):
                found: list[Any] = msgspec.msgpack.decode(raw, type=list[kind])  # type: ignore[valid-type]
                rows += found
        return Kept(rows, covered)


def _record(name: str, rows: Collection[Any]) -> bytes:
    body = msgspec.msgpack.encode((name, rows))
    return len(body).to_bytes(4, "big") + body
