"""kube-apiserver goes away and comes back with other Services: what was there is served meanwhile, and nothing in part afterwards.

The agent, the controller, kube-apiserver, etcd and the switch are the real programs. What kube-apiserver had before is compacted, as after
the ten minutes for which it keeps that, so that no watch can go on: all kinds are listed anew.
"""

from __future__ import annotations

import re
import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from netdev_switch import until

from benchmarks.agent_node import AgentNode, agent_node
from benchmarks.kube_api import store, unstore
from lab import namespace

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.wide
SERVICES, AWAY_SECONDS = 300, 20.0
LABEL = "kubernetes.io/service-name"
Ends = frozenset[tuple[str, int]]
Wanted = dict[str, Ends]
"""By ClusterIP: addresses and ports of Endpoints."""


def cluster_ip(number: int) -> str:
    return f"10.96.{1 + number // 200}.{1 + number % 200}"


def before() -> Wanted:
    return {
        cluster_ip(n): frozenset({(f"10.244.9.{n % 250}", 8080), (f"10.244.8.{n % 250}", 8080)})
        for n in range(SERVICES)
    }


def after() -> Wanted:
    """Of three Services one is gone, one has another port and one Endpoint less, one is as before; and a third more are new."""
    found = before()
    for number in range(SERVICES):
        ip = cluster_ip(number)
        if number % 3 == 0:
            del found[ip]
        elif number % 3 == 1:
            found[ip] = frozenset({(f"10.244.9.{number % 250}", 9090)})
    for number in range(SERVICES, SERVICES + SERVICES // 3):
        found[cluster_ip(number)] = frozenset({(f"10.244.7.{number % 250}", 8080)})
    return found


def objects(wanted: Wanted) -> Iterator[tuple[str, dict[str, Any]]]:
    """Services and EndpointSlices, by their keys in etcd."""
    for ip, ends in wanted.items():
        name = "s-" + ip.replace(".", "-")
        about = {
            "name": name,
            "namespace": "default",
            "uid": name,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        port = {"name": "http", "port": 80, "protocol": "TCP"}
        spec = {
            "type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip], "ports": [port], "sessionAffinity": "None",
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
        }  # fmt: skip
        yield (
            f"services/specs/default/{name}",
            {"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": spec},
        )
        (number,) = {number for _, number in ends}
        behind = [
            {"addresses": [end], "conditions": {"ready": True}, "nodeName": "n2"} for end, _ in sorted(ends)
        ]
        one = {
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": behind,
            "metadata": about | {"labels": {LABEL: name}}, "ports": [port | {"port": number}],
        }  # fmt: skip
        yield f"endpointslices/default/{name}", one


def ofctl(node: AgentNode, what: str) -> list[str]:
    words = (
        "ovs-ofctl",
        "-O",
        "OpenFlow15",
        "--no-stats",
        "--names",
        what,
        f"unix:{node.directory}/br-int.mgmt",
    )
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()


def served(node: AgentNode) -> Wanted:
    """As the switch has it; an Endpoint that no flow translates to has port 0, a flow without its group one without address."""
    groups: dict[str, Ends] = {}
    for line in ofctl(node, "dump-groups"):
        if one := re.search(r"group_id=(\d+),type=select", line):
            found = re.findall(r"set_field:0x([0-9a-f]+)->reg3,.*?set_field:0x([0-9a-f]+)/0xffff->reg4", line)
            groups[one[1]] = frozenset((str(ip_address(int(ip, 16))), int(port, 16)) for ip, port in found)
    flows = ofctl(node, "dump-flows")
    translated = {
        (str(ip_address(int(one[1], 16))), int(one[2]))
        for line in flows
        if (one := re.search(r"table=EndpointDNAT.*reg3=0x([0-9a-f]+),.*nat\(dst=[0-9.]+:(\d+)", line))
    }
    answers: Wanted = {}
    for line in flows:
        if one := re.search(r"table=ServiceLB,.*nw_dst=(10\.96\.[12]\.\d+),.*group:(\d+)", line):
            ends = groups.get(one[2], frozenset({("", 0)}))
            answers[one[1]] = frozenset((ip, port if (ip, port) in translated else 0) for ip, port in ends)
    return answers


def halves(found: Wanted, then: Wanted, now: Wanted) -> Wanted:
    """Services that are neither as before nor as they are to be; one that comes or goes may be there without its Endpoints."""
    bare = {ip: frozenset[tuple[str, int]]() for ip in now.keys() ^ then.keys()}
    return {ip: ends for ip, ends in found.items() if ends not in (then.get(ip), now.get(ip), bare.get(ip))}


@pytest.fixture
def node() -> Iterator[AgentNode]:
    with agent_node(2) as found:
        yield found


@contextmanager
def requests(client: Path, server: Path, to: str) -> Iterator[list[str]]:
    """Connections from one Pod to another through a Service as long as the block lasts; what came of each."""
    found, ended = list[str](), threading.Event()

    def answering() -> None:
        with namespace.entered(server):
            listener = socket.create_server(("", 8080))
        listener.settimeout(0.2)
        with listener:
            while not ended.is_set():
                try:
                    stream, _ = listener.accept()
                except TimeoutError:
                    continue
                with stream:
                    stream.sendall(b"web")

    def asking() -> None:
        while not ended.wait(0.05):
            try:
                with namespace.connect(client, (to, 80), seconds=5) as stream:
                    found.append(stream.recv(9).decode())
            except OSError as error:
                found.append(repr(error))

    threads = [threading.Thread(target=one) for one in (answering, asking)]
    for one in threads:
        one.start()
    try:
        yield found
    finally:
        ended.set()
        for one in threads:
            one.join()


def test_services_that_changed_while_kube_apiserver_was_away_are_served_as_they_are_now(
    node: AgentNode,
) -> None:
    kept = {"10.96.1.250": frozenset({("10.244.1.3", 8080)})}
    then, now = before() | kept, after() | kept
    store(objects(then))
    node.start_agent()
    node.wait_ready()
    client, web = (Path(one) for one in node.spaces)
    for name, space in (("client", client), ("web", web)):
        node.api.add_pod(name, "node-1")
        node.call("ADD", name, str(space))
    until(lambda: served(node) == then, "the Services of before")
    with requests(client, web, "10.96.1.250") as answers:
        node.api.end_server()
        keys = {key for key, _ in objects(now)}
        store(objects(now))
        unstore(key for key, _ in objects(then) if key not in keys)
        time.sleep(AWAY_SECONDS)
        assert served(node) == then
        node.api.start_server()
        deadline = time.monotonic() + 90
        while (found := served(node)) != now:
            # flows and groups are read one after the other: what differs has to differ again
            assert not halves(found, then, now) or not halves(served(node), then, now)
            assert time.monotonic() < deadline, halves(found, now, now)
        asked = len(answers)
        until(lambda: len(answers) > asked + 20, "more answers")
    assert set(answers) == {"web"}
    assert asked > AWAY_SECONDS
