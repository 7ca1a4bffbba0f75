"""What a switch lacks is left out, by its own answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from antrea.agent.feature_set import active
from antrea.agent.switch.capabilities import supported_features
from antrea.features.egress.agent.bandwidth import FEATURE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

WITH = (
    "max_meter:200000 max_bands:1 max_color:0",
    "band_types: drop",
    "capabilities: kbps pktps burst stats",
)
WITHOUT = ("max_meter:0 max_bands:0 max_color:0", "band_types:", "capabilities:")


class Answers:
    """What ovs-ofctl prints for `meter-features`."""

    def __init__(self, *lines: str) -> None:
        self.printed = lines
        self.asked: list[str] = []

    async def lines(self, command: str, *_arguments: str) -> AsyncIterator[str]:
        self.asked.append(command)
        for line in self.printed:
            yield line


@pytest.mark.parametrize(("lines", "left"), [(WITH, True), (WITHOUT, False), ((), False)])
async def test_bandwidths_are_left_out_where_the_datapath_has_no_meters(
    lines: tuple[str, ...], left: bool
) -> None:
    wanted, answers = active({"Egress", "EgressTrafficShaping"}), Answers(*lines)
    found = await supported_features(wanted, answers)
    assert found == (wanted if left else tuple(one for one in wanted if one is not FEATURE))
    assert answers.asked == ["meter-features"]


async def test_nobody_asks_for_meters_that_nobody_needs() -> None:
    wanted, answers = active({"Egress"}), Answers(*WITHOUT)
    assert await supported_features(wanted, answers) == wanted
    assert answers.asked == []
