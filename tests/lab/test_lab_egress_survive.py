"""The gateway of an Egress loses its power: connections go on at the next one, by blocks of ports, or by copies of their entries."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
import traffic
from admission_object import crd
from agent_node import pod_namespace, wait_ready
from held_connection import CLIENT, SERVER
from outside_host import address
from quiet_pod import quiet_pods

from lab import fault, namespace, node
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

pytestmark = pytest.mark.wide
IP = "172.30.0.219"
NODES = ("node-1", "node-2", "node-3")
OF_EACH = 20
RANGE = "/proc/sys/net/ipv4/ip_local_port_range"


@pytest.fixture(scope="module")
def three(three_nodes: Lab) -> Iterator[Lab]:
    """A pool of all three Nodes, and an Egress for Pods labelled egress=survives whose connections survive."""
    lab = three_nodes
    pool = {"ipRanges": [{"start": IP, "end": IP}], "nodeSelector": {}}
    lab.api.apply(json.dumps(crd("ExternalIPPool", "survives", pool)))
    selector = {"podSelector": {"matchLabels": {"egress": "survives"}}}
    egress = crd("Egress", "survives", {"appliedTo": selector, "externalIPPool": "survives"})
    lab.api.apply(json.dumps(egress))
    wait_for("a holder", lambda: status(lab).get("egressNode"), seconds=60)
    yield lab
    lab.api.kubectl("delete", "egress", "survives")
    lab.api.kubectl("delete", "externalippool", "survives")


def status(lab: Lab) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lab.api.kubectl("get", "egress", "survives", "-o", "json")).get(
        "status", {}
    )
    return found


def blocks(lab: Lab) -> dict[str, str]:
    """First and last port of each Pod's block, as the kernel writes a range."""
    return {
        row["pod"]: f"{row['firstPort']}\t{row['lastPort']}"
        for row in status(lab).get("portBlocks", ())
        if row.get("podIPs")
    }


def port_range(inside: list[str]) -> str:
    return subprocess.run([*inside, "cat", RANGE], check=True, capture_output=True, text=True).stdout.strip()


def copied(lab: Lab) -> set[str]:
    """Nodes that have copies of all connections."""
    rows = [row for row in status(lab).get("conditions", ()) if row["type"] == "ConnectionsCopied"]
    names = set(rows[0]["message"].replace(",", "").split()) if rows else set()
    return names.intersection(NODES) if rows and rows[0]["status"] == "True" else set()


def entries(lab: Lab, name: str) -> int:
    """Connections with the address that a Node's kernel tracks."""
    words = ("conntrack", "-L", "-p", "tcp", "--reply-dst", IP)
    return node.execute(lab.record, name, *words).count("ESTABLISHED")


def use(lab: Lab, mode: str) -> None:
    lab.api.kubectl("annotate", "--overwrite", "egress", "survives", f"egress.antrea.io/survive={mode}")


@contextlib.contextmanager
def power_off(lab: Lab, gone: str) -> Iterator[None]:
    """Until the block ends."""
    fault.inject(lab, gone, "power-off")
    wait_for("the next holder", lambda: status(lab).get("egressNode") not in ("", gone), seconds=60)
    try:
        yield
    finally:
        fault.inject(lab, gone, "power-on")
        wait_ready(lab, gone)


@contextlib.contextmanager
def clients(lab: Lab, inside: dict[str, list[str]]) -> Iterator[dict[str, traffic.End]]:
    """One in each Pod, connected."""
    with ExitStack() as stack:
        outside = namespace.inside(namespace.path(lab.record, "outside"), [sys.executable, "-c", SERVER])
        stack.enter_context(traffic.running("server", outside)).says("listening")
        client = [sys.executable, "-c", CLIENT, address(lab, 4), str(OF_EACH)]
        found = {
            name: stack.enter_context(traffic.running(name, [*words, *client]))
            for name, words in inside.items()
        }
        for end in found.values():
            end.says("connected")
        yield found


def check(found: dict[str, traffic.End]) -> None:
    """All connections go on with the address."""
    results = {name: end.result("\n") for name, end in found.items()}
    lost = [row for rows in results.values() for row in rows if not row[1]]
    pause = max(row[2] for rows in results.values() for row in rows)
    print(f"{6 * OF_EACH - len(lost)} of {6 * OF_EACH} connections, longest pause {pause:.2f} s")
    assert lost == []
    assert {row[3][0] for rows in results.values() for row in rows} == {IP}
    assert pause < 20


def test_connections_go_on_when_the_gateway_loses_its_power(three: Lab) -> None:
    lab, gone = three, status(three)["egressNode"]
    use(lab, "ports")
    places = {name: name for name in NODES if name != gone}
    with quiet_pods(lab, places) as pods:
        lab.api.kubectl("label", "pod", *pods, "egress=survives")
        wait_for("blocks", lambda: blocks(lab).keys() == {f"default/{name}" for name in pods}, seconds=60)
        inside = {name: pod_namespace(lab, name, ip) for name, ip in pods.items()}
        wait_for(
            "ranges",
            lambda: {f"default/{name}": port_range(words) for name, words in inside.items()} == blocks(lab),
            seconds=60,
        )
        with clients(lab, inside) as found, power_off(lab, gone):
            check(found)


def test_connections_whose_entries_are_copied_go_on_when_the_gateway_loses_its_power(three: Lab) -> None:
    lab, gone = three, status(three)["egressNode"]
    use(lab, "sync")
    others = [name for name in NODES if name != gone]
    with quiet_pods(lab, {name: name for name in others}) as pods:
        lab.api.kubectl("label", "pod", *pods, "egress=survives")
        wait_for("copies at both others", lambda: copied(lab) == {*others}, seconds=60)
        inside = {name: pod_namespace(lab, name, ip) for name, ip in pods.items()}
        with clients(lab, inside) as found:
            wait_for(
                "copies of all connections",
                lambda: [entries(lab, name) for name in others] == [6 * OF_EACH] * 2,
                seconds=20,
            )
            with power_off(lab, gone):
                check(found)
