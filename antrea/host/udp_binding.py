"""UDP connections through a Service, as connection tracking has to know them: without an end of their own, they outlive Endpoints."""

from __future__ import annotations

from typing import ClassVar, Self

import msgspec

from antrea.rank import Rank


class UdpBinding(msgspec.Struct, frozen=True):
    """Connections to this address and port of a Service lead to these Endpoints and to no others.

    Without it they lead to no Endpoint at all: what connection tracking translates is forgotten.
    """

    rank: ClassVar[int] = Rank.REPORT
    """Connections are looked at once the flows stand, by a task of its own: nothing waits for it."""
    category: ClassVar[int] = 0
    parts_only: ClassVar[bool] = True

    ip: str
    port: int
    parts: tuple[str, ...]
    """The Endpoints as `server` writes them, sorted."""

    @property
    def key(self) -> tuple[str, int]:
        return (self.ip, self.port)

    def with_parts(self, parts: tuple[str, ...]) -> Self:
        """Return the merged binding of all Endpoints."""
        return msgspec.structs.replace(self, parts=tuple(sorted(set(parts))))


def server(ip: str, port: int) -> str:
    """An Endpoint as one of `UdpBinding.parts`."""
    return f"{ip} {port}"
