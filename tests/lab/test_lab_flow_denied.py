"""How soon a denied connection of two Nodes is shown with the chart's own values: live, and in the table, to a user of its Namespace."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from agent_node import pod_namespace
from quiet_pod import SERVING, quiet_pods
from test_lab_flow_store import CLOSED, exporting

from lab import cluster, flow_visibility
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lab.cluster import Lab

pytestmark = [pytest.mark.wide, pytest.mark.timeout(900)]
LIVE_SECONDS, TABLE_SECONDS = 2.0, 10.0
TURNS = 5
LAB_ONLY = "activeFlowRecordTimeout"
"""What the lab has shorter than the chart."""


@pytest.fixture
def aggregator(lab: Lab) -> Iterator[None]:
    """With timeouts as the chart has them."""
    with exporting(lab, [one for one in flow_visibility.sets(lab) if LAB_ONLY not in one]):
        yield


class Viewer:
    """A user who asks the aggregator by a port of the control plane's network."""

    def __init__(self, lab: Lab, port: int, token: str) -> None:
        self._lab, self._url = lab, f"https://127.0.0.1:{port}/flows"
        self._curl = ["curl", "-skN", "-H", f"Authorization: Bearer {token}"]

    def _command(self, path: str, port: int) -> list[str]:
        query = f"namespaces=default&action=denied&port={port}"
        return cluster.enter(self._lab, "control", [*self._curl, f"{self._url}{path}?{query}"])

    def table(self, port: int) -> list[dict[str, Any]]:
        """Denied connections to this port."""
        rows: list[dict[str, Any]] = json.loads(subprocess.check_output(self._command("", port)))["rows"]
        return rows

    def times(self, port: int, connect: Sequence[str]) -> tuple[float, float]:
        """Seconds from before `connect` is run to when its connection is shown live, and in the table, with both Pods."""
        with subprocess.Popen(self._command("/live", port), stdout=subprocess.PIPE, text=True) as following:
            assert following.stdout is not None
            events = (json.loads(line[6:]) for line in following.stdout if line.startswith("data: "))
            assert next(events)["rows"] == []
            shown: list[float] = []

            def follow() -> None:
                row = next(events)["rows"][0]
                assert (row["sourcePodName"], row["destinationPodName"]) == ("denied-asks", "denied-serves")
                shown.append(time.monotonic())

            thread = threading.Thread(target=follow)
            thread.start()
            began = time.monotonic()
            with subprocess.Popen(connect):
                wait_for("the denied connection in the table", lambda: self.table(port), seconds=60)
                in_table = time.monotonic()
            thread.join(60)
            following.terminate()
        assert shown, "it was not shown live"
        return shown[0] - began, in_table - began


@pytest.mark.usefixtures("aggregator")
def test_a_denied_connection_is_live_within_two_seconds_and_in_the_table_within_ten(lab: Lab) -> None:
    binding = ("rolebinding", "denied-sees-flows", "-n", "default")
    role = ("--clusterrole=antrea-flow-viewer", "--serviceaccount=default:default")
    lab.api.kubectl("create", *binding, *role)
    try:
        with quiet_pods(lab, {"denied-asks": "node-1", "denied-serves": "node-2"}, SERVING) as ips:
            lab.api.kubectl("label", "pod", "denied-serves", "store=serves")
            lab.api.apply(CLOSED)
            from_pod = pod_namespace(lab, "node-1", ips["denied-asks"])

            def connect(port: int) -> list[str]:
                url = f"http://{ips['denied-serves']}:{port}/"
                return [*from_pod, "curl", "-s", "-o", "/dev/null", "--max-time", "3", url]

            token = lab.api.kubectl("-n", "default", "create", "token", "default").strip()
            with flow_visibility.forwarded(lab) as forwarded:
                viewer = Viewer(lab, forwarded, token)

                def is_denied() -> bool:
                    subprocess.run(connect(8081), check=False)
                    return bool(viewer.table(8081))

                wait_for("a denied connection", is_denied, seconds=120)
                times = []
                for turn in range(TURNS):
                    time.sleep(turn)  # another moment between two polls
                    times.append(viewer.times(8082 + turn, connect(8082 + turn)))
                    print(
                        "denied connection: live after {:.1f} s, in the table after {:.1f} s".format(
                            *times[-1]
                        )
                    )
            lab.api.kubectl("delete", "networkpolicy", "store-in")
    finally:
        lab.api.kubectl("delete", *binding)
    live, table = zip(*times, strict=True)
    assert (max(live) < LIVE_SECONDS, max(table) < TABLE_SECONDS) == (True, True), times
