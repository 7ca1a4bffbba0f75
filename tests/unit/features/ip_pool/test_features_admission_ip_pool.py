"""What IPPools may say; ranges are those of ExternalIPPools."""

from __future__ import annotations

from typing import Any

import pytest
from admission_world import OK, World, named
from pool_range_world import INFO, RANGES, UPDATES

PATH = "/validate/ippool"


@pytest.mark.parametrize(("ranges", "info", "said"), RANGES.values(), ids=RANGES.keys())
def test_ranges_of_an_ip_pool_get_this_answer(
    ranges: list[dict[str, Any]], info: dict[str, Any], said: str
) -> None:
    assert World().decide(PATH, named({"ipRanges": ranges, "subnetInfo": info})) == said


def test_ranges_of_an_ip_pool_may_come_but_not_go() -> None:
    for ranges, before, said in UPDATES:
        pool, old = (named({"ipRanges": found, "subnetInfo": INFO}) for found in (ranges, before))
        assert World().decide(PATH, pool, old) == said


def test_an_ip_pool_in_use_stays() -> None:
    unused = named({"ipRanges": [], "subnetInfo": INFO})
    used = {**unused, "status": {"ipAddresses": [{"ipAddress": "10.5.0.2", "phase": "Allocated"}]}}
    said = [World().decide(PATH, old=pool) for pool in (used, unused)]
    assert said == ["status.ipAddresses: IPPool in use cannot be deleted", OK]
