"""Runs in the virtual machine: new connections of a Pod to a Service, by AntreaProxy and by kube-proxy, on the kernel datapath.

Prints figures: to a Pod of the same Node and of another one, among a few Services and among many. Each Endpoint has two
Services, one of which AntreaProxy leaves to kube-proxy (`skipServices`), so that both serve at the same time and are asked by turns.
Judged is how many instructions a connection takes, all that the machine executes: other than seconds, they are the same beside others' work.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import kernel_lab
import pytest
from figure import Against, show
from kernel_services import kube_proxy, kubectl
from kernel_traffic import TIMEOUT
from vm_shape import PROCESSOR_PORT, Machine

from lab import vm
from lab.process import run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernel_lab import KernelLab
    from kernel_node import KernelNode

pytestmark = [pytest.mark.wide, pytest.mark.timeout(7000)]
COUNTS = [int(count) for count in os.environ.get("ANTREA_TEST_SERVICES", "10,1000").split(",")]
"""Services, one figure after the other."""
ROUNDS, CONNECTIONS = 12, 120
MAX_BATCH = 1000
"""Services that kubectl is given."""
PORTS = {"antrea": 9100, "kube_proxy": 9101}
"""Of Endpoints, by side: one that both had would meet the same port of the client twice, and the switch tracks both."""
MACHINES = (Machine("node-1", "dual", ("web", "client")), Machine("node-2", "dual", ("server",)))
"""No more than are needed: every agent takes its part of the processor."""
TARGETS = {"same_node": "web", "across_nodes": "server"}
"""By figure: the only Endpoint of its Services; the client is on the Node of `web`."""
SIDES = ("antrea", "kube_proxy")
CLUSTER_IPS = {
    ("antrea", "same_node"): "10.96.7.1",
    ("antrea", "across_nodes"): "10.96.7.2",
    ("kube_proxy", "same_node"): "10.96.7.3",
    ("kube_proxy", "across_nodes"): "10.96.7.4",
}
"""By who serves the Service, and figure."""
MODES = ("nftables", "iptables")
TABLES = [
    f"{family} {name}" for family in ("ip", "ip6") for name in ("kube-proxy", "nat", "filter", "mangle")
]
"""Of kube-proxy, in either mode."""
PROGRAM = Path("/run/connections")
ZONE = 65520


class Rate(NamedTuple):
    """Connections of a kind that the datapath has met already, for what the whole machine takes meanwhile."""

    second: float
    """Of the processor."""
    billion: float
    """Instructions."""


UNITS = {
    "second": "connections for each second of the processor",
    "billion": "connections for each billion instructions",
}
Figures = dict[tuple[str, str], list[Rate]]
"""By side and figure."""


@pytest.fixture(scope="module")
def kernel() -> Iterator[KernelLab]:
    skipped = [
        f"default/{name_of(number)}" for number, (side, _) in enumerate(CLUSTER_IPS) if side == "kube_proxy"
    ]
    with kernel_lab.realized(MACHINES, antreaProxy={"skipServices": skipped}) as lab:
        yield lab


def test_connections_a_second_beside_kube_proxy(kernel: KernelLab) -> None:
    run(["cc", "-O2", "-static", "-o", PROGRAM, Path(__file__).with_name("connections.c")], seconds=300)
    node, stand, missed = kernel.nodes["node-1"], 0, []
    with servers(kernel):
        for count in COUNTS:
            for first in range(stand, count, MAX_BATCH):
                items = objects(kernel, first, min(first + MAX_BATCH, count))
                made = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
                kubectl("create", "-f", "-", "-o", "name", stdin=made)
            stand = count
            for mode in MODES:
                missed += show_figures(mode, count, beside_kube_proxy(node, kernel, mode, ip_of(count - 1)))
    assert not missed, "more instructions than with kube-proxy"


def beside_kube_proxy(node: KernelNode, kernel: KernelLab, mode: str, last: str) -> Figures:
    """Both sides by turns, once both have all Services up to the `last` ClusterIP, and all are answered by whom they shall be."""
    found: Figures = {}
    node.run("sh", "-c", "; ".join(f"nft delete table {table}" for table in TABLES) + "; true", seconds=600)
    with kube_proxy(node, mode):
        node.wait_for(f"flow to {last}", partial(has_flow, node, last), seconds=1800)
        node.wait_for(f"{last} from the Node", partial(answers, kernel.netns(node.name), last), seconds=3600)
        for ip in CLUSTER_IPS.values():
            node.wait_for(f"{ip} in mode {mode}", partial(answers, kernel.netns("client"), ip), seconds=600)
        for (side, _), ip in CLUSTER_IPS.items():
            assert translated_by_switch(kernel, node, ip) == (side == "antrea")
    # kube-proxy has ended, which takes nothing from the kernel, and so do agents what they need not do for packets
    ways = list(CLUSTER_IPS.items())
    with ExitStack() as stack:
        for one in kernel.nodes.values():
            stack.enter_context(one.agent_stopped())
        for number in range(ROUNDS):
            for way, ip in ways if number % 2 else reversed(ways):
                found.setdefault(way, []).append(rate(kernel, ip))
    return found


def rate(kernel: KernelLab, ip: str) -> Rate:
    """The client itself asks what the machine has taken, by a connection from outside its Pod: starting it does not count."""
    with socket.create_connection((vm.HOST, PROCESSOR_PORT), timeout=TIMEOUT) as teller:
        teller.setblocking(True)
        words = (PROGRAM, "measure", ip, "80", str(CONNECTIONS), str(teller.fileno()))
        shown = subprocess.run(
            kernel.pods["client"].words(*words),
            pass_fds=[teller.fileno()],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=600,
        ).stdout
    before, after = ([float(word) for word in line.split()] for line in shown.splitlines())
    seconds, instructions = (end - begin for begin, end in zip(before, after, strict=True))
    return Rate(CONNECTIONS / seconds, CONNECTIONS / instructions * 1e9)


def has_flow(node: KernelNode, ip: str) -> bool:
    words = node.words("ovs-ofctl", "--no-stats", "dump-flows", "br-int", f"tcp,nw_dst={ip}")
    shown = subprocess.run(words, capture_output=True, text=True, check=False, timeout=TIMEOUT * 5).stdout
    return f"nw_dst={ip}" in shown


def translated_by_switch(kernel: KernelLab, node: KernelNode, ip: str) -> bool:
    """Whether the switch sends connections to this ClusterIP to the Endpoint; else it tracks them to the ClusterIP."""
    tracked = node.run("ovs-appctl", "dpctl/dump-conntrack", f"zone={ZONE}")
    ends = [row for row in tracked.splitlines() if f"src={kernel.addresses('client')[4]},dst={ip}," in row]
    assert ends, tracked
    here = {f"reply=(src={ip}," in row for row in ends}
    assert len(here) == 1, ends
    return not here.pop()


def show_figures(mode: str, count: int, found: Figures) -> list[str]:
    """Returns those of the figures in which a connection takes more instructions than with kube-proxy."""
    missed = []
    for figure, (unit, name) in product(TARGETS, UNITS.items()):
        full = f"proxy_connections_{figure}_{count}_{mode}_by_{unit}"
        ours, theirs = ([getattr(one, unit) for one in found[side, figure]] for side in SIDES)
        show(full, name, ours, against=Against(f"kube_proxy_{mode}", tuple(theirs)))
        ratios = [other / one for one, other in zip(ours, theirs, strict=True)]
        show(f"{full}_to_ours", "times ours", ratios, target=1.0)
        if unit == "billion" and statistics.median(ratios) > 1:
            missed.append(full)
    return missed


def answers(client: Path, ip: str) -> bool:
    """By a connection of its own each time: one that begins before all rules stand goes on without them."""
    words = ["nsenter", f"--net={client}", "--", str(PROGRAM), "client", ip, "80", "1"]
    with suppress(subprocess.TimeoutExpired):
        return subprocess.run(words, capture_output=True, check=False, timeout=TIMEOUT).returncode == 0
    return False


@contextmanager
def servers(kernel: KernelLab) -> Iterator[None]:
    started = []
    try:
        for name, port in product(TARGETS.values(), PORTS.values()):
            words = kernel.pods[name].words(PROGRAM, "server", str(port))
            started.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
        for one in started:
            assert one.stdout is not None
            assert one.stdout.readline() == "listening\n"
        yield
    finally:
        for one in started:
            one.kill()
            one.communicate()


def name_of(number: int) -> str:
    return f"connections-{number}"


def ip_of(number: int) -> str:
    known = list(CLUSTER_IPS.values())
    return known[number] if number < len(known) else f"10.96.{8 + (number >> 8)}.{number & 255}"


def objects(kernel: KernelLab, first: int, end: int) -> Sequence[dict[str, Any]]:
    """A Service and its EndpointSlice for each of these numbers; the first of all are those of CLUSTER_IPS.

    The last of all answers, too, and Nodes ask it to find out whether kube-proxy has them all.
    """
    known = [(kernel.addresses(TARGETS[figure])[4], PORTS[side]) for side, figure in CLUSTER_IPS]
    real = dict(enumerate(known)) | {count - 1: known[0] for count in COUNTS}
    found: list[dict[str, Any]] = []
    for number in range(first, end):
        endpoint, port = real.get(number, (f"10.244.9.{number & 127}", PORTS["antrea"]))
        meta = {"name": name_of(number), "namespace": "default"}
        spec = {"clusterIP": ip_of(number), "ports": [{"name": "x", "port": 80, "targetPort": port}]}
        found.append({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec})
        found.append(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": meta | {"labels": {"kubernetes.io/service-name": meta["name"]}},
                "addressType": "IPv4",
                "ports": [{"name": "x", "port": port, "protocol": "TCP"}],
                "endpoints": [{"addresses": [endpoint], "conditions": {"ready": True}}],
            }
        )
    return found
