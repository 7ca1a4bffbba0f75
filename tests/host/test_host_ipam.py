"""Our address files against the reference plugin host-local on the same directory, and on a disk that is full."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from antrea.errors import Unavailable
from antrea.outside.disk.ipam import Ipam

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST_LOCAL = Path("/usr/lib/cni/host-local")
DUAL = ("10.244.1.0/28", "fd00:10:244:1::/124")


@pytest.fixture
def host_local() -> Path:
    if not HOST_LOCAL.exists():
        assert not os.environ.get("CI"), f"{HOST_LOCAL} is missing"
        pytest.skip(f"{HOST_LOCAL} is missing")
    return HOST_LOCAL


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two pages, so two files with content fill it."""
    if os.geteuid() != 0:
        assert not os.environ.get("CI"), "mounting needs root"
        pytest.skip("mounting needs root")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(tmp_path)], check=True)
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def reference(binary: Path, command: str, container_id: str, networks: Path) -> tuple[str, ...]:
    """Addresses that the reference plugin answers with."""
    conf = {
        "cniVersion": "0.4.0",
        "name": "antrea",
        "ipam": {
            "type": "host-local",
            "dataDir": str(networks),
            "ranges": [[{"subnet": cidr}] for cidr in DUAL],
        },
    }
    env = {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": container_id,
        "CNI_IFNAME": "eth0",
        "CNI_NETNS": "/x",
        "CNI_PATH": "/",
    }
    done = subprocess.run(
        [binary], input=json.dumps(conf), env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    return tuple(row["address"] for row in json.loads(done.stdout)["ips"]) if done.stdout else ()


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def grow(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=64k", str(disk)], check=True)


def state(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


async def test_taking_turns_with_host_local_on_one_directory(tmp_path: Path, host_local: Path) -> None:
    ipam = Ipam(DUAL, tmp_path / "antrea")
    turns = [
        (await ipam.allocate(f"c{number}", "eth0")).addresses
        if number % 2
        else reference(host_local, "ADD", f"c{number}", tmp_path)
        for number in range(6)
    ]
    assert turns == [(f"10.244.1.{number}/28", f"fd00:10:244:1::{number}/124") for number in range(2, 8)]
    assert (await ipam.allocate("c0", "eth0")).addresses == turns[0]
    assert await ipam.release("c2", "eth0") == ("10.244.1.4", "fd00:10:244:1::4")
    reference(host_local, "DEL", "c3", tmp_path)
    assert await ipam.held("c3", "eth0") == ()
    assert reference(host_local, "ADD", "c6", tmp_path) == ("10.244.1.8/28", "fd00:10:244:1::8/124")


async def test_the_same_steps_leave_the_same_files_as_host_local(tmp_path: Path, host_local: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ipam = Ipam(DUAL, ours / "antrea")
    for number in range(40):  # goes round the ranges, with at most 8 Pods at a time
        expected = reference(host_local, "ADD", f"c{number}", theirs)
        assert (await ipam.allocate(f"c{number}", "eth0")).addresses == expected
        if number >= 8:
            reference(host_local, "DEL", f"c{number - 5}", theirs)
            await ipam.release(f"c{number - 5}", "eth0")
    assert state(ours / "antrea") == state(theirs / "antrea")


async def test_a_full_disk_says_so_and_keeps_nothing_of_the_request(small_disk: Path) -> None:
    ipam = Ipam(DUAL, small_disk)
    with pytest.raises(
        Unavailable, match=r"^cannot write .*fd00:10:244:1::2 of .*: No space left on device$"
    ):
        await ipam.allocate("c1", "eth0")
    assert names(small_disk) == ["last_reserved_ip.0", "lock"]
    grow(small_disk)
    assert (await ipam.allocate("c1", "eth0")).ips == ("10.244.1.3", "fd00:10:244:1::2")
