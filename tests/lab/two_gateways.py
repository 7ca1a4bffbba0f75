"""One Egress with an address on each of two gateways, and what Pods of both see of it when the first gateway is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import traffic
from admission_object import crd
from outside_host import address, source_of

from antrea.errors import Unavailable
from lab import namespace
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lab.cluster import Lab

LOST_POD, KEPT_POD = PODS = ("shop-1", "shop-2")
ADDRESSES = {4: ("172.30.0.211", "172.30.0.212"), 6: ("fd00:172:30::212", "fd00:172:30::213")}
"""By family; each Pod has, by the hash, the address of its place."""
PORT = 9004
TUNNEL_LOSS = 10
"""Datagrams of some 2,000; a gateway that is lost costs a hundred at least."""
SILENCE = (
    "add table inet t; add chain inet t out { type filter hook output priority 0; };"
    f" add rule inet t out tcp sport {PORT} tcp flags rst drop"
)
"""The other end would answer what it does not know in a gateway's words."""
SERVER = """
import socket, sys
address, port = sys.argv[1], int(sys.argv[2])
server = socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
print("listening", flush=True)
stream, peer = server.accept()
print(peer[0], flush=True)
while stream.recv(99):
    pass
"""
CLIENT = """
import socket, sys, time
stream = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=30)
try:
    while True:
        stream.send(b".")
        time.sleep(0.05)
except ConnectionResetError:
    print("reset", flush=True)
"""


class Way(NamedTuple):
    """What goes out by the gateways while a block lasts."""

    lab: Lab
    client: traffic.End
    """Of a connection of the Pod whose gateway is to be lost."""
    version: int

    def moves(self, *places: str) -> None:
        """A gateway is lost: the connection through it is ended, and the addresses are on these Nodes."""
        self.client.says("reset")
        stands(self.lab, self.version, *places)

    def stands(self, *places: str) -> None:
        """The addresses are on these Nodes, or will be, and Pods leave with them as ever."""
        stands(self.lab, self.version, *places)


def stands(lab: Lab, version: int, *places: str) -> None:
    """The two addresses are on these Nodes, or will be, and Pods leave with them."""
    there = dict(zip(ADDRESSES[version], places, strict=True))
    wait_for("the addresses' Nodes", lambda: holders(lab) == there, seconds=60)
    left = dict(zip(PODS, ADDRESSES[version], strict=True))
    wait_for("both addresses", lambda: seen(lab, version) == left, seconds=60)


def holders(lab: Lab) -> dict[str, str]:
    """The Node of each address, as the status has it."""
    found = json.loads(lab.api.kubectl("get", "egress", "shop", "-o", "json"))
    rows = found.get("status", {}).get("addresses", ())
    return {row["egressIP"]: row.get("egressNode", "") for row in rows}


def takeovers(lab: Lab) -> list[str]:
    """What Events say of addresses that moved."""
    which = '{range .items[?(@.reason=="EgressTakenOver")]}{.message}{"\\n"}{end}'
    return lab.api.kubectl("get", "events", "-A", "-o", f"jsonpath={which}").splitlines()


def seen(lab: Lab, version: int) -> dict[str, str]:
    return {pod: source_of(lab, pod, version) for pod in PODS}


def _applied(lab: Lab, body: Mapping[str, Any]) -> bool:
    """False: the controller, which was on the Node that lost its power, does not answer for its webhooks again."""
    with suppress(Unavailable):
        lab.api.apply(json.dumps(body))
        return True
    return False


@contextmanager
def two_gateways(
    lab: Lab, version: int, lost: str, kept: str, inside: Mapping[str, list[str]]
) -> Iterator[Way]:
    """The Egress with `lost` and `kept` as its gateways, for Pods whose namespaces `inside` leads to.

    The other one's Pod loses no byte of its stream until the block ends, and no datagram but to a tunnel in user space.
    """
    lost_ip, kept_ip = ADDRESSES[version]
    pool = {"ipRanges": [{"start": lost_ip, "end": kept_ip}], "nodeSelector": {}}
    spec = {
        "appliedTo": {"podSelector": {"matchLabels": {"egress": "shop"}}},
        "externalIPPools": ["shop"] * 2,
    }
    egress = crd("Egress", "shop", spec)
    egress["metadata"]["annotations"] = {
        "egress.antrea.io/preferred-nodes": f"{lost},{kept}",
        "egress.antrea.io/lost-connections": "reset",
    }
    wait_for("a pool", lambda: _applied(lab, crd("ExternalIPPool", "shop", pool)), seconds=60)
    lab.api.apply(json.dumps(egress))
    lab.api.kubectl("label", "pod", *PODS, "egress=shop")
    stands(lab, version, lost, kept)
    target, python, there = address(lab, version), [sys.executable], namespace.path(lab.record, "outside")
    outside = namespace.inside(there, python)
    subprocess.run(namespace.inside(there, ["nft", SILENCE]), check=True)
    with ExitStack() as stack:
        stack.callback(subprocess.run, namespace.inside(there, ["nft", "delete table inet t"]), check=True)

        def run(name: str, *argv: str) -> traffic.End:
            return stack.enter_context(traffic.running(name, argv))

        server = run("server", *outside, traffic.__file__, "serve", target)
        ended = run("lost server", *outside, "-c", SERVER, target, str(PORT))
        for one in (server, ended):
            one.says("listening")
        sender = run("kept", *inside[KEPT_POD], *python, traffic.__file__, "send", target)
        sender.says("connected")
        client = run("lost", *inside[LOST_POD], *python, "-c", CLIENT, target, str(PORT))
        ended.says(lost_ip)
        yield Way(lab, client, version)
        sent, arrived = sender.result(), server.result()
    print({"kept": sent | arrived})
    # a Node that waits long for a processor may itself be taken for dead; nothing else moves its address
    if causes := [one for one in takeovers(lab) if f" {kept_ip} from {kept} " in one]:
        assert all(": dead: " in one for one in causes), causes
    else:
        # whenever links of its Node change, userspace OVS forgets its routes for a moment (docs/datapaths.md)
        assert sent["echoed"] == sent["sent"] <= arrived["datagrams"] + TUNNEL_LOSS
    lab.api.kubectl("delete", "egress/shop", "externalippool/shop")
