"""What a PacketCapture writes, as tshark of Debian 13 reads it: packets, their interface, and why some were dropped."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from suricata_engine import INSIDE, ROOM
from test_host_packet_capture import LABELLED, LOST, copies, node, redirect_nowhere

from build import debian_root

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Namespaces

pytestmark = [pytest.mark.wide, pytest.mark.timeout(600)]
FIELDS = ("frame.interface_name", "frame.comment", "ip.src", "icmp.type")
CLIENT, SERVER = ["client-abcdef", "", "10.10.1.5", "8"], ["client-abcdef", "", "10.10.1.6", "0"]


@pytest.fixture(scope="module")
def root() -> Path:
    """Made before the namespaces of a test, in which there is no way to packages."""
    return debian_root.root(print, "tshark")


def read(root: Path, file: Path) -> list[list[str]]:
    """The fields of each packet; that anything is malformed fails."""
    room = ("unshare", "--mount", "--propagation", "private", "sh", "-c", ROOM, "room", root, file.parent)
    words = ("tshark", "-r", f"{INSIDE}/{file.name}", "-T", "fields", *(f"-e{field}" for field in FIELDS))
    done = subprocess.run([*room, *words], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]


async def test_tshark_reads_packets_and_why_some_were_dropped(
    root: Path, netns: Namespaces, tmp_path: Path
) -> None:
    async with node(netns, tmp_path, LABELLED, {"TrafficControl": True}) as one:
        one.capture("echo", packet={"protocol": "ICMP"}, direction="Both")
        await one.started("echo")
        assert one.ping("-c3 -i0.1").returncode == 0
        await one.complete("echo")
        assert read(root, one.file("echo")) == [CLIENT, SERVER, CLIENT, SERVER, CLIENT]

        one.capture("lost", packet={"protocol": "ICMP"}, captureConfig={"firstN": {"number": 1}})
        redirect_nowhere(one)
        await one.started("lost")
        await one.agent.until(copies, "dropped packets are told")
        assert one.ping("-c1 -W1").returncode == 1
        await one.complete("lost")
        assert sorted(read(root, one.file("lost"))) == [CLIENT, ["drops", LOST, *CLIENT[2:]]]
