"""Without the API server Pods keep their network, and when it is back our programs resume without a storm."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import pytest
from agent_node import health, pod_namespace, wait_ready
from api_server import away, followed, requests
from own_lab import own_lab
from quiet_pod import quiet_pods

from antrea.agent.feature_set import FEATURES
from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

pytestmark = pytest.mark.wide
RESUMED_SECONDS = 90.0
"""Longer than the longest pause between two tries, which is 30 s, doubled by chance at most."""
READY_SECONDS = 5.0
"""That the server may have answered before it was seen to be ready."""
START_SECONDS = 20.0


class Budget(NamedTuple):
    """The most that one program asks: when it starts, for ever at a time, and in a minute in which Pods change."""

    start: int
    watches: int
    minute: int


BUDGETS = {"antrea-agent": Budget(44, 11, 4), "antrea-controller": Budget(290, 36, 20)}
"""Told in docs/control-plane.md."""
OWN = 8
"""Requests of one program that belong to no watch: heartbeats, its certificate."""
TRIES = 4
"""For which an agent asks where its controller is, every 2.5 to 5 s, until that can ask the API server who the agent is."""


def own(lab: Lab, account: str) -> int:
    """`OWN` and `TRIES`, or the controller's reviews of each agent: who it is, and whether it may watch each of the kinds that agents watch."""
    kinds = sum(len(feature.watches) for feature in FEATURES)
    return OWN + (len(lab.topology.nodes) * (1 + kinds) if account == "antrea-controller" else TRIES)


@pytest.fixture(scope="module")
def cluster_of_two() -> Iterator[Lab]:
    with own_lab("away", Settings(nodes=2)) as lab:
        names = [machine.name for machine in lab.topology.nodes]
        with quiet_pods(lab, {f"app-{name}": name for name in names}):
            yield lab


def most_in_a_second(times: list[float]) -> int:
    return max((sum(1 for other in times if 0 <= other - one < 1) for one in times), default=0)


@contextlib.contextmanager
def pinged(lab: Lab) -> Iterator[list[int]]:
    """Pings from one Node's Pod to the other's, 20 in a second; after the block: how many were sent, and answered."""
    items = json.loads(lab.api.kubectl("get", "pods", "-o", "json"))["items"]
    first, second = (pod["status"]["podIP"] for pod in sorted(items, key=lambda p: p["metadata"]["name"]))
    words = [*pod_namespace(lab, "node-1", first), "ping", "-n", "-i", "0.05", second]
    result: list[int] = []
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as ping:
        try:
            yield result
        finally:
            ping.send_signal(signal.SIGINT)
            out = ping.communicate(timeout=60)[0]
    found = re.search(r"(\d+) packets transmitted, (\d+) received", out)
    assert found, out
    result += [int(found[1]), int(found[2])]


@pytest.mark.parametrize("account", BUDGETS)
def test_a_program_asks_the_api_server_no_more_than_its_budget(cluster_of_two: Lab, account: str) -> None:
    lab, budget = cluster_of_two, BUDGETS[account]
    for machine in lab.topology.nodes:
        wait_ready(lab, machine.name)
    began = {who: r.at for r in reversed(requests(lab)) if (who := r.who)[0] == account}
    assert began
    wait_for("the end of starting", lambda: time.time() > max(began.values()) + START_SECONDS, seconds=60)
    quiet = time.time()
    lab.api.kubectl("label", "--overwrite", "pods", "--all", f"changed-for={account}")
    wait_for("a quiet minute", lambda: time.time() > quiet + 60, seconds=65, step=1)
    for who, first in began.items():
        own = [r for r in requests(lab) if r.who == who]
        start = [r for r in own if r.at < first + START_SECONDS]
        idle = [r for r in own if r.at >= quiet]
        watches = sum(number for (other, _), number in followed(lab).items() if other == who)
        print(who, len(start), watches, [(r.verb, r.what) for r in idle])
        assert len(start) <= budget.start
        assert 0 < watches <= budget.watches
        # a change of a Pod costs none: it comes over a watch
        assert len(idle) <= budget.minute


@pytest.mark.parametrize("seconds", [8, 60])
def test_an_api_server_that_was_away_is_met_again_without_a_storm_and_no_packet_is_lost(
    cluster_of_two: Lab, seconds: int
) -> None:
    lab = cluster_of_two
    for machine in lab.topology.nodes:
        wait_ready(lab, machine.name)
    held = followed(lab)
    with pinged(lab) as counts:
        with away(lab):
            # the test's only pause: it is how long the server is away
            time.sleep(seconds)
            for machine in lab.topology.nodes:
                assert health(lab, machine.name, "livez") == "ok"
                # a silence of a minute is told
                said = health(lab, machine.name)
                assert said == "ok" or (seconds >= 60 and "no recent data from kube-apiserver" in said)
        back = time.time() - READY_SECONDS
        wait_for("every watch", lambda: followed(lab) >= held, seconds=RESUMED_SECONDS, step=1)
    for machine in lab.topology.nodes:
        wait_ready(lab, machine.name)
    sent, heard = counts
    assert sent - heard <= 1, counts  # the last may be on its way when ping ends
    after = [r for r in requests(lab) if r.at > back]
    for who, number in Counter(who for who, _ in followed(lab).elements()).items():
        times = sorted(r.at for r in after if r.who == who)
        most = Counter((r.verb, r.what) for r in after if r.who == who).most_common(9)
        # each watch: one to resume, one list, one to go on; besides them what the program says of itself
        besides = own(lab, who[0])
        assert len(times) <= 3 * number + besides, (who, len(times), number, most)
        assert most_in_a_second(times) <= besides + number, (who, times)
