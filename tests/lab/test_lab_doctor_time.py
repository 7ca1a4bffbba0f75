"""How long `antctl doctor` takes: in a healthy lab, while an agent hangs, and with a slow API server."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import pytest
from api_server import slow_down, speed_up
from doctor_fault import Faulty
from figure import Against, alternate, show

from antrea.antctl.doctor.command import AGENT_TIMEOUT

if TYPE_CHECKING:
    from lab.cluster import Lab

pytestmark = [pytest.mark.wide, pytest.mark.timeout(900)]

TARGET_SECONDS = 5.0
"""For three Nodes, on a quiet machine."""
BUSY = 3
"""How many times as much passes on a machine that does other things as well."""
REQUEST_SECONDS = 1.0
"""What a slow API server takes for a request alone; the doctor has a dozen at the same time."""
SLOW_SECONDS = 180.0


@pytest.fixture
def faulty(three_nodes: Lab) -> Faulty:
    """Three Nodes, in which nothing is found."""
    found = Faulty(three_nodes)
    found.wait(lambda rows: rows == [], "the lab is not healthy")
    return found


def timed(faulty: Faulty) -> tuple[float, list[dict[str, str]]]:
    """Seconds, and the findings."""
    begin = time.monotonic()
    rows = faulty.findings()
    return time.monotonic() - begin, rows


def healthy(faulty: Faulty) -> float:
    seconds, rows = timed(faulty)
    assert rows == []
    return seconds


def beside_a_hung_agent(faulty: Faulty) -> float:
    faulty.stop("node-2", "antrea-agent")
    try:
        seconds, rows = timed(faulty)
    finally:
        faulty.go_on()
    assert [(row["node"], row["check"]) for row in rows] == [("node-2", "agent")]
    faulty.wait(lambda rows: rows == [], "the agent does not answer again")
    return seconds


def test_an_agent_that_hangs_costs_its_deadline(faulty: Faulty) -> None:
    values = alternate({
        "three_nodes": lambda: healthy(faulty),
        "hung_agent": lambda: beside_a_hung_agent(faulty),
    })  # fmt: skip
    usual, hung = values["three_nodes"], values["hung_agent"]
    show("doctor_three_nodes", "s", usual, target=TARGET_SECONDS)
    limit = statistics.median(usual) + AGENT_TIMEOUT
    show("doctor_hung_agent", "s", hung, against=Against("doctor_three_nodes", tuple(usual)), target=limit)
    assert statistics.median(usual) < BUSY * TARGET_SECONDS
    assert statistics.median(hung) < limit + TARGET_SECONDS


def test_a_slow_api_server_is_named_in_the_end(faulty: Faulty) -> None:
    try:
        slow_down(faulty.lab, REQUEST_SECONDS)
        seconds, rows = timed(faulty)
    finally:
        speed_up(faulty.lab)
    show("doctor_slow_api_server", "s", [seconds])
    assert rows[0]["check"] == "kube-apiserver"
    assert seconds < SLOW_SECONDS
    faulty.wait(lambda rows: rows == [], "the API server is slow for ever")
