"""Runs in the virtual machine: what TrafficControls copy and redirect on the kernel datapath, and what copies cost."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import statistics
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from figure import Against, text
from kernel_lab import say
from kernel_traffic import carry, family
from vm_shape import API_SERVER, DIRECTORY

from antrea.errors import Unavailable
from lab import namespace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernel_lab import KernelLab
    from kernel_node import KernelNode

pytestmark = pytest.mark.wide
NODE, COPIES, CABLE, BACK = "node-1", "copies0", "target1", "return1"
MIRRORED, PLAIN, CLIENT = "web", "flat", "client"
"""Pods of that Node: of a TrafficControl, of none, and one that asks both."""
CONTROLS = "/apis/crd.antrea.io/v1alpha2/trafficcontrols"
MIRROR = {"action": "Mirror", "targetPort": {"ovsInternal": {"name": COPIES}}}
REDIRECT = {
    "action": "Redirect",
    "targetPort": {"device": {"name": CABLE}},
    "returnPort": {"device": {"name": BACK}},
}
ROUNDS, SECONDS, MAX_LOST = 7, 2.0, 15.0
SIZE = 32 * 1024
ALL = 3
"""ETH_P_ALL."""


@pytest.fixture
def node(kernel: KernelLab) -> KernelNode:
    return kernel.nodes[NODE]


@pytest.mark.parametrize("version", [4, 6])
def test_copies_of_both_directions_come_out_of_an_internal_port(
    kernel: KernelLab, node: KernelNode, version: int
) -> None:
    ips = [kernel.addresses(name)[version] for name in (CLIENT, MIRRORED)]
    both, found = {(ips[0], ips[1]), (ips[1], ips[0])}, set[tuple[str, str]]()
    with controlled(node, MIRROR), receiver(COPIES) as tap:

        def copied() -> bool:
            seen = carry(kernel.netns(CLIENT), kernel.netns(MIRRORED), ips[1], SIZE)
            assert seen == (ips[0], True)
            found.update(endpoints(tap, version))
            return both <= found

        node.wait_for("copies of both directions", copied, seconds=120)
    node.wait_for("the port gone", lambda: COPIES not in node.run("ovs-vsctl", "list-ports", "br-int"))


@pytest.mark.parametrize("version", [4, 6])
def test_redirected_packets_pass_a_cable_and_nothing_passes_without_it(
    kernel: KernelLab, node: KernelNode, version: int
) -> None:
    address = kernel.addresses(MIRRORED)[version]
    ping = ("ping", "-q", "-c", "2", "-i", "0.3", "-W", "5", address)
    with controlled(node, REDIRECT, marks=0):
        node.wait_for("flows that drop", lambda: not pings(kernel, *ping))
        node.run("ip", "link", "add", CABLE, "type", "veth", "peer", "name", BACK)
        for end in (CABLE, BACK):
            node.run("ip", "link", "set", end, "up")
        node.wait_for("a way through the cable", lambda: pings(kernel, *ping))
        before = received(node, BACK)
        seen = carry(kernel.netns(CLIENT), kernel.netns(MIRRORED), address, SIZE)
        assert seen == (kernel.addresses(CLIENT)[version], True)
        assert received(node, BACK) - before > SIZE
        node.run("ip", "link", "del", CABLE)
        node.wait_for("flows that drop", lambda: not pings(kernel, *ping))
    node.wait_for("what passes", lambda: pings(kernel, *ping))


def test_what_a_connection_loses_to_copies_is_told(kernel: KernelLab, node: KernelNode) -> None:
    """One byte there and one back on a standing connection, of the Pod that is mirrored and of one that is not, in turn."""
    with controlled(node, MIRROR):
        rates: dict[str, list[float]] = {MIRRORED: [], PLAIN: []}
        for number in range(ROUNDS):
            for pod in sorted(rates, reverse=bool(number % 2)):
                before = received(node, COPIES)
                rates[pod].append(transactions(kernel, pod))
                assert (received(node, COPIES) > before) == (pod == MIRRORED)
    lost = [100 * (1 - one / other) for one, other in zip(rates[MIRRORED], rates[PLAIN], strict=True)]
    without = Against("rr_without", tuple(rates[PLAIN]))
    say(text("kernel_rr_mirror", "a second", rates[MIRRORED], against=without))
    say(text("kernel_rr_mirror_lost", "%", lost, target=MAX_LOST))
    assert statistics.median(lost) <= MAX_LOST


@contextmanager
def controlled(node: KernelNode, spec: dict[str, Any], marks: int = 2) -> Iterator[None]:
    """A TrafficControl of the one Pod, once so many flows of both directions send its packets on."""
    whole = {"appliedTo": {"podSelector": {"matchLabels": {"name": MIRRORED}}}, "direction": "Both", **spec}
    head = {"apiVersion": "crd.antrea.io/v1alpha2", "kind": "TrafficControl", "metadata": {"name": "one"}}
    asked("POST", CONTROLS, {**head, "spec": whole})
    try:
        node.wait_for("flows of the TrafficControl", lambda: marked(node) >= marks)
        yield
    finally:
        asked("DELETE", f"{CONTROLS}/one")
    node.wait_for("no flow of the TrafficControl", lambda: marked(node) == 0)


def asked(method: str, path: str, body: dict[str, Any] | None = None) -> None:
    """A request of the cluster's administrator, from the Node."""
    files = Path(os.environ[DIRECTORY], "pki")
    tls = ssl.create_default_context(cafile=str(files / "ca.crt"))
    tls.load_cert_chain(files / "admin.crt", files / "admin.key")
    plain = namespace.connect(Path("/run/netns", NODE), (API_SERVER, 6443), seconds=60)
    connection = http.client.HTTPSConnection(API_SERVER)
    connection.sock = tls.wrap_socket(plain, server_hostname=API_SERVER)
    try:
        connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})  # fmt: skip
        answer = connection.getresponse()
        assert answer.status in (200, 201), answer.read()
    finally:
        connection.close()


def marked(node: KernelNode) -> int:
    """Flows that send packets to the target of a TrafficControl."""
    return sum("REG9[]" in line and "load:" in line for line in node.flows().splitlines())


def pings(kernel: KernelLab, *words: str) -> bool:
    try:
        return bool(kernel.pods[CLIENT].run(*words))
    except Unavailable:
        return False


def received(node: KernelNode, device: str) -> int:
    """Bytes that came in by a device of the Node, the copies of a cable or of the switch."""
    return int(json.loads(node.run("ip", "-s", "-j", "link", "show", "dev", device))[0]["stats64"]["rx"]["bytes"])  # fmt: skip


@contextmanager
def receiver(device: str) -> Iterator[socket.socket]:
    with namespace.entered(Path("/run/netns", NODE)):
        tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL))
    with tap:
        tap.bind((device, 0))
        tap.setblocking(False)
        yield tap


def endpoints(tap: socket.socket, version: int) -> set[tuple[str, str]]:
    """Sources and destinations of what has come until now."""
    kind, place, size = {4: (0x0800, 26, 4), 6: (0x86DD, 22, 16)}[version]
    found: set[tuple[str, str]] = set()
    while True:
        try:
            frame = tap.recv(2048)
        except BlockingIOError:
            return found
        if int.from_bytes(frame[12:14]) == kind:
            ends = (frame[place : place + size], frame[place + size : place + 2 * size])
            found.add((printed(ends[0]), printed(ends[1])))


def printed(address: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET6 if len(address) == 16 else socket.AF_INET, address)


def transactions(kernel: KernelLab, pod: str) -> float:
    """A second; both ends are of this thread, so that no change of threads is measured with them."""
    address, port = kernel.addresses(pod)[4], 9007
    with namespace.entered(kernel.netns(pod)):
        listener = socket.create_server((address, port), family=family(address))
    near = namespace.connect(kernel.netns(CLIENT), (address, port), seconds=60)
    with listener, near:
        far = listener.accept()[0]
        with far:
            for end in (near, far):
                end.settimeout(None)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            done, begin = 0, time.perf_counter()
            while (past := time.perf_counter() - begin) < SECONDS:
                near.send(b".")
                far.send(far.recv(1))
                near.recv(1)
                done += 1
    return done / past
