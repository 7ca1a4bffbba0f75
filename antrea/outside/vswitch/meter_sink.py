"""The sink of meters: no bundle takes them, so they are made one by one, before the flows that name them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from antrea.errors import Refused, Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.openflow.meter import Meter
    from antrea.outside.vswitch.ofctl import Ofctl

_EXISTS = "OFPMMFC_METER_EXISTS"
_STATISTICS = re.compile(r"^meter:(\d+) flow_count:(\d+)")


class MeterSink:
    """Applies `Meter` entries to one bridge."""

    def __init__(self, ofctl: Ofctl) -> None:
        self._ofctl = ofctl
        self._wanted: set[int] = set()

    async def apply(self, put: Sequence[Meter], drop: Sequence[Meter]) -> None:
        """Raises Refused with the meters that the switch rejects (too many, for instance), Unavailable."""
        refused: dict[Meter, str] = {}
        for meter in put:
            self._wanted.add(meter.id)
            no = await self._ofctl.order("add-meter", meter.text)
            if no is not None and _EXISTS in no:
                no = await self._ofctl.order("mod-meter", meter.text)
            if no is not None:
                refused[meter] = no
        for meter in drop:
            await self._delete(meter.id)
        if refused:
            raise Refused(list(refused), "; ".join(dict.fromkeys(refused.values())))

    async def resync(self, entries: Sequence[Meter]) -> None:
        """Make or change every wanted meter; a changed one keeps its place in flows. Raises as `apply` does."""
        self._wanted.clear()
        await self.apply(entries, ())

    async def sweep(self, _category: int) -> None:
        """Delete meters that neither we nor any flow want any more, whatever they were for. Raises Unavailable."""
        lines = [line async for line in self._ofctl.lines("meter-stats")]
        unnamed = [int(match[1]) for line in lines if (match := _STATISTICS.match(line)) and match[2] == "0"]
        for number in unnamed:
            if number not in self._wanted:
                await self._delete(number)

    async def _delete(self, number: int) -> None:
        """With it would go every flow that names it, but those are gone. One that is not there is no error."""
        self._wanted.discard(number)
        if no := await self._ofctl.order("del-meter", f"meter={number}"):
            raise Unavailable(f"meter {number} cannot be deleted: {no}")
