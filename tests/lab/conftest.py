"""Labs that modules share, with our agent as their network; each is taken down by its own record."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from controller_process import controller_beside
from own_lab import own_lab
from post_mortem import post_mortem
from shared_lab import Shared

from lab.cluster import Lab
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from controller_process import ControllerProcess

PROXY_ALL = "LAB_PROXY_ALL"
"""Where the environment has this variable, shared labs have no kube-proxy: AntreaProxy serves all Services (docs/testing.md)."""
SHARED = Shared("empty_plane", "control_plane", "developed", "three_nodes", "controller", "lab")


@pytest.hookimpl(tryfirst=True)  # before the hook of pytest-xdist, which reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without root, containerd or Open vSwitch a lab cannot run; with CI=true that is a failure, not a skip."""
    SHARED.sort(items)
    groups = SHARED.groups(items)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(Path(groups[item.nodeid.partition("::")[0]]).stem))
    missing = [p for p in ("containerd", "runc", "nft", "unshare", "ovs-vswitchd") if not shutil.which(p)]
    if os.geteuid() != 0:
        missing.append("root")
    if missing and not os.environ.get("CI"):
        for item in items:
            item.add_marker(pytest.mark.skip(reason=f"a lab needs {', '.join(missing)}"))


def pytest_collection_finish(session: pytest.Session) -> None:
    SHARED.expect(session.items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows the lab as it was then: once the run is over nobody can ask it."""
    report = yield
    if report.failed:
        labs = {id(lab): lab for lab in getattr(item, "funcargs", {}).values() if isinstance(lab, Lab)}
        report.sections += [("the lab after it", post_mortem(lab)) for lab in labs.values()]
    return report


@pytest.fixture(scope="session", autouse=True)
def _none_left() -> Iterator[None]:
    yield
    SHARED.end()


def served(settings: Settings) -> Settings:
    """Who serves Services, as the environment has it."""
    if not os.environ.get(PROXY_ALL):
        return settings
    return msgspec.structs.replace(settings, kube_proxy="none", proxy_all=True)


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    settings = Settings(
        nodes=2,
        agent={"networkPolicyStatsInterval": "2s"},
        controller={"featureGates": {"AdminNetworkPolicy": True, "ClusterNetworkPolicy": True}},
    )
    yield from SHARED.use(request, partial(own_lab, "t", served(settings)))


@pytest.fixture(scope="module")
def developed(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A lab in development mode: a loop starts an ended agent again at once, where kubelet would wait longer and longer."""
    yield from SHARED.use(request, partial(own_lab, "d", served(Settings(nodes=2, dev=True))))


@pytest.fixture(scope="module")
def three_nodes(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A lab whose Nodes lose power and whose controllers come and go; with VLANs."""
    yield from SHARED.use(request, partial(own_lab, "n", served(Settings(nodes=3, vlans=(181, 216)))))


@pytest.fixture(scope="module")
def control_plane(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A real API server without nodes, for programs that a test starts in `control` and ends itself."""
    yield from SHARED.use(request, partial(own_lab, "c", Settings(nodes=0)))


@pytest.fixture(scope="module")
def empty_plane(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The same without any program of ours: nobody's webhooks are in it, and no objects but those of a test."""
    yield from SHARED.use(request, partial(own_lab, "e", Settings(nodes=0)))


@pytest.fixture(scope="module")
def controller(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControllerProcess]:
    """Our controller program beside an API server without nodes, its APIs and webhooks in use."""

    @contextmanager
    def made() -> Iterator[ControllerProcess]:
        directory = tmp_path_factory.mktemp("controller")
        with own_lab("s", Settings(nodes=0)) as lab, controller_beside(lab, directory) as running:
            yield running

    yield from SHARED.use(request, made)
