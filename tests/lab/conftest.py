"""One lab for the whole session, with our agent as its network; it is taken down by its own record."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from controller_process import controller_beside
from own_lab import own_lab

from antrea.lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller_process import ControllerProcess

    from antrea.lab.cluster import Lab


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without root, containerd or Open vSwitch a lab cannot run; with CI=true that is a failure, not a skip."""
    missing = [p for p in ("containerd", "runc", "nft", "unshare", "ovs-vswitchd") if not shutil.which(p)]
    if os.geteuid() != 0:
        missing.append("root")
    if missing and not os.environ.get("CI"):
        for item in items:
            item.add_marker(pytest.mark.skip(reason=f"a lab needs {', '.join(missing)}"))


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    with own_lab("t", Settings(nodes=2)) as lab:
        yield lab


@pytest.fixture(scope="session")
def control_plane() -> Iterator[Lab]:
    """A real API server without nodes, for what talks to the API alone; programs under test run in `control`."""
    with own_lab("c", Settings(nodes=0)) as lab:
        yield lab


@pytest.fixture(scope="module")
def empty_plane() -> Iterator[Lab]:
    """The same, for one module alone: nobody else's definitions, webhooks and other objects of the cluster are in it."""
    with own_lab("e", Settings(nodes=0)) as lab:
        yield lab


@pytest.fixture(scope="module")
def controller(control_plane: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllerProcess]:
    """Our controller program beside the API server, its APIs and webhooks in use."""
    with controller_beside(control_plane, tmp_path_factory.mktemp("controller")) as running:
        yield running
