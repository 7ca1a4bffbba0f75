"""One private switch per test module, without root."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ovs_bridge import OvsBridge
from ovs_process import ovs_process

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def ovs() -> Iterator[OvsBridge]:
    """ovsdb-server and ovs-vswitchd with an empty bridge br-int; they end with the module, by their pids."""
    with ovs_process() as process:
        yield OvsBridge(process)
