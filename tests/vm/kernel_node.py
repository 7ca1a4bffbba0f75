"""A node inside the virtual machine: its own network and mounts, OVS on the kernel datapath, our agent, and Pods."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import yaml
from vm_shape import API_SERVER, DIRECTORY, TOKEN, Machine

from antrea.errors import Unavailable
from antrea.openflow.cookie import LEARNED_ROUND, round_of
from lab.process import run, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT = Path(__file__).parents[2]
CONFIG = {
    "ovsDatapathType": "system",
    "trafficEncapMode": "encap",
    "hostProcPathPrefix": "/",
    "featureGates": {"TrafficControl": True, "FlowExporter": True},
    "policyFailOpen": True,  # Pods need not wait for the controller
    "fqdnTrustedDNSServers": ["0.0.0.0/0", "::/0"],  # a resolver of the cells is a host outside
    "egress": {"uniqueMACForSubInterfaces": False},  # as all users of v1.15 have it
}
# What the programs of a node write lies in its own memory, at the paths that they have in our Pods.
HOLD = """
for place in /run /var/lib /var/log; do mount -t tmpfs tmpfs $place; done
mkdir -p /run/netns /run/lock /run/antrea /run/secrets/kubernetes.io/serviceaccount
echo held
exec sleep infinity
"""
TRY_AGAIN = 11
"""Code with which a plugin tells the runtime to ask once more (CNI specification): the agent answers so after 30 s."""
ACCOUNT = "run/secrets/kubernetes.io/serviceaccount"


class Pod(msgspec.Struct, frozen=True):
    """A network namespace that the plugin has connected."""

    name: str
    netns: Path
    container: str
    result: dict[str, Any]

    @property
    def ips(self) -> dict[int, str]:
        """Address by IP version."""
        found = [ip["address"].split("/")[0] for ip in self.result["ips"]]
        return {6 if ":" in address else 4: address for address in found}

    def words(self, *argv: str | Path) -> list[str]:
        return ["nsenter", f"--net={self.netns}", "--", *(str(a) for a in argv)]

    def run(self, *argv: str | Path, seconds: float = 60) -> str:
        return run(self.words(*argv), seconds=seconds)


class KernelNode:
    """In the network namespace of its name. `start` begins everything at once; `add` waits for it."""

    def __init__(self, machine: Machine, **config: Any) -> None:
        """With these keys of antrea-agent.conf on top of CONFIG."""
        self.machine = machine
        self._config = CONFIG | config
        self.name = machine.name
        self._started: list[subprocess.Popen[str]] = []

    def start(self) -> None:
        holder = self._popen(["ip", "netns", "exec", self.name, "sh", "-euc", HOLD])
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        self._holder = holder.pid
        self.root = Path(f"/proc/{holder.pid}/root")
        cluster = Path(os.environ[DIRECTORY])
        account = self.root / ACCOUNT
        (account / "token").write_text((cluster / TOKEN).read_text())
        (account / "ca.crt").write_text((cluster / "pki/ca.crt").read_text())
        self.start_pod()

    def start_pod(self) -> None:
        """Its two containers at once."""
        self._switch = self._popen(self.words(ROOT / "build/image/start_ovs"), log="ovs")
        self.start_agent()

    def end_pod(self) -> None:
        """As kubelet ends one that is deleted: both containers are told at once."""
        containers = (self._agent, self._switch)
        for process in containers:
            process.terminate()
        for process in containers:
            process.wait(timeout=60)

    @property
    def pod_env(self) -> tuple[str, ...]:
        """What a program of the agent's Pod has in its environment."""
        return (
            f"NODE_NAME={self.name}",
            "POD_NAMESPACE=kube-system",
            f"POD_NAME=antrea-agent-{self.name}",  # which the API server does not have: it is deleted
            f"KUBERNETES_SERVICE_HOST={API_SERVER}",
            "KUBERNETES_SERVICE_PORT=6443",
        )

    def start_agent(self, **config: Any) -> None:
        """With these keys of antrea-agent.conf on top."""
        (self.root / "run/antrea/antrea-agent.conf").write_text(yaml.safe_dump(self._config | config))
        program = (sys.executable, Path(__file__).with_name("patient_agent.py"))
        argv = self.words("env", *self.pod_env, *program, "--config=/run/antrea/antrea-agent.conf")
        self._agent = self._popen(argv, log="agent")

    def kill_agent(self) -> None:
        """As kill -9 does: nsenter and env have become the agent."""
        self._agent.kill()
        self._agent.wait()

    def restart_agent(self, **config: Any) -> None:
        """Kill it, start it with these keys on top, and wait until all flows are of the new one."""
        before = self.rounds()
        self.kill_agent()
        self.start_agent(**config)
        self.wait_for("flows of the new agent alone", lambda: self.rounds() and not self.rounds() & before)

    @contextmanager
    def agent_stopped(self) -> Iterator[None]:
        """While its block lasts, the agent does nothing and takes no time of the processor."""
        self._agent.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._agent.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        for process in reversed(self._started):
            process.kill()
            process.communicate()

    @property
    def gateway(self) -> dict[int, str]:
        """Address of antrea-gw0 by IP version."""
        networks = [ip_network(cidr) for cidr in self.machine.pod_cidrs]
        return {network.version: str(network[1]) for network in networks}

    def flows(self) -> str:
        return self.run("ovs-ofctl", "--no-stats", "--no-names", "dump-flows", "br-int")

    def rounds(self) -> set[int]:
        """Which starts of the agent wrote the flows that are there."""
        found = {round_of(int(cookie, 16)) for cookie in re.findall(r"cookie=(0x[0-9a-f]+)", self.flows())}
        return found - {LEARNED_ROUND}

    def wait_for(self, what: str, condition: Callable[[], object], *, seconds: float = 500) -> None:
        """Raises Unavailable, with the ends of this node's logs."""
        try:
            wait_for(f"{what} on {self.name}", condition, seconds=seconds, step=1)
        except Unavailable as error:
            error.add_note(f"{self.log('ovs')}\n{self.log('agent')}")
            raise

    def words(self, *argv: str | Path) -> list[str]:
        """The command, in the network and the mounts of this node."""
        return [
            *("nsenter", f"--target={self._holder}", "--mount", "--net", "--wd=/", "--"),
            *(str(a) for a in argv),
        ]

    def run(self, *argv: str | Path, seconds: float = 60) -> str:
        return run(self.words(*argv), seconds=seconds)

    def add(self, name: str) -> Pod:
        """Connect a Pod as a container runtime does: with the plugin, which asks the agent, which answers when it can."""
        self.wait_for("CNI server", (self.root / "run/antrea/cni.sock").exists)
        self.run("ip", "netns", "add", name)
        container = uuid.uuid4().hex * 2
        given = {
            "CNI_COMMAND": "ADD",
            "CNI_CONTAINERID": container,
            "CNI_NETNS": f"/run/netns/{name}",
            "CNI_IFNAME": "eth0",
            "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={name}",
            "CNI_PATH": "/opt/cni/bin",
        }
        config = {"cniVersion": "1.0.0", "name": "antrea", "type": "antrea", "ipam": {"type": "host-local"}}
        argv = self.words("env", *(f"{k}={v}" for k, v in given.items()), ROOT / "cni/antrea-cni")
        answer: dict[str, Any] = {}

        def added() -> bool:
            done = subprocess.run(
                argv, input=json.dumps(config), capture_output=True, text=True, check=False, timeout=90
            )
            answer.clear()
            answer.update(json.loads(done.stdout))
            assert done.returncode == 0 or answer["code"] == TRY_AGAIN, f"{done.stdout}\n{self.log('agent')}"
            return done.returncode == 0

        self.wait_for(f"network of {name}", added)
        return Pod(name, self.root / "run/netns" / name, container, answer)

    def log(self, name: str, lines: int = 40) -> str:
        return "\n".join((self.root / f"run/{name}.log").read_text().splitlines()[-lines:])

    def _popen(self, argv: Sequence[str], log: str = "") -> subprocess.Popen[str]:
        if not log:
            process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        else:
            with (self.root / f"run/{log}.log").open("ab") as out:
                process = subprocess.Popen(argv, stdout=out, stderr=out, text=True)
        self._started.append(process)
        return process
