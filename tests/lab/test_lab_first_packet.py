"""The first packet of a Pod is judged, though its policy is younger than the call that connects it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import traffic
from agent_node import CNI_CONFIG, PLACED, pod_namespace
from quiet_pod import quiet_pods

from antrea.errors import Unavailable
from antrea.lab import node
from antrea.lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.lab.cluster import Lab

PORT = 9000
LISTEN = """
import select, socket, sys
heard = set()
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
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
echo $CNI_CONTAINERID > /tmp/@
ip netns exec @ bash -c 'for n in $(seq 40); do echo -n @ > /dev/udp/TARGET/PORT; sleep 0.02; done'
"""
END = """
for name in NAMES; do
    echo 'CONFIG' | CNI_COMMAND=DEL CNI_CONTAINERID=$(cat /tmp/$name) CNI_NETNS= CNI_IFNAME=eth0 CNI_PATH=/opt/cni/bin /opt/cni/bin/antrea
    ip netns del $name
done
"""
CLOSED = """
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: NAME}
spec: {podSelector: {matchLabels: {start: NAME}}, policyTypes: [Egress]}
---
"""
LABELS = "metadata: {name: NAME, labels: {start: NAME}}"


@pytest.fixture
def target(lab: Lab) -> Iterator[str]:
    with quiet_pods(lab, {"listener": "node-1"}) as found:
        yield found["listener"]


def test_no_packet_of_twenty_starting_pods_gets_past_the_policies_that_come_with_them(
    lab: Lab, target: str
) -> None:
    starts(lab, target, [f"start-{number}" for number in range(20)])


@pytest.mark.wide
def test_no_packet_of_two_hundred_starting_pods_gets_past_the_policies_that_come_with_them(
    lab: Lab, target: str
) -> None:
    for turn in range(10):
        starts(lab, target, [f"start-{turn}-{number}" for number in range(20)])


def starts(lab: Lab, target: str, names: list[str]) -> None:
    """Every second Pod may send nothing. All of them are being connected before they, and the policies, are there."""
    closed, free = names[::2], names[1::2]
    places = {name: f"node-{1 + number // 2 % 2}" for number, name in enumerate(names)}
    words = [*pod_namespace(lab, "node-1", target), sys.executable, "-c", LISTEN, target, str(PORT)]
    with traffic.running("listener", words) as listener:
        listener.says("listening")
        calls = [call(lab, name, where, target) for name, where in places.items()]
        try:
            # Of two writes at once the controller may hear the later one first: docs/decisions/0006-first-packet.md.
            lab.api.apply("".join(CLOSED.replace("NAME", name) for name in closed))
            lab.api.apply("".join(manifest(name, places[name]) for name in names))
            for done in calls:
                assert done.wait(timeout=30) == 0
            try:
                wait_for("packets of all others", lambda: heard(listener) >= {*free}, seconds=10, step=0.1)
            except Unavailable as late:
                missing = {*free} - heard(listener)
                late.add_note(f"missing: {[(name, places[name]) for name in sorted(missing)]}")
                raise
            assert heard(listener) == {*free}
        finally:
            for done in calls:
                done.kill()
                done.wait()
            tidy(lab, places, closed)


def heard(listener: traffic.End) -> set[str]:
    """Of whom it has heard."""
    assert listener.process.stdin
    print(file=listener.process.stdin, flush=True)
    return set(listener.line().split())


def call(lab: Lab, name: str, where: str, target: str) -> subprocess.Popen[bytes]:
    """Connect the Pod as often as it takes, and send from there at once."""
    script = START.replace("CONFIG", CNI_CONFIG).replace("TARGET", target).replace("PORT", str(PORT))
    argv = node.inside(lab.record, where, ["sh", "-c", script.replace("@", name)])
    return subprocess.Popen(argv, stderr=subprocess.DEVNULL)


def manifest(name: str, where: str) -> str:
    pod = PLACED.replace("metadata: {name: NAME}", LABELS).replace("NODE", where)
    return (pod + "---\n").replace("NAME", name)


def tidy(lab: Lab, places: dict[str, str], closed: list[str]) -> None:
    lab.api.kubectl("delete", "pod", *places, "--force", "--grace-period=0", "--wait=false")
    lab.api.kubectl("delete", "networkpolicy", *closed, "--wait=false")
    for where in {*places.values()}:
        names = " ".join(name for name, at in places.items() if at == where)
        script = END.replace("CONFIG", CNI_CONFIG).replace("NAMES", names)
        node.execute(lab.record, where, "sh", "-c", script)
