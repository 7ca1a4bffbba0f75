"""One private switch per test module, without root."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ovs_bridge import OvsBridge
from ovs_process import ovs_process
from policy_switch import ports

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def ovs() -> Iterator[OvsBridge]:
    """ovsdb-server and ovs-vswitchd with an empty bridge br-int; they end with the module, by their pids."""
    with ovs_process() as process:
        yield OvsBridge(process)


@pytest.fixture(scope="module")
def plugged(ovs: OvsBridge) -> OvsBridge:
    """The switch of the module with the ports of the Node that tests of policies and Services share."""
    ovs.add_ports(ports())
    return ovs


@pytest.fixture
def bridge(plugged: OvsBridge) -> Iterator[OvsBridge]:
    """The same switch, without flows again after each test. Modules may have another fixture of this name."""
    yield plugged
    plugged.clear()
