"""The Node of a Service's external IP is drained, with proxyAll: connections that clients outside opened before go on, and new ones begin.

Both ways, in both families, from the subnet of the Nodes and from behind a router; also while the agent that answers meanwhile is killed.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from admission_object import crd
from agent_node import antctl, kill, pid_of, wait_ready
from external_address import CLIENTS, answers
from own_lab import own_lab
from quiet_pod import SERVING, quiet_pods

from lab import cluster
from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

pytestmark = pytest.mark.wide

IPS = ("172.30.0.216", "fd00:172:30::216")
PROGRAM = Path(__file__).with_name("service_client.py")
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: drained, annotations: {service.antrea.io/external-ip-pool: drained}}
spec:
  type: LoadBalancer
  ipFamilyPolicy: RequireDualStack
  selector: {app: drained}
  ports: [{port: 80, targetPort: 8080}]
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with own_lab("drain", Settings(nodes=3, family="dual", kube_proxy="none", proxy_all=True)) as found:
        yield found


def owners(lab: Lab, where: str) -> dict[str, str]:
    """The Node of each address, as the agent of a Node finds it."""
    rows = json.loads(antctl(lab, where, "get", "serviceexternalip", "-o", "json"))
    return {row["externalIP"]: row.get("assignedNode", "") for row in rows if "externalIP" in row}


@contextlib.contextmanager
def asking(lab: Lab) -> Iterator[dict[tuple[str, str], dict[str, Any]]]:
    """Each client asks each address while the block lasts; then the dictionary has what came of it."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    with contextlib.ExitStack() as stack:
        started = {}
        for machine in CLIENTS:
            for ip in IPS:
                words = cluster.enter(lab, machine, [sys.executable, str(PROGRAM), ip, "80"])
                one = stack.enter_context(subprocess.Popen(words, stdin=-1, stdout=-1, text=True))
                stack.callback(one.kill)
                assert one.stdout is not None
                assert one.stdout.readline() == "asking\n"
                started[machine, ip] = one
        yield found
        for key, one in started.items():
            found[key] = json.loads(one.communicate("\n", timeout=120)[0])


@contextlib.contextmanager
def drained(lab: Lab, home: dict[str, str], stays: str) -> Iterator[None]:
    """While the Node that stays answers for the addresses, which then are at home again."""
    for name in set(home.values()):
        lab.api.kubectl("cordon", name)
    wait_for("others answer", lambda: set(owners(lab, stays).values()) == {stays}, seconds=60)
    yield
    for name in set(home.values()):
        lab.api.kubectl("uncordon", name)
    wait_for("the addresses at home", lambda: owners(lab, stays) == home, seconds=60)


def test_connections_go_on_while_the_node_that_answers_is_drained_and_when_it_returns(lab: Lab) -> None:
    pool = {"ipRanges": [{"start": ip, "end": ip} for ip in IPS], "nodeSelector": {}}
    lab.api.apply(json.dumps(crd("ExternalIPPool", "drained", pool)))
    lab.api.apply(SERVICE)
    wait_for("Nodes for both addresses", lambda: len(set(owners(lab, "node-1")) & set(IPS)) == 2, seconds=60)
    wait_for("owners", lambda: all(owners(lab, "node-1").values()), seconds=60)
    home = owners(lab, "node-1")
    stays = next(name for name in ("node-1", "node-2", "node-3") if name not in home.values())
    with quiet_pods(lab, {"drained-1": stays, "drained-2": home[IPS[0]]}, SERVING):
        lab.api.kubectl("label", "pod", "drained-1", "drained-2", "app=drained")
        for machine in CLIENTS:
            for ip in IPS:
                wait_for(f"{ip} answers to {machine}", partial(answers, lab, machine, ip), seconds=60)
        with asking(lab) as found:
            with drained(lab, home, stays):
                pass
            with drained(lab, home, stays):
                kill(pid_of(lab, stays, "antrea-agent"))
                wait_ready(lab, stays)
    lost = {key: (one["broken"], one["lost"]) for key, one in found.items()}
    assert lost == dict.fromkeys(lost, ([], []))
    assert all(one["sent"] > 200 and one["longest"] < 5.0 for one in found.values())
