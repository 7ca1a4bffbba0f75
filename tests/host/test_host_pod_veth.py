"""Pod interfaces on a real kernel: made, reached by ping, checked, announced, removed."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from antrea.errors import Refused, Unavailable
from antrea.host.ovs_port import PodPort
from antrea.outside.neighbour.announcement import Announcer, _bound, announcement
from antrea.outside.netlink.netns import NetnsWorker, PodVeth, host_interface_name
from antrea.outside.netlink.pod_veth import delete

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Namespaces


@pytest.fixture
def worker() -> Iterator[NetnsWorker]:
    worker = NetnsWorker()
    yield worker
    worker.close()


def pod_veth(netns: Namespaces, pod: str, **changes: Any) -> PodVeth:
    wanted: dict[str, Any] = {
        "netns_path": netns.path(pod),
        "host_name": host_interface_name("web-0", "c1"),
        "mtu": 1400,
        "addresses": ("10.244.1.5/24", "fd00:10:244:1::5/64"),
        "gateways": ("10.244.1.1", "fd00:10:244:1::1"),
        "mac": "0a:00:00:00:00:05",
        "tx_off": True,
    }
    return PodVeth(**(wanted | changes))


def pod_port(veth: PodVeth, mac: str) -> PodPort:
    return PodPort(
        container_id="c1",
        pod_namespace="default",
        pod_name="web-0",
        mac=mac,
        ips=("10.244.1.5", "fd00:10:244:1::5"),
        if_dev=veth.if_name,
        netns=veth.netns_path,
    )


def names() -> list[str]:
    return sorted(name for _, name in socket.if_nameindex())


def links(netns: Namespaces, name: str | None = None) -> dict[str, Any]:
    return {row["ifname"]: row for row in json.loads(netns.sh("ip -j -d link", name))}


async def test_a_pod_interface_has_its_address_routes_and_mtu_and_answers_a_ping(
    netns: Namespaces, worker: NetnsWorker
) -> None:
    pod = netns.make()
    veth = pod_veth(netns, pod)
    mac, index = await worker.create_pod_veth(veth)
    inside, outside = links(netns, pod)["eth0"], links(netns)[veth.host_name]
    assert (mac, index) == ("0a:00:00:00:00:05", outside["ifindex"])
    assert (inside["address"], inside["mtu"], "UP" in inside["flags"]) == (mac, 1400, True)
    assert (outside["mtu"], "NOARP" in outside["flags"], "UP" in outside["flags"]) == (1400, True, True)
    assert "default via 10.244.1.1 dev eth0 onlink" in netns.sh("ip -4 route", pod)
    assert "default via fd00:10:244:1::1 dev eth0" in netns.sh("ip -6 route", pod)
    assert "tentative" not in netns.sh("ip -6 addr show dev eth0 scope global", pod)
    assert netns.sh(f"ip -6 addr show dev {veth.host_name}") == ""
    assert "tx-checksumming: off" in netns.sh("ethtool -k eth0", pod)

    gateway = (
        f"ip link set {veth.host_name} arp on; sysctl -qw net.ipv6.conf.{veth.host_name}.disable_ipv6=0;"
    )
    netns.sh(f"{gateway} ip addr add 10.244.1.1/24 dev {veth.host_name}; ping -c1 -W10 10.244.1.5")
    netns.sh(f"ip addr add fd00:10:244:1::1/64 dev {veth.host_name} nodad; ping -c1 -W10 fd00:10:244:1::5")


async def test_without_a_mac_the_pod_gets_a_local_unicast_one(netns: Namespaces, worker: NetnsWorker) -> None:
    pod = netns.make()
    mac, _ = await worker.create_pod_veth(pod_veth(netns, pod, mac=None))
    assert int(mac[:2], 16) & 0x03 == 0x02
    assert links(netns, pod)["eth0"]["address"] == mac


async def test_making_a_pair_again_replaces_it_and_removing_it_twice_is_fine(
    netns: Namespaces, worker: NetnsWorker
) -> None:
    pod = netns.make()
    veth = pod_veth(netns, pod)
    _, first = await worker.create_pod_veth(veth)
    _, second = await worker.create_pod_veth(veth)
    assert second != first
    await worker.check_pod_veth(veth)
    assert [delete(veth.host_name) for _ in range(2)] == [True, False]
    assert "eth0" not in links(netns, pod)


async def test_a_failure_leaves_no_interface_and_the_kernels_words(
    netns: Namespaces, worker: NetnsWorker
) -> None:
    pod = netns.make()
    with pytest.raises(Refused, match=r"^cannot configure eth0 in .*: Invalid argument$"):
        await worker.create_pod_veth(pod_veth(netns, pod, gateways=("127.0.0.1",)))
    netns.sh("ip link add eth0 type veth peer name eth1", pod)
    with pytest.raises(Refused, match=r"cannot make web-0-[0-9a-f]{6} and eth0: File exists"):
        await worker.create_pod_veth(pod_veth(netns, pod))
    assert (sorted(links(netns)), sorted(links(netns, pod))) == (["lo"], ["eth0", "eth1", "lo"])


async def test_a_namespace_that_is_gone_is_unavailable(netns: Namespaces, worker: NetnsWorker) -> None:
    veth = pod_veth(netns, "no-such-namespace")
    with pytest.raises(Unavailable, match="no-such-namespace cannot be entered: No such file or directory"):
        await worker.create_pod_veth(veth)
    with pytest.raises(Unavailable, match="is not a network namespace: Invalid argument"):
        await worker.run("/proc/self/cmdline", list)
    assert sorted(links(netns)) == ["lo"]


async def test_the_worker_comes_home_after_work_that_raises(netns: Namespaces, worker: NetnsWorker) -> None:
    pod = netns.make()
    netns.sh("ip link add only-here type veth peer name a", pod)

    def fail() -> None:
        raise KeyError(names()[-1])

    with pytest.raises(KeyError, match="only-here"):
        await worker.run(netns.path(pod), fail)
    assert (await worker.run(netns.path(netns.home), names), names()) == (["lo"], ["lo"])
    assert threading.current_thread() is threading.main_thread()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        ("ip link set eth0 down", "is down"),
        ("ip addr del 10.244.1.5/24 dev eth0", "does not have address 10.244.1.5/24"),
        ("ip -6 route del default", "has no default route via fd00:10:244:1::1"),
        ("ip link set eth0 address 0a:00:00:00:00:06", "has MAC 0a:00:00:00:00:06, not 0a:00:00:00:00:05"),
        ("ip link set eth0 name eth9", "is missing"),
    ],
)
async def test_a_check_names_what_is_not_as_it_was_made(
    netns: Namespaces, worker: NetnsWorker, spoil: str, words: str
) -> None:
    pod = netns.make()
    veth = pod_veth(netns, pod)
    await worker.create_pod_veth(veth)
    await worker.check_pod_veth(veth)
    netns.sh(spoil, pod)
    with pytest.raises(Refused, match=f"^interface eth0 in {netns.path(pod)} {words}$"):
        await worker.check_pod_veth(veth)


async def test_a_check_names_a_host_end_that_is_missing_or_another(
    netns: Namespaces, worker: NetnsWorker
) -> None:
    pod, other = netns.make(), netns.make()
    veth = pod_veth(netns, pod)
    with pytest.raises(Refused, match=f"^interface {veth.host_name} is missing on the Node$"):
        await worker.check_pod_veth(veth)
    await worker.create_pod_veth(veth)
    await worker.create_pod_veth(pod_veth(netns, other, host_name="other-000000"))
    netns.sh(f"ip link del {veth.host_name}; ip link set other-000000 name {veth.host_name} up")
    with pytest.raises(Refused, match=r"eth0 in .* is missing"):
        await worker.check_pod_veth(veth)


async def test_an_announcement_teaches_neighbours_the_new_mac(netns: Namespaces, worker: NetnsWorker) -> None:
    pod = netns.make()
    veth = pod_veth(netns, pod)
    mac, _ = await worker.create_pod_veth(veth)
    port = pod_port(veth, mac)
    announcer = Announcer(worker)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003)) as ear:
        ear.bind((veth.host_name, 0))
        ear.settimeout(30)
        announcer.announce(port)
        heard: set[bytes] = set()
        wanted = {announcement(mac, ip) for ip in port.ips}
        while not wanted <= heard:
            heard.add(await asyncio.to_thread(ear.recv, 2048))
    netns.sh(
        f"ip link set {veth.host_name} arp on; ip addr add 10.244.1.1/24 dev {veth.host_name};"
        f"ip neigh replace 10.244.1.5 lladdr 02:00:00:00:00:01 dev {veth.host_name} nud stale"
    )
    announcer.announce(port)
    deadline = time.monotonic() + 30
    while f"lladdr {mac}" not in netns.sh(f"ip neigh show 10.244.1.5 dev {veth.host_name}"):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    await announcer.close()


async def test_an_announcer_that_is_closed_at_once_leaves_no_socket(
    netns: Namespaces, worker: NetnsWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    veth = pod_veth(netns, netns.make())
    mac, _ = await worker.create_pod_veth(veth)
    made = []

    def slowly_bound(if_name: str) -> socket.socket:
        time.sleep(0.05)
        made.append(_bound(if_name))
        return made[0]

    monkeypatch.setattr("antrea.outside.neighbour.announcement._bound", slowly_bound)
    announcer = Announcer(worker)
    announcer.announce(pod_port(veth, mac))
    await asyncio.sleep(0.01)
    await announcer.close()
    assert [link.fileno() for link in made] == [-1]


async def test_an_announcement_that_cannot_be_sent_costs_a_line_of_the_log(
    netns: Namespaces, worker: NetnsWorker, caplog: pytest.LogCaptureFixture
) -> None:
    veth = pod_veth(netns, netns.make())
    announcer = Announcer(worker)
    with caplog.at_level(logging.DEBUG):
        announcer.announce(pod_port(veth, "0a:00:00:00:00:05"))
        deadline = time.monotonic() + 30
        while not caplog.records:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
    await announcer.close()
    assert [record.message for record in caplog.records] == ["Failed to announce addresses"]
