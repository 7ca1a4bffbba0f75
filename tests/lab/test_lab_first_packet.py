"""The first packet of a Pod is judged, though its policy is younger than the call that connects it, and as old as the Pod."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import traffic
import yaml
from agent_node import CNI_CONFIG, PLACED, pod_namespace
from api_client import ApiClient
from own_lab import own_lab
from quiet_pod import quiet_pods

from antrea.errors import Unavailable
from lab import node
from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

PORT = 9000
LISTEN = """
import select, socket, sys
heard = set()
udp = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)
udp.bind((sys.argv[1], int(sys.argv[2])))
print("listening", flush=True)
while True:
    ready = select.select([udp, sys.stdin], [], [])[0]
    if udp in ready:
        heard.add(udp.recv(64).decode())
    elif sys.stdin.readline():
        print(*sorted(heard), flush=True)
    else:
        break
"""
# As kubelet does, each try is a container of its own.
START = """
ip netns add @
cd /tmp
export CNI_NETNS=/var/run/netns/@ CNI_IFNAME=eth0 CNI_PATH=/opt/cni/bin
export CNI_ARGS='K8S_POD_NAMESPACE=default;K8S_POD_NAME=@'
n=0
export CNI_CONTAINERID=@-$n
until echo 'CONFIG' | CNI_COMMAND=ADD /opt/cni/bin/antrea > /dev/null; do
    n=$((n + 1))
    export CNI_CONTAINERID=@-$n
done
date +%s.%N
echo $CNI_CONTAINERID > /tmp/@
ip netns exec @ bash -c 'for n in $(seq 40); do echo -n @ > /dev/udp/TARGET/PORT; sleep 0.02; done'
"""
END = """
for name in NAMES; do
    echo 'CONFIG' | CNI_COMMAND=DEL CNI_CONTAINERID=$(cat /tmp/$name) CNI_NETNS= CNI_IFNAME=eth0 CNI_PATH=/opt/cni/bin /opt/cni/bin/antrea
    ip netns del $name
done
"""
PODS = "/api/v1/namespaces/default/pods"
POLICIES = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"
MERGE = "application/merge-patch+json"
TOGETHER = 20
"""Pods that are being connected at a time."""
CHANGE_SECONDS = 0.02
"""Between two changes of others."""


@pytest.fixture
def target(lab: Lab) -> Iterator[str]:
    with quiet_pods(lab, {"listener": "node-1"}) as found:
        yield found["listener"]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "number", [20, *(pytest.param(number, marks=pytest.mark.wide) for number in (200, 1000))]
)
def test_no_packet_of_starting_pods_gets_past_the_policies_that_come_just_before_them(
    lab: Lab, target: str, number: int
) -> None:
    start_many(lab, target, number)


@pytest.mark.wide
@pytest.mark.timeout(3600)
def test_nor_does_one_in_ipv6() -> None:
    """In a lab whose Pods have no other addresses."""
    settings = Settings(nodes=2, family="ipv6")
    with own_lab("first", settings) as lab, quiet_pods(lab, {"listener": "node-1"}) as found:
        start_many(lab, found["listener"], 200)


def start_many(lab: Lab, target: str, number: int) -> None:
    """Starts so many Pods, while others change."""
    seconds: list[float] = []
    with others_change(lab):
        for turn in range(number // TOGETHER):
            seconds += starts(lab, target, [f"start-{turn}-{place}" for place in range(TOGETHER)])
            flush_on_deny = statistics.quantiles(seconds, n=100)
            print(
                f"{len(seconds)} starts, from Pod to network: p50 {flush_on_deny[49]:.3f} s, p99 {flush_on_deny[98]:.3f} s"
            )


def starts(lab: Lab, target: str, names: list[str]) -> list[float]:
    """Every second Pod may send nothing, by a policy that is written at once before it; all are being connected already.

    Returns seconds from the writing of each Pod until it has a network.
    """
    closed, free = names[::2], names[1::2]
    places = {name: f"node-{1 + number // 2 % 2}" for number, name in enumerate(names)}
    words = [*pod_namespace(lab, "node-1", target), sys.executable, "-c", LISTEN, target, str(PORT)]
    with traffic.running("listener", words) as listener:
        listener.says("listening")
        calls = {name: call(lab, name, where, target) for name, where in places.items()}
        try:
            written = write(lab, places, closed)
            took = [connected(done) - written[name] for name, done in calls.items()]
            try:
                wait_for("packets of all others", lambda: heard(listener) >= {*free}, seconds=60, step=0.1)
            except Unavailable as error:
                missing = {*free} - heard(listener)
                error.add_note(f"missing: {[(name, places[name]) for name in sorted(missing)]}")
                raise
            assert heard(listener) == {*free}
        finally:
            for done in calls.values():
                done.kill()
                done.communicate()
            tidy(lab, places, closed)
    return took


def write(lab: Lab, places: dict[str, str], closed: list[str]) -> dict[str, float]:
    """The policy of a Pod and the Pod in two requests that follow each other; when each Pod was written."""
    written = {}
    with contextlib.closing(ApiClient(lab)) as api:
        for name, where in places.items():
            if name in closed:
                assert api.call("POST", POLICIES, policy(name)).status == 201
            written[name] = time.time()
            assert api.call("POST", PODS, pod(name, where)).status == 201
    return written


def connected(done: subprocess.Popen[str]) -> float:
    """When it was."""
    said, _ = done.communicate(timeout=120)
    assert done.returncode == 0
    return float(said)


@contextlib.contextmanager
def others_change(lab: Lab) -> Iterator[None]:
    """Other Pods of both Nodes, and policies, come, change and go all the time."""
    over, wrong = threading.Event(), list[Any]()
    names = ("other-1", "other-2")
    places = {name: name.replace("other", "node") for name in names}

    def change(api: ApiClient) -> None:
        for number in itertools.count():
            name = names[number % 2]
            labels = {"metadata": {"labels": {"turn": str(number)}}}
            answers = (
                api.call("PATCH", f"{PODS}/{name}", labels, kind=MERGE),
                api.call("POST", POLICIES, policy(f"passing-{number}")),
                api.call("PATCH", f"{POLICIES}/{name}", {"spec": selecting(f"t{number}")}, kind=MERGE),
                api.call("DELETE", f"{POLICIES}/passing-{number}"),
            )
            wrong.extend(answer for answer in answers if answer.status not in (200, 201))
            if over.wait(CHANGE_SECONDS) or wrong:
                return

    with contextlib.closing(ApiClient(lab)) as api:
        write(lab, places, [*names])
        changing = threading.Thread(target=change, args=(api,))
        changing.start()
        try:
            yield
        finally:
            over.set()
            changing.join()
            for name in names:
                api.call("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
                api.call("DELETE", f"{POLICIES}/{name}")
    assert not wrong


def selecting(name: str) -> dict[str, Any]:
    return {"podSelector": {"matchLabels": {"start": name}}, "policyTypes": ["Egress"]}


def policy(name: str) -> dict[str, Any]:
    """Pods of this label may send nothing."""
    return {"metadata": {"name": name}, "spec": selecting(name)}


def pod(name: str, where: str) -> Any:
    found = yaml.safe_load(PLACED.replace("NAME", name).replace("NODE", where))
    found["metadata"]["labels"] = {"start": name}
    return found


def heard(listener: traffic.End) -> set[str]:
    """Of whom it has heard."""
    assert listener.process.stdin
    print(file=listener.process.stdin, flush=True)
    return set(listener.line().split())


def call(lab: Lab, name: str, where: str, target: str) -> subprocess.Popen[str]:
    """Connect the Pod as often as it takes, say when it was, and send from there at once."""
    script = START.replace("CONFIG", CNI_CONFIG).replace("TARGET", target).replace("PORT", str(PORT))
    argv = node.inside(lab.record, where, ["sh", "-c", script.replace("@", name)])
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def tidy(lab: Lab, places: dict[str, str], closed: list[str]) -> None:
    lab.api.kubectl("delete", "pod", *places, "--force", "--grace-period=0", "--wait=false")
    lab.api.kubectl("delete", "networkpolicy", *closed, "--wait=false")
    for where in {*places.values()}:
        names = " ".join(name for name, at in places.items() if at == where)
        script = END.replace("CONFIG", CNI_CONFIG).replace("NAMES", names)
        node.execute(lab.record, where, "sh", "-c", script)
