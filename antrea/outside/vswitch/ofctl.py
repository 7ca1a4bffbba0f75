"""One run of ovs-ofctl: a bundle from memory, or a dump line by line, bounded in time and in what we keep."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from typing import TYPE_CHECKING, BinaryIO, TypeVar

import msgspec

from antrea.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Sequence
    from pathlib import Path

T = TypeVar("T")

_VERSION = "OpenFlow15"
_KEPT = 32 * 1024
"""Bytes of what ovs-ofctl complains about that we read; it prints a refused message whole, up to 64 KiB in hex."""
_WHY = 600
"""Characters of a reason that we pass on."""
_LINE_LIMIT = 8 * 1024 * 1024
"""Bytes of the longest line of a dump: a group of 5,000 buckets needs one."""
_GRACE = 10.0
"""Seconds that a run may take however small it is."""
_PER_LINE = 0.002
"""Seconds more for each line of a bundle; about a hundred times what they need."""

_CRASHES = frozenset({signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL})
"""Signals that the input gives the tool, so that one entry must be at fault."""

# ovs-ofctl numbers its messages in order, then opens and commits the bundle: number of the commit - messages - 2.
_BEFORE_COMMIT = 2
_LINE = re.compile(r"^ovs-ofctl: -:(\d+): (.*)", re.MULTILINE)
_ERROR = re.compile(
    r"^Error (OFP\w+) for: (OFPT_(?!BUNDLE_CONTROL)\w+) .*?\(xid=0x([0-9a-f]+)\):\s*(.*)", re.MULTILINE
)
_COMMIT = re.compile(r"^Error OFP\w+ for: OFPT_BUNDLE_CONTROL .*?\(xid=0x([0-9a-f]+)\)", re.MULTILINE)
_ORDER_ERROR = re.compile(
    r"^OFPT_ERROR .*?: (OFP\w+)$|^ovs-ofctl: (?!connecting to|talking to)(.*)", re.MULTILINE
)
_SAME = re.compile(r"\b(table|priority|group_id)[=:](\d+)")
_ANY_ERROR = re.compile(r"^Error (OFP\w+) for: (.*)", re.MULTILINE)


BROKEN = "a line of flow syntax has a line break"


class Refusal(msgspec.Struct, frozen=True):
    """Why the whole bundle was not applied, and for which line (from 0), if that is known."""

    why: str
    line: int | None


def refusal(complaint: str, lines: Sequence[str]) -> Refusal | None:
    """Parse ovs-ofctl's `complaint` about a bundle of `lines`; None if it is not about the lines.

    Source: ovs-ofctl(8) "bundle"; the numbers (xid) follow from the order in which ovs-ofctl builds its messages.
    """
    if bad := _LINE.search(complaint):
        number = int(bad[1]) - 1
        return Refusal(bad[2][:_WHY], number if number < len(lines) else None)
    if error := _ERROR.search(complaint):
        return Refusal(f"{error[1]}: {error[4]}"[:_WHY], _line_of(error, _COMMIT.search(complaint), lines))
    if error := _ANY_ERROR.search(complaint):
        return Refusal(error[1], None)
    return None


def _line_of(error: re.Match[str], commit: re.Match[str] | None, lines: Sequence[str]) -> int | None:
    """The line by its message's number, provided that both are a flow or a group, and the same one."""
    if commit is None:
        return None
    number = int(error[3], 16) - (int(commit[1], 16) - _BEFORE_COMMIT - len(lines))
    if not 0 <= number < len(lines):
        return None
    kind, said, meant = lines[number].split(" ", 1)[0], _identity(error[4]), _identity(lines[number])
    if error[2] != f"OFPT_{kind.upper()}_MOD":
        return None
    return number if all(meant.get(name, value) == value for name, value in said.items()) else None


def _identity(text: str) -> dict[str, str]:
    """The first table, priority and group that `text` names; later ones belong to actions."""
    return dict(reversed(_SAME.findall(text)))


class Ofctl:
    """ovs-ofctl on one bridge, through its management socket."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        """<run directory>/<bridge>.mgmt"""

    async def bundle(self, lines: Sequence[str]) -> Refusal | None:
        """Apply all lines (`flow add ...`, `group delete ...`) atomically, or none; returns why not.

        Raises Unavailable if the outcome is unknown: no switch, no answer in time, or a tool that was killed.
        """
        with os.fdopen(os.memfd_create("bundle"), "w+b") as file:
            if (broken := await _write(file, lines)) is not None:
                return Refusal(BROKEN, broken)
            within = _GRACE + _PER_LINE * len(lines)
            code, complaint = await self._run("bundle", "-", "--no-names", stdin=file, within=within)
        if code == 0:
            return None
        if refused := refusal(complaint, lines):
            return refused
        if -code in _CRASHES:
            return Refusal(f"ovs-ofctl died of signal {-code}", None)
        raise Unavailable(
            _last_line(complaint) if code > 0 else f"outcome of ovs-ofctl, killed by signal {-code}"
        )

    async def order(self, command: str, argument: str) -> str | None:
        """Run a command that changes one thing: None, or the words of the switch that does not take it.

        Raises Unavailable if the outcome is unknown.
        """
        code, complaint = await self._run(command, argument, stdin=None, within=_GRACE)
        if code == 0:
            return None
        if error := _ORDER_ERROR.search(complaint):
            return error[1] or error[2][:_WHY]
        raise Unavailable(_last_line(complaint))

    async def keep_from_flooding(self, port: str) -> None:
        """Flag a port no-flood, which only OpenFlow 1.0 has. Raises Unavailable."""
        command = ("mod-port", port, "no-flood")
        code, complaint = await self._run(*command, version="OpenFlow10", stdin=None, within=_GRACE)
        if code:
            raise Unavailable(_last_line(complaint))

    async def lines(self, command: str, *arguments: str) -> AsyncIterator[str]:
        """Yield the output of a dump line by line, without the header. Raises Unavailable."""
        process = await self._start(command, *arguments, stdin=asyncio.subprocess.DEVNULL)
        try:
            while line := await _within_grace(_opened(process.stdout).readline()):
                if line.strip() and not line.startswith((b"OFPST_", b"NXST_")):
                    yield line.decode(errors="replace").strip()
            complaint = await _head(_opened(process.stderr))
            if await _within_grace(process.wait()):
                raise Unavailable(_last_line(complaint))
        except TimeoutError:
            raise Unavailable(f"no answer to ovs-ofctl {command}") from None
        finally:
            await _end(process)

    async def _run(
        self, command: str, *arguments: str, stdin: BinaryIO | None, within: float, version: str = _VERSION
    ) -> tuple[int, str]:
        given = stdin or asyncio.subprocess.DEVNULL
        process = await self._start(command, *arguments, stdin=given, version=version)
        try:
            async with asyncio.timeout(within):
                complaint, _out = await asyncio.gather(
                    _head(_opened(process.stderr)), _head(_opened(process.stdout))
                )
                return await process.wait(), complaint
        except TimeoutError:
            raise Unavailable(f"ovs-ofctl {command} did not end within {within:.0f} s") from None
        finally:
            await _end(process)

    async def _start(
        self, command: str, *arguments: str, stdin: BinaryIO | int, version: str = _VERSION
    ) -> asyncio.subprocess.Process:
        target = f"unix:{self.socket}"
        options = ("-O", version, "-vconsole:off", "-vsyslog:off")
        return await asyncio.create_subprocess_exec(
            *("ovs-ofctl", *options, command, target, *arguments),
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LINE_LIMIT,
        )


async def _within_grace(answer: Awaitable[T]) -> T:
    async with asyncio.timeout(_GRACE):
        return await answer


async def _write(file: BinaryIO, lines: Sequence[str]) -> int | None:
    """All lines into memory before the tool starts: if we die half-way, no half bundle is applied.

    Returns the number of a line that is more than one, of which the tool would make other flows; None if there is none.
    """
    for start in range(0, len(lines), 1000):
        some = lines[start : start + 1000]
        text = "\n".join(some)
        if text.count("\n") >= len(some):
            return next(number for number, line in enumerate(some, start) if "\n" in line)
        file.write(f"{text}\n".encode())
        await asyncio.sleep(0)
    file.seek(0)
    return None


def _opened(stream: asyncio.StreamReader | None) -> asyncio.StreamReader:
    if stream is None:
        raise ValueError("ovs-ofctl was started without a pipe")
    return stream


async def _head(stream: asyncio.StreamReader) -> str:
    """The first bytes of what comes; the rest is read and forgotten, so that the writer is never held up."""
    kept = b""
    while data := await stream.read(65536):
        kept += data[: _KEPT - len(kept)]
    return kept.decode(errors="replace")


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()


def _last_line(complaint: str) -> str:
    return (complaint.strip().splitlines() or ["ovs-ofctl, which failed without a word"])[-1][:_WHY]
