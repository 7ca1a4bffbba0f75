"""The controller's clock jumps by an hour, forth and back: nothing is exchanged, nobody is refused, and it tells the time it has."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from admission_object import decided
from api_client import ApiClient
from controller_process import controller_beside

from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller_process import ControllerProcess

    from lab.cluster import Lab

LIBRARY = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
INFOS = "/apis/system.antrea.io/v1beta1/controllerinfos"
SECRET, MAP = "secret/antrea-controller-tls", "configmap/antrea-ca"
HOUR = 3600.0
HEARTBEAT_SECONDS = 90.0
"""Longer than the time between two heartbeats."""


class Clock:
    """What the process takes for the time: the real one and `jump` seconds."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.jump(0)

    def jump(self, seconds: float) -> None:
        fresh = self.file.with_suffix(".new")
        fresh.write_text(f"{seconds:+.0f}\n")
        fresh.replace(self.file)


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    if not LIBRARY.exists():
        pytest.skip("libfaketime is not installed")
    return Clock(tmp_path / "clock")


@pytest.fixture
def jumping(control_plane: Lab, clock: Clock, tmp_path: Path) -> Iterator[ControllerProcess]:
    """A controller that reads this clock; its monotonic ones go on as they are."""
    environ = {
        "FAKETIME_TIMESTAMP_FILE": str(clock.file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "LD_PRELOAD": str(LIBRARY),
    }
    with controller_beside(control_plane, tmp_path, environ) as running:
        yield running


def ahead(lab: Lab) -> float:
    """Seconds by which the controller's last heartbeat is before the real time; negative: behind it."""
    info = json.loads(lab.api.kubectl("get", "aci", "antrea-controller", "-o", "json"))
    told = datetime.fromisoformat(info["controllerConditions"][0]["lastHeartbeatTime"])
    return (told - datetime.now(UTC)).total_seconds()


def told(lab: Lab, jump: float) -> bool:
    """Whether the last heartbeat is of a clock that has jumped so."""
    return abs(ahead(lab) - jump) < HEARTBEAT_SECONDS


def versions(lab: Lab) -> list[str]:
    """Of the certificate's Secret and the CA's ConfigMap."""
    return [
        json.loads(lab.api.kubectl("-n", "kube-system", "get", what, "-o", "json"))["metadata"][
            "resourceVersion"
        ]
        for what in (SECRET, MAP)
    ]


def served(lab: Lab) -> bool:
    """Whether the API server gets our API's answer for its user."""
    client = ApiClient(lab)
    try:
        return client.call("GET", INFOS).status == 200
    finally:
        client.close()


@pytest.mark.wide
def test_an_hour_forth_and_an_hour_back_change_nothing_but_the_time_it_tells(
    control_plane: Lab, jumping: ControllerProcess, clock: Clock
) -> None:
    wait_for("a heartbeat", partial(told, control_plane, 0), seconds=60, step=0.5)
    before = versions(control_plane)
    for jump in (HOUR, -HOUR):
        clock.jump(jump)
        assert decided(control_plane), jumping.log.read_text()[-2000:]
        assert served(control_plane)
        wait_for(
            "a heartbeat of that time",
            partial(told, control_plane, jump),
            seconds=HEARTBEAT_SECONDS,
            step=1,
        )
        assert served(control_plane)
        assert decided(control_plane)
        assert versions(control_plane) == before
        assert jumping.process.poll() is None
    clock.jump(0)
    wait_for("our API at the right time", lambda: served(control_plane), seconds=60, step=0.5)
