"""Addresses of Pods on a disk that is a temporary directory: who gets which, and what bad files do."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import time
from typing import TYPE_CHECKING

import pytest

from antrea.errors import Invalid, Unavailable
from antrea.outside.disk.ipam import Allocation, Ipam

if TYPE_CHECKING:
    from pathlib import Path

TICK = 100_000_000
"""Nanoseconds; see `_TICK` of the module."""
DUAL = ("10.244.1.0/24", "fd00:10:244:1::/64")


def state(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "lock"}


def modes(directory: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in directory.iterdir() if path.name != "lock"}


async def test_an_address_per_family_behind_the_gateway_in_host_locals_files(tmp_path: Path) -> None:
    assert await Ipam(DUAL, tmp_path).allocate("c1", "eth0") == Allocation(
        ("10.244.1.2/24", "fd00:10:244:1::2/64"), ("10.244.1.1", "fd00:10:244:1::1")
    )
    assert state(tmp_path) == {
        "10.244.1.2": b"c1\r\neth0",
        "fd00:10:244:1::2": b"c1\r\neth0",
        "last_reserved_ip.0": b"10.244.1.2",
        "last_reserved_ip.1": b"fd00:10:244:1::2",
    }
    assert modes(tmp_path) == {0o600}


async def test_a_repeated_add_gets_the_same_and_another_interface_gets_another(tmp_path: Path) -> None:
    ipam = Ipam(DUAL, tmp_path)
    first = await ipam.allocate("c1", "eth0")
    other = await ipam.allocate("c1", "net1")
    assert await Ipam(DUAL, tmp_path).allocate("c1", "eth0") == first
    assert other.ips == ("10.244.1.3", "fd00:10:244:1::3")
    assert await ipam.held("c1", "net1") == other.ips


async def test_a_repeated_add_completes_a_half_one(tmp_path: Path) -> None:
    (tmp_path / "10.244.1.9").write_bytes(b"c1\r\neth0")
    assert (await Ipam(DUAL, tmp_path).allocate("c1", "eth0")).ips == ("10.244.1.9", "fd00:10:244:1::2")


async def test_a_released_address_is_the_last_to_be_used_again(tmp_path: Path) -> None:
    ipam = Ipam(("10.244.1.0/29",), tmp_path)
    for number in range(4):
        await ipam.allocate(f"c{number}", "eth0")
    assert await ipam.release("c0", "eth0") == ("10.244.1.2",)
    assert await ipam.release("c0", "eth0") == ()
    assert [(await ipam.allocate(name, "eth0")).ips for name in ("new", "newer")] == [
        ("10.244.1.6",),
        ("10.244.1.2",),
    ]


async def test_a_full_pod_cidr_is_named_and_leaves_nothing_reserved_in_the_other(tmp_path: Path) -> None:
    ipam = Ipam(("fd00::/120", "10.244.1.0/30"), tmp_path)
    assert (await ipam.allocate("c1", "eth0")).ips == ("fd00::2", "10.244.1.2")
    before = state(tmp_path)
    with pytest.raises(
        Unavailable, match=r"^no free IP address in podCIDR 10\.244\.1\.0/30: all 1 are reserved$"
    ):
        await ipam.allocate("c2", "eth0")
    assert state(tmp_path) == before | {"last_reserved_ip.0": b"fd00::3"}
    await ipam.release("c1", "eth0")
    assert (await ipam.allocate("c2", "eth0")).ips == ("fd00::4", "10.244.1.2")


async def test_ipv6_uses_the_last_address_and_ipv4_not_its_broadcast(tmp_path: Path) -> None:
    ipam = Ipam(("10.0.0.0/29", "fd00::/125"), tmp_path)
    (tmp_path / "last_reserved_ip.0").write_text("10.0.0.6")
    (tmp_path / "last_reserved_ip.1").write_text("fd00::6")
    assert (await ipam.allocate("c1", "eth0")).ips == ("10.0.0.2", "fd00::7")
    assert (await ipam.allocate("c2", "eth0")).ips == ("10.0.0.3", "fd00::2")


async def test_collecting_keeps_known_containers_and_what_is_not_an_address(tmp_path: Path) -> None:
    ipam = Ipam(DUAL, tmp_path)
    kept = await ipam.allocate("c1", "eth0")
    lost = await ipam.allocate("c2", "eth0")
    (tmp_path / "10.99.0.1").write_bytes(b"c1")
    (tmp_path / "notes").write_text("mine")
    assert sorted(await ipam.gc(await ipam.containers() - {"c1"})) == sorted(lost.ips)
    assert set(state(tmp_path)) == {
        *kept.ips,
        "10.99.0.1",
        "notes",
        "last_reserved_ip.0",
        "last_reserved_ip.1",
    }


async def test_a_file_that_names_only_the_container_is_released_with_it(tmp_path: Path) -> None:
    (tmp_path / "10.244.1.9").write_bytes(b"c1")
    assert await Ipam(DUAL, tmp_path).release("c1", "eth0") == ("10.244.1.9",)


async def test_bad_files_keep_their_address_cost_a_sentence_and_are_collected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "10.244.1.2").write_bytes(b"")
    (tmp_path / "10.244.1.3").write_bytes(b"\xff\xfe")
    (tmp_path / "last_reserved_ip.0").write_bytes(b"rubbish")
    ipam = Ipam(("10.244.1.0/24",), tmp_path)
    with caplog.at_level(logging.WARNING):
        assert (await ipam.allocate("c1", "eth0")).ips == ("10.244.1.4",)
    assert [record.message for record in caplog.records] == [
        "Ignored the owner of an address because its file cannot be read",
        "Started at the first address because the last reserved one cannot be read",
    ]
    assert await ipam.gc(await ipam.containers() - {"c1"}) == ("10.244.1.2", "10.244.1.3")


async def test_a_last_reserved_address_of_another_pod_cidr_starts_at_the_first(tmp_path: Path) -> None:
    (tmp_path / "last_reserved_ip.0").write_text("10.244.7.7")
    (tmp_path / "10.244.7.7").write_bytes(b"c1\r\neth0")
    assert (await Ipam(("10.244.1.0/24",), tmp_path).allocate("c1", "eth0")).ips == ("10.244.1.2",)


async def test_a_directory_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        Unavailable, match=r"^cannot open .*file/antrea/lock of the address reservations: Not a directory$"
    ):
        await Ipam(DUAL, tmp_path / "file" / "antrea").allocate("c1", "eth0")


async def test_adds_at_the_same_time_get_different_addresses(tmp_path: Path) -> None:
    ipams = [Ipam(DUAL, tmp_path) for _ in range(2)]
    got = await asyncio.gather(*(ipams[number % 2].allocate(f"c{number}", "eth0") for number in range(40)))
    assert len({ip for each in got for ip in each.ips}) == 80


async def test_a_lock_that_another_process_keeps_is_waited_for_and_not_for_ever(tmp_path: Path) -> None:
    ipam = Ipam(DUAL, tmp_path, lock_seconds=0.2)
    await ipam.allocate("c1", "eth0")
    before = state(tmp_path)
    # another open file of the same process is as foreign to flock as another process
    lock = os.open(tmp_path / "lock", os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = f"another process has held the lock {tmp_path}/lock of the address reservations for 0.2 s"
        got = await asyncio.gather(
            ipam.allocate("c2", "eth0"), ipam.release("c1", "eth0"), ipam.held("c1", "eth0"),
            ipam.containers(), ipam.gc({"c1"}), return_exceptions=True,
        )  # fmt: skip
        assert [str(one) for one in got] == [str(Unavailable(wanted))] * 5
        assert state(tmp_path) == before
        patient = asyncio.create_task(Ipam(DUAL, tmp_path).allocate("c2", "eth0"))
        await asyncio.sleep(0.1)
        assert not patient.done()
    finally:
        os.close(lock)
    assert (await patient).ips == ("10.244.1.3", "fd00:10:244:1::3")


def test_no_octet_of_a_reservation_ends_a_call_or_frees_its_address(tmp_path: Path) -> None:
    path, cidrs = tmp_path / "10.244.1.2", ("10.244.1.0/29",)
    whole = b"c1\r\neth0"
    for at, before in enumerate(whole):
        for octet in {0, 0x80, 0xFF, before ^ 1} - {before}:
            path.write_bytes(whole[:at] + bytes((octet,)) + whole[at + 1 :])
            (tmp_path / "last_reserved_ip.0").write_bytes(bytes((octet,)) + b"0.244.1.1")
            ipam = Ipam(cidrs, tmp_path)
            got = asyncio.run(ipam.allocate("c2", "eth0")).ips
            assert got == ("10.244.1.3",)
            asyncio.run(ipam.release("c2", "eth0"))


async def test_what_is_no_file_and_what_is_too_large_holds_its_address_for_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "10.244.1.2")
    (tmp_path / "10.244.1.3").mkdir()
    (tmp_path / "10.244.1.4").write_bytes(b"c" * 5000)
    os.mkfifo(tmp_path / "last_reserved_ip.0")
    ipam = Ipam(("10.244.1.0/24",), tmp_path)
    assert await ipam.containers() == {""}
    assert (await ipam.allocate("c2", "eth0")).ips == ("10.244.1.5",)


def age(path: Path) -> None:
    """Let a file be older than a tick of its file system's clock, as far as that can tell."""
    path.chmod(0o600)
    deadline = time.monotonic() + 30
    while time.time_ns() - path.stat().st_ctime_ns < 2 * TICK:
        assert time.monotonic() < deadline
        time.sleep(0.01)


async def test_a_file_that_somebody_else_changed_since_the_last_look_is_read_again(tmp_path: Path) -> None:
    ipam, path = Ipam(DUAL, tmp_path), tmp_path / "10.244.1.9"
    path.write_bytes(b"c1\r\neth0")
    age(path)
    assert await ipam.held("c1", "eth0") == ("10.244.1.9",)
    path.write_bytes(b"c2\r\neth0")
    assert (await ipam.held("c1", "eth0"), await ipam.held("c2", "eth0")) == ((), ("10.244.1.9",))
    path.write_bytes(b"c3\r\neth0")
    assert (await ipam.held("c2", "eth0"), await ipam.held("c3", "eth0")) == ((), ("10.244.1.9",))


@pytest.mark.parametrize(
    ("cidr", "why"),
    [
        ("10.244.1.0", "podCIDR: 10.244.1.0/32 is too small"),
        ("10.244.1.0/31", "podCIDR: 10.244.1.0/31 is too small"),
        ("rubbish", "podCIDR: 'rubbish' is not a network"),
    ],
)
def test_a_pod_cidr_without_room_is_invalid(cidr: str, why: str) -> None:
    with pytest.raises(Invalid) as refusal:
        Ipam((cidr,))
    assert str(refusal.value).startswith(why)
