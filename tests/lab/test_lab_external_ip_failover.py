"""The Node that answers for the external IP of a Service loses its power, or its agent hangs: another one answers, on the subnet and behind a router."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest
from admission_object import crd
from agent_node import in_agent, pid_of, stopped, wait_ready
from external_address import answers, owner
from quiet_pod import SERVING, quiet_pods

from lab import cluster, fault
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.cluster import Lab

pytestmark = pytest.mark.wide

IP = "172.30.0.214"
NODES = ("node-1", "node-2", "node-3")
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: moved, annotations: {service.antrea.io/external-ip-pool: moved}}
spec: {type: LoadBalancer, selector: {app: moved}, ports: [{port: 80, targetPort: 8080}]}
"""
CLIENT = """
import socket, sys, threading, time
answered, end, lock = [], threading.Event(), threading.Lock()
def ask():
    began = time.monotonic()
    try:
        with socket.create_connection((sys.argv[1], 80), timeout=5) as stream:
            stream.sendall(b"GET /hostname HTTP/1.0\\r\\n\\r\\n")
            if stream.recv(64):
                with lock:
                    answered.append((began, time.monotonic()))
    except OSError:
        pass
threading.Thread(target=lambda: (sys.stdin.readline(), end.set()), daemon=True).start()
print("asking", flush=True)
while not end.is_set():
    threading.Thread(target=ask, daemon=True).start()
    time.sleep(0.01)
time.sleep(1)
times = sorted(done for began, done in answered)
print(max(b - a for a, b in zip(times, times[1:])), len(times), flush=True)
"""


def sessions(lab: Lab, where: str) -> list[str]:
    words = ("ovs-vsctl", "--bare", "--columns=bfd_status", "find", "Interface", "type=geneve")
    return re.findall(r"(?<!remote_)state=(\w+)", in_agent(lab, where, *words))


def up(lab: Lab, where: str) -> bool:
    return sessions(lab, where) == ["up", "up"]


@contextlib.contextmanager
def powerless(lab: Lab, where: str) -> Iterator[None]:
    fault.inject(lab, where, "power-off")
    try:
        yield
    finally:
        fault.inject(lab, where, "power-on")


@contextlib.contextmanager
def hanging(lab: Lab, where: str) -> Iterator[None]:
    with stopped(pid_of(lab, where, "antrea-agent")):
        yield


@pytest.mark.parametrize("lost_by", [powerless, hanging])
def test_another_node_answers_within_seconds(
    three_nodes: Lab, lost_by: Callable[[Lab, str], contextlib.AbstractContextManager[None]]
) -> None:
    lab = three_nodes
    pool = {"ipRanges": [{"start": IP, "end": IP}], "nodeSelector": {}}
    lab.api.apply(json.dumps(crd("ExternalIPPool", "moved", pool)))
    lab.api.apply(SERVICE)
    wait_for("a Node for the address", lambda: owner(lab, "moved", "node-1"), seconds=60)
    for name in NODES:
        wait_for(f"BFD at {name}", partial(up, lab, name), seconds=60)
    lost = owner(lab, "moved", "node-1")
    stays = next(name for name in NODES if name != lost)
    with quiet_pods(lab, {"moved": stays}, SERVING):
        lab.api.kubectl("label", "pod", "moved", "app=moved")
        for machine in ("gateway", "outside"):
            wait_for(f"an answer to {machine}", partial(answers, lab, machine, IP), seconds=60)
        clients = {
            machine: subprocess.Popen(
                cluster.enter(lab, machine, [sys.executable, "-c", CLIENT, IP]),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            for machine in ("gateway", "outside")
        }  # fmt: skip
        for client in clients.values():
            assert client.stdout is not None
            assert client.stdout.readline() == "asking\n"
        with lost_by(lab, lost):
            try:
                wait_for("a next Node", lambda: owner(lab, "moved", stays) not in ("", lost), seconds=60)
                wait_for("the Event", lambda: "ExternalIPTakenOver" in events(lab), seconds=60)
                for machine in clients:
                    wait_for(f"answers to {machine} again", partial(answers, lab, machine, IP), seconds=60)
            finally:
                said = {
                    machine: client.communicate("\n", timeout=60)[0] for machine, client in clients.items()
                }
        print(said, events(lab))
        for machine, text in said.items():
            gap, _ = text.split()
            assert float(gap) < 5, machine
        wait_ready(lab, lost)
        wait_for("the address back", lambda: owner(lab, "moved", stays) == lost, seconds=120)
    lab.api.kubectl("delete", "service", "moved")
    lab.api.kubectl("delete", "externalippool", "moved")


def events(lab: Lab) -> str:
    return lab.api.kubectl(
        "get", "events", "--field-selector", "involvedObject.name=moved,involvedObject.kind=Service"
    )
