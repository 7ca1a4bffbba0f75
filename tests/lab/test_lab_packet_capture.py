"""PacketCapture in a cluster: antctl on a workstation fetches packets between Pods of two Nodes, and nothing is left."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest
import workstation
from agent_node import pod_namespace
from config_map import ConfigMap, wait_value
from quiet_pod import SERVING, quiet_pods

from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.cluster import Lab


@pytest.fixture
def gate(lab: Lab) -> Iterator[None]:
    config = ConfigMap(lab)
    try:
        config.change(featureGates={"PacketCapture": True})
        wait_value(lab, "featureGates", {"PacketCapture": True})
        yield
    finally:
        config.write(config.text)


def test_antctl_fetches_packets_between_pods_of_two_nodes(lab: Lab, gate: None, tmp_path: Path) -> None:
    with quiet_pods(lab, {"asks": "node-1", "answers": "node-2"}, SERVING) as pods:
        words = (
            "packetcapture",
            "-S",
            "asks",
            "-D",
            "answers",
            "-f",
            "tcp,tcp_dst=8080",
            "-d",
            "Both",
            "-n",
            "6",
        )
        antctl = subprocess.Popen(
            workstation.command(lab, *words, "-t", "2m", "-o", str(tmp_path)),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=workstation.environment(),
        )  # fmt: skip

        def ended() -> bool:
            inside = pod_namespace(lab, "node-1", pods["asks"])
            url = f"http://{pods['answers']}:8080/hostname"
            subprocess.run([*inside, "curl", "-sS", "--max-time", "3", url], capture_output=True, check=False)
            return antctl.poll() is not None

        wait_for("antctl has its packets", ended, seconds=110)
        output, trouble = antctl.communicate(timeout=60)
        assert antctl.returncode == 0, trouble
        (file,) = tmp_path.glob("*.pcapng")
        assert output == f"Captured packets file: {file}\n"
        read = subprocess.run(["tcpdump", "-nn", "-r", str(file)], capture_output=True, text=True, check=True)
        lines = read.stdout.splitlines()
        assert len(lines) == 6
        assert any(f"{pods['asks']}." in line.split(" > ")[0] for line in lines)
        assert any(f"{pods['answers']}.8080 >" in line for line in lines)
        assert json.loads(lab.api.kubectl("get", "packetcaptures", "-o", "json"))["items"] == []
