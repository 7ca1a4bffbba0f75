"""The agent of one lab node as tests meet it: its processes, its health, its antctl, and CNI calls to it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.errors import Unavailable
from lab import node
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

CNI_CONFIG = '{"cniVersion":"1.0.0","name":"antrea","type":"antrea","ipam":{"type":"host-local"}}'
CALL = "ip netns list | grep -qw {space} || ip netns add {space}; cd /tmp; echo '{config}' | {environment} /opt/cni/bin/antrea"


AGENT_SECONDS = 180
"""Within which an agent has started, or has been rebuilt three times, where it gets a tenth of a processor."""


class Answer(msgspec.Struct):
    """What the CNI plugin printed; `code` 0 is success."""

    code: int
    body: dict[str, Any]


def antctl(lab: Lab, where: str, *words: str) -> str:
    """antctl in the agent's container on a node."""
    return in_agent(lab, where, "antctl", *words)


def in_agent(lab: Lab, where: str, *words: str) -> str:
    """A command in the agent's container on a node."""
    there = f"labelSelector=component%3Dantrea-agent&fieldSelector=spec.nodeName%3D{where}"
    names = [pod["metadata"]["name"] for pod in lab.api.items(f"/api/v1/namespaces/kube-system/pods?{there}")]
    if len(names) != 1:
        raise Unavailable(f"Pods of the agent on {where}: {names}")
    return lab.api.kubectl("-n", "kube-system", "exec", names[0], "-c", "antrea-agent", "--", *words)


def health(lab: Lab, where: str, path: str = "readyz") -> str:
    """The agent's own answer to a probe; empty while nobody answers."""
    with contextlib.suppress(Unavailable):
        words = ("curl", "-sk", "-m", "10", f"https://127.0.0.1:10350/{path}")
        return node.execute(lab.record, where, *words).strip()
    return ""


def ready(lab: Lab, where: str) -> bool:
    """The agent's own /readyz, with what it passes over while a changed configuration takes effect."""
    return (said := health(lab, where, "readyz?verbose")).endswith("passed") and "[-]" not in said


def wait_ready(lab: Lab, where: str) -> None:
    """Fails with what the agent says it waits for."""
    try:
        wait_for(
            f"readiness of the agent of {where}", lambda: ready(lab, where), seconds=AGENT_SECONDS, step=0.05
        )
    except Unavailable as error:
        error.add_note(health(lab, where))
        raise


def pid_of(lab: Lab, where: str, program: str) -> int:
    """Process on the Node's network, as this machine numbers it; 0 if there is none, the oldest if there are more."""
    network = f"/proc/{node.init_pid(lab.record, where)}/ns/net"
    found = []
    for place in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            named = place.name.isdigit() and (place / "comm").read_text().strip() == program
            if named and (place / "ns/net").readlink() == Path(network).readlink():
                found.append(int(place.name))
    return min(found, default=0)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def kill(pid: int) -> None:
    """kill -9 of what `pid_of` has found; to the kernel, 0 would be ourselves and whoever started us."""
    assert pid, "there is no such process"
    os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """SIGSTOP, and SIGCONT in the end."""
    assert pid, "there is no such process"
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def restart_agent(lab: Lab, where: str) -> None:
    """kill -9; returns once the next one runs."""
    before = pid_of(lab, where, "antrea-agent")
    kill(before)
    wait_for("a new agent", lambda: pid_of(lab, where, "antrea-agent") not in (0, before), seconds=60)


def fresh_agent(lab: Lab, where: str) -> None:
    """A new Pod for the agent: the kubelet waits longer and longer before it starts a container of an old one again."""
    words = ("-n", "kube-system", "delete", "pod", "-l", "component=antrea-agent", "--grace-period=1")
    before = pid_of(lab, where, "antrea-agent")
    lab.api.kubectl(*words, f"--field-selector=spec.nodeName={where}")
    wait_for("a new agent", lambda: pid_of(lab, where, "antrea-agent") not in (0, before), seconds=60)
    wait_ready(lab, where)


def pod_namespace(lab: Lab, where: str, address: str) -> list[str]:
    """The words that bring a command into the network namespace of the Pod with this address."""
    return node.inside_pod(lab.record, where, address)


PLACED = """
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  nodeName: NODE
  tolerations: [{operator: Exists}]
  volumes: [{name: never, configMap: {name: nobody-makes-this}}]
  containers: [{name: main, image: none, volumeMounts: [{name: never, mountPath: /never}]}]
"""
"""A Pod that waits on its Node for a volume, for ever: its kubelet does not connect it, so that others can."""


class Sandbox:
    """A container that a runtime would connect: a Pod and a network namespace on a node, and its CNI calls."""

    def __init__(self, lab: Lab, where: str) -> None:
        self._lab = lab
        self._node = where
        self.container = uuid.uuid4().hex
        self.space = f"t-{self.container[:8]}"
        lab.api.apply(PLACED.replace("NAME", self.space).replace("NODE", where))

    def call(self, command: str) -> Answer:
        """One CNI call through the plugin that the node has."""
        given = {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": self.container,
            "CNI_NETNS": f"/var/run/netns/{self.space}",
            "CNI_IFNAME": "eth0",
            "CNI_PATH": "/opt/cni/bin",
            "CNI_ARGS": f"'K8S_POD_NAMESPACE=default;K8S_POD_NAME={self.space}'",
        }
        words = " ".join(f"{name}={value}" for name, value in given.items())
        script = CALL.format(space=self.space, config=CNI_CONFIG, environment=words)
        done = subprocess.run(
            node.inside(self._lab.record, self._node, ["sh", "-c", script]),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        body = json.loads(done.stdout) if done.stdout.strip() else {}
        return Answer(body.get("code", 0), body)

    def vanish(self) -> None:
        """Pod and namespace end, and nobody calls DEL."""
        self._lab.api.kubectl("delete", "pod", self.space, "--force", "--grace-period=0", "--wait=false")
        node.execute(self._lab.record, self._node, "ip", "netns", "del", self.space)

    def remove(self) -> None:
        """DEL, which has to succeed, and the end of the namespace."""
        answer = self.call("DEL")
        assert answer.code == 0, answer.body
        self.vanish()

    @property
    def left(self) -> tuple[bool, bool]:
        """Whether its OVS port stands, and its reservation of an address."""
        shell = ("sh", "-c", f"grep -l {self.container} -r /var/run/antrea/cni/networks/antrea || true")
        held = node.execute(self._lab.record, self._node, *shell)
        ports = in_agent(
            *(self._lab, self._node, "ovs-vsctl", "--bare", "--columns=name", "find", "port"),
            f"external_ids:container-id={self.container}",
        )
        return bool(ports.strip()), bool(held.strip())
