"""What a capture keeps of 10,000 packets a second, and whether it counts the others."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest
from figure import show

from antrea.features.packet_capture.agent_part.plan import CaptureOrder, CaptureReport
from antrea.host import bpf

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Namespaces

RATE, SECONDS, PAYLOAD = 10_000, 10, 512
PROGRAM = [sys.executable, "-P", "-m", "antrea.features.packet_capture.agent_part.program"]
SENDER = f"""
import socket, time
to = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
began, sent = time.monotonic(), 0
while sent < {RATE * SECONDS}:
    for _ in range({RATE} // 100):
        to.sendto(bytes({PAYLOAD}), ("192.0.2.2", 9))
    sent += {RATE} // 100
    time.sleep(max(0, began + sent / {RATE} - time.monotonic()))
print(time.monotonic() - began)
"""
UDP = 17
pytestmark = pytest.mark.wide


def test_each_of_ten_thousand_packets_a_second_is_captured_or_counted(
    netns: Namespaces, tmp_path: Path
) -> None:
    other = netns.make()
    netns.sh(f"ip link add pod0 type veth peer name eth0 netns {other} && ip link set pod0 up")
    netns.sh("ip link set eth0 up && ip addr add 192.0.2.1/24 dev eth0", other)
    netns.sh("ip neigh replace 192.0.2.2 lladdr 0a:00:00:00:00:02 dev eth0", other)
    path = tmp_path / "x.pcapng"
    path.touch()
    order = CaptureOrder(
        device="pod0", path=str(path), program=bpf.program(bpf.All((bpf.Test(bpf.BYTE, 23, UDP),))), number=RATE * SECONDS,
        seconds=3 * SECONDS,
    )  # fmt: skip
    with subprocess.Popen(PROGRAM, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as capture:
        assert capture.stdin is not None
        assert capture.stdout is not None
        capture.stdin.write(msgspec.json.encode(order) + b"\n")
        capture.stdin.flush()
        while path.stat().st_size == 0:
            assert capture.poll() is None
        took = float(subprocess.check_output(["ip", "netns", "exec", other, sys.executable, "-c", SENDER]))
        lines = capture.stdout.read().splitlines()
    report = msgspec.json.decode(lines[-1], type=CaptureReport)
    lost = RATE * SECONDS - report.captured
    show("packet_capture_rate", "packets/s", [RATE * SECONDS / took])
    show("packet_capture_lost", "packets", [lost], target=0)
    show("packet_capture_lost_and_not_counted", "packets", [lost - report.dropped], target=0)
    assert report.captured > 0
    assert lost == report.dropped
