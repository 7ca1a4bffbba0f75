"""A Node for benchmarks of the agent program: Open vSwitch, Pods, an API server and the controller, in a network namespace of its own.

The agent runs as in its Pod: own /var/run/antrea and /var/lib/cni, everything else as on the Node. Needs root, Open
vSwitch and the programs of Kubernetes (ANTREA_LAB_KUBE_BIN, or the lab's cache).
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from benchmarks.cni_add import ROOT, namespaces, processes, sh, until
from benchmarks.controller_process import PORT, controller, define, wait_ready
from benchmarks.kube_api import NODE_IP, KubeApi

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PODS, NODES = 110, 200
API_PORT = 10350
READY_SECONDS = 120.0
SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
# In the agent's mount namespace: $0 holds what its Pod would mount from the Node; network namespaces stay in sight.
IN_ITS_POD = """
set -eu
mkdir -p "$0/antrea" "$0/cni" "$0/netns"
mount --rbind /run/netns "$0/netns"
mount -t tmpfs tmpfs /run
mkdir /run/antrea /run/netns
mount --bind "$0/antrea" /run/antrea
mount --rbind "$0/netns" /run/netns
mount -t tmpfs tmpfs /var/lib
mkdir /var/lib/cni
mount --bind "$0/cni" /var/lib/cni
exec "$@"
"""


class Memory(msgspec.Struct, frozen=True):
    """MiB of one process: resident; its share of what it shares; of nobody else."""

    rss: float
    pss: float
    private: float

    @classmethod
    def of(cls, pid: int) -> Memory:
        """Source: proc_pid_smaps(5)."""
        sizes: dict[str, float] = {}
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
            name, size, _ = line.split()
            sizes[name.rstrip(":")] = int(size) / 1024
        return cls(sizes["Rss"], sizes["Pss"], sizes["Private_Clean"] + sizes["Private_Dirty"])


class AgentNode:
    """node-1; `start_agent` and `end_agent` may alternate, its Pods stay."""

    def __init__(
        self, directory: Path, start: Callable[..., subprocess.Popen[bytes]], spaces: list[str]
    ) -> None:
        self.directory = directory
        self.spaces = spaces
        self._start = start
        self._agent: subprocess.Popen[bytes] | None = None
        self.api = KubeApi(directory / "kube", start)
        self.api.add_node(1)
        self.log = directory / "agent.log"
        sh("ip", "link", "add", "uplink", "type", "veth", "peer", "name", "underlay")
        sh("ip", "address", "add", f"{NODE_IP.format(1)}/24", "dev", "uplink")
        for end in ("uplink", "underlay"):
            sh("ip", "link", "set", end, "up")
        self._start_switch()
        self._start_controller()
        config = {
            "ovsDatapathType": "netdev",
            "ovsRunDir": str(directory),
            "cniSocket": str(directory / "antrea" / "cni.sock"),
            "hostProcPathPrefix": "/",
            "policyFailOpen": True,
            "clientConnection": {"kubeconfig": str(self.api.add_account("kube-system", "antrea-agent"))},
        }
        (directory / "agent.conf").write_bytes(msgspec.yaml.encode(config))
        sh("make", "-s", "-C", str(ROOT / "cni"))

    def start_agent(self, *python: str) -> int:
        """The pid of an agent that was just started; `python` are options of the interpreter."""
        command = ["unshare", "--mount", "--propagation=private", "sh", "-c", IN_ITS_POD, str(self.directory)]
        command += [sys.executable, *python, "-m", "antrea.agent.main"]
        own = {"NODE_NAME": "node-1", "POD_NAME": "antrea-agent-1", "PYTHONDONTWRITEBYTECODE": ""}
        environment = os.environ | own  # compiled modules are kept, as in an image
        with self.log.open("wb") as log:
            self._agent = self._start(
                *command, f"--config={self.directory}/agent.conf", cwd=ROOT, env=environment, stderr=log
            )
        return self._agent.pid

    def end_agent(self) -> None:
        assert self._agent is not None
        self._agent.terminate()
        self._agent.wait()

    def dump_groups(self) -> str:
        """All groups of br-int, as ovs-ofctl shows them."""
        return self._dump("dump-groups")

    def dump_flows(self) -> str:
        """All flows of br-int, as ovs-ofctl shows them."""
        return self._dump("dump-flows")

    def _dump(self, what: str) -> str:
        command = ("ovs-ofctl", "-O", "OpenFlow15", what, f"unix:{self.directory}/br-int.mgmt")
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def wait_ready(self, every: float = 0.02) -> None:
        """Until the agent's /readyz says ok, asked each so many seconds on one connection. An answer takes the agent 1 ms of its processor."""
        deadline = time.monotonic() + READY_SECONDS
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
        with contextlib.closing(http.client.HTTPSConnection("127.0.0.1", API_PORT, context=tls)) as probe:
            while not _ready(probe):
                assert self._agent is not None
                if self._agent.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"the agent is not ready:\n{self.log.read_text()[-3000:]}")
                time.sleep(every)

    def call(self, command: str, name: str, space: str) -> None:
        """One CNI call of the plugin, which has to succeed. `space` is the path of a network namespace."""
        environment = {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": name,
            "CNI_NETNS": space,
            "CNI_IFNAME": "eth0",
            "CNI_PATH": str(ROOT / "cni"),
            "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={name}",
            "PATH": os.environ["PATH"],
        }
        config = {
            "cniVersion": "1.0.0",
            "name": "antrea",
            "type": "antrea",
            "ipam": {"type": "host-local"},
            "cniSocket": str(self.directory / "antrea" / "cni.sock"),
        }
        done = subprocess.run(
            [ROOT / "cni" / "antrea-cni"],
            input=json.dumps(config).encode(),
            env=environment,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"{command} {name}: {done.stdout.decode()}{self.log.read_text()[-2000:]}")

    def fill(self) -> None:
        """All other Nodes, and all Pods of this one, connected. Needs an agent that is ready."""
        for number in range(2, NODES + 1):
            self.api.add_node(number)
        for number, space in enumerate(self.spaces[:PODS]):
            name = f"web-{number}"
            self.api.add_pod(name, "node-1", f"10.244.1.{number + 2}")
            self.call("ADD", name, space)

    def _start_controller(self) -> None:
        """And tell agents where it is."""
        define(self.api)
        with (self.directory / "controller.log").open("wb") as log:
            self._start(*controller(self.directory, self.api.kubeconfig), cwd=ROOT, stderr=log)
        wait_ready()
        found = {
            "metadata": {"name": "antrea-1", "labels": {"kubernetes.io/service-name": "antrea"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [NODE_IP.format(1)], "conditions": {"ready": True}}],
            "ports": [{"port": PORT, "protocol": "TCP"}],
        }
        path = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices"
        self.api.request("POST", path, found)

    def _start_switch(self) -> None:
        directory = self.directory
        own = {f"OVS_{kind}DIR": str(directory) for kind in ("RUN", "LOG", "SYSCONF", "DB")}
        quiet = ("-vconsole:off", "-vsyslog:off", "-vfile:off")
        database = f"unix:{directory}/db.sock"

        def daemon(name: str, *words: str) -> None:
            control = f"--unixctl={directory}/{name}.ctl"
            self._start(name, *words, *quiet, control, env={**os.environ, **own}, cwd=directory)

        sh("ovsdb-tool", "create", f"{directory}/conf.db", str(SCHEMA))
        daemon("ovsdb-server", f"{directory}/conf.db", f"--remote=punix:{directory}/db.sock")
        until(directory / "db.sock")
        sh("ovs-vsctl", f"--db={database}", "--timeout=10", "--no-wait", "init")
        daemon("ovs-vswitchd", database)


def _ready(probe: http.client.HTTPSConnection) -> bool:
    try:
        probe.request("GET", "/readyz")
        answer = probe.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        probe.close()
        return False
    return answer.status == 200


@contextlib.contextmanager
def agent_node(spaces: int) -> Iterator[AgentNode]:
    """The Node, with that many network namespaces for Pods; ends what was started and removes what was made."""
    directory = Path(tempfile.mkdtemp(prefix="node-"))
    try:
        with namespaces(spaces) as paths, processes() as start:
            node = AgentNode(directory, start, paths)
            with contextlib.closing(node.api):
                yield node
    finally:
        shutil.rmtree(directory)
