"""Report of kube-proxy's rule that drops invalid packets, while Services are served with direct server return."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from antrea.facts.service import ServicePort
from antrea.features.proxy.host import proxies_all
from antrea.host.invalid_drop import CONDITION, PLACES, TOOLS, DropRule, drop_text, drops_invalid
from antrea.outside.nftables.libnftables import NftError, Program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from antrea.engine import Facts
    from antrea.outside.nftables.libnftables import Nft

LOOK_SECONDS: Final = 30.0


class InvalidDropReport:
    """Report that is updated periodically, since kube-proxy may start, or make its rules again, at any time."""

    def __init__(
        self, facts: Facts, record: Callable[[str, str], None], *, look_seconds: float = LOOK_SECONDS
    ) -> None:
        """`record` writes a Warning Event of this Node, of a reason and a message."""
        self._facts, self._record, self._look_seconds = facts, record, look_seconds
        self.message = ""
        """Message; empty if there is no such rule, or nothing that it could match."""

    async def run(self) -> None:
        """Record an Event each time that the fault begins; until cancelled."""
        while True:
            before, self.message = self.message, await self.check()
            if self.message and not before:
                self._record(CONDITION, self.message)
            await asyncio.sleep(self._look_seconds)

    async def check(self) -> str:
        """Return the current message."""
        if not is_in_use(self._facts):
            return ""
        # the library would translate rules of iptables, for all of the process, while the sink may use it
        return drop_text(await asyncio.to_thread(lambda: list(drop_rules(Program()))))


def is_in_use(facts: Facts) -> bool:
    """Whether Endpoints on other Nodes answer clients of any Service directly."""
    return proxies_all(facts) is not None and any(port.direct for port in facts.all(ServicePort))


def drop_rules(nft: Nft) -> Iterator[DropRule]:
    """Yield the rules of this network namespace; rules of iptables-legacy are not seen."""
    for family in TOOLS:
        for table, chain in PLACES:
            try:
                listed = nft.run(f"list chain {family} {table} {chain}\n")
            except (NftError, OSError):
                continue  # no such chain, or no program nft
            if any(map(drops_invalid, listed.splitlines())):
                yield DropRule(family, table, chain)
