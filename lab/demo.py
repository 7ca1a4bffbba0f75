"""Demonstration of a new cluster: its nodes and Pods, and Pods on different nodes that reach each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from antrea.errors import Unavailable
from lab.images import AGNHOST
from lab.process import wait_for
from lab.record import PROGRAM

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.cluster import Lab

MANIFEST = Path(__file__).with_name("demo.yaml")
NAME = "server.default.svc.cluster.local"


def start(lab: Lab) -> tuple[str, str]:
    """Bring up its Pods, client and server; answers the Nodes of both. Raises Unavailable when they are not ready in a minute."""
    first, last = lab.topology.nodes[0].name, lab.topology.nodes[-1].name
    lab.api.apply(
        MANIFEST.read_text().replace("IMAGE", AGNHOST).replace("FIRST", first).replace("LAST", last)
    )
    for pod in ("client", "server"):
        lab.api.kubectl("wait", "--for=condition=Ready", f"pod/{pod}", "--timeout=60s")
    return first, last


def show(lab: Lab, say: Callable[[str], None]) -> None:
    """Run it; raises Unavailable when a Pod does not reach another."""
    first, last = start(lab)
    name = "" if lab.record.name == "default" else f" --name {lab.record.name}"

    def run(*argv: str) -> None:
        say(f"\n$ {PROGRAM} kubectl{name} {' '.join(argv)}")
        say(lab.api.kubectl(*argv).rstrip())

    run("get", "nodes", "-o", "wide")
    run("get", "pods", "-A", "-o", "wide")
    status = msgspec.json.decode(lab.api.kubectl("get", "pod", "server", "-o", "json"))["status"]
    for address in (entry["ip"] for entry in status["podIPs"]):
        run("exec", "client", "--", "ping", "-c", "3", "-W", "2", address)
        host = f"[{address}]" if ":" in address else address
        run("exec", "client", "--", "curl", "-s", "-m", "5", f"http://{host}:8080/hostname")
    if lab.settings.serves_pods:
        wait_for("an answer from http://server", lambda: answers(lab, "http://server/hostname"), seconds=60)
        run("exec", "client", "--", "curl", "-s", "-m", "5", f"http://{NAME}/hostname")
    else:
        say(f"\nNo fetch from http://{NAME}: without kube-proxy nothing serves ClusterIPs.")
    ovs = f"{PROGRAM} kubectl{name} -n kube-system exec ds/antrea-agent -c antrea-ovs -- ovs-vsctl show"
    look = ovs if lab.settings.cni == "antrea" else f"{PROGRAM} exec{name} {first} -- ip route"
    say(
        f"\nThe Pod client on {first} reached the Pod server on {last}. Try next:\n"
        f"  {look}\n"
        f"  {PROGRAM} antctl{name} doctor\n"
        f"  {PROGRAM} fault{name} {last} power-off    # power-on, cut-link, heal-link, pause, resume\n"
        f"  {PROGRAM} down{name}    # removes all of it"
    )


def answers(lab: Lab, url: str) -> bool:
    """Whether the client gets an answer from there: a new Service takes a moment until every node serves it."""
    try:
        return bool(lab.api.kubectl("exec", "client", "--", "curl", "-s", "-m", "1", url))
    except Unavailable:
        return False
