"""A daemon of FRR: its configuration is made the wanted one, and its state is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from antrea.errors import Unavailable
from antrea.outside.frr.configuration import changes, parse
from antrea.outside.frr.vty import VtySocket
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from pathlib import Path

    from antrea.outside.frr.configuration import Change, Context, Tree

log = klog.logger(__name__)
RUNNING_CONFIGURATION = "show running-config"
SETS_PASSWORD = " password "  # noqa: S105 (a part of a command)


class RefusedLine(NamedTuple):
    """A command that a daemon refused, without a password, and its reason."""

    command: str
    why: str


class FrrDaemon:
    """The daemon whose socket is at `path`; connected while it runs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._vty: VtySocket | None = None
        self.commands = 0
        """Number of changes of its configuration so far."""

    @property
    def name(self) -> str:
        """Such as bgpd."""
        return self._path.stem

    def is_connected(self) -> bool:
        """Whether it runs, as far as is known."""
        return self._vty is not None and self._vty.is_open()

    async def connect(self) -> bool:
        """Connect unless it is; return whether this is a new connection. Raises Unavailable."""
        if self.is_connected():
            return False
        await self.close()
        self._vty = await VtySocket.connect(self._path)
        return True

    async def close(self) -> None:
        """Close the connection; the daemon keeps its configuration."""
        vty, self._vty = self._vty, None
        if vty is not None:
            await vty.close()

    async def align(self, wanted: Tree) -> tuple[RefusedLine, ...]:
        """Make its configuration the wanted one; return what it refused. Raises Unavailable."""
        vty = self._connected()
        current = await vty.run(RUNNING_CONFIGURATION)
        if current.why_not:
            raise Unavailable(f"configuration of {self.name} of FRR: {current.why_not}")
        differences = changes(parse(current.text), wanted)
        if not differences:
            return ()
        self.commands += len(differences)
        log.info("Changing the configuration of FRR", daemon=self.name, commands=len(differences))
        return tuple([refused async for refused in self._write(vty, differences)])

    async def _write(self, vty: VtySocket, differences: Sequence[Change]) -> AsyncIterator[RefusedLine]:
        await vty.run("configure terminal")
        try:
            path: Context = ()
            for context, command in differences:
                for step in _steps(path, context):
                    await vty.run(step)
                path = context
                answer = await vty.run(command)
                if answer.why_not:
                    yield refused_line(command, answer.why_not)
                if _opens(command):
                    await vty.run("exit")
        finally:
            if vty.is_open():
                await vty.run("end")

    async def state(self, command: str) -> Any:
        """Return the decoded output of a `show` command that ends with json; None for none. Raises Unavailable."""
        return await self._connected().json(command)

    async def clear(self, address: str) -> None:
        """Try the session with a router again at once. Raises Unavailable."""
        await self._connected().run(f"clear bgp {address}")

    def _connected(self) -> VtySocket:
        if self._vty is None:
            raise Unavailable(f"{self.name} of FRR is not connected")
        return self._vty


def _steps(path: Context, context: Context) -> Iterator[str]:
    """Yield the commands that lead from one place of the configuration to another."""
    shared = 0
    while shared < min(len(path), len(context)) and path[shared] == context[shared]:
        shared += 1
    yield from ["exit"] * (len(path) - shared)
    yield from context[shared:]


def _opens(command: str) -> bool:
    """Whether a command leads to another place."""
    return command.startswith(("router ", "route-map ", "profile ", "peer ")) or command == "bfd"


def concealed(command: str) -> str:
    """Return a command without the password that it sets."""
    head, keyword, _ = command.partition(SETS_PASSWORD)
    return f"{head}{SETS_PASSWORD}..." if keyword else command


def refused_line(command: str, why: str) -> RefusedLine:
    """Return a refusal without the password; FRR repeats a command that it does not know."""
    password = command.partition(SETS_PASSWORD)[2]
    return RefusedLine(concealed(command), why.replace(password, "...") if password else why)
