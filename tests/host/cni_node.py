"""A Node as CNI calls meet it: a switch, an agent process, the plugin, and the counts of what stands."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from cni_agent import BRIDGE, Settings
from netdev_switch import NetdevSwitch, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Namespaces

ROOT = Path(__file__).parents[2]
NOTHING: tuple[set[str], set[str], set[str]] = (set(), set(), set())
"""`CniNode.left` when no Pod is connected"""


class Pod:
    """A sandbox: a network namespace and what the runtime says of it."""

    def __init__(self, netns: str, name: str) -> None:
        self.container = uuid.uuid4().hex * 2
        self.netns = netns
        self.name = name

    @property
    def space(self) -> str:
        """Name of the namespace."""
        return Path(self.netns).name

    @property
    def key(self) -> str:
        return f"default/{self.name}"


class Answer(msgspec.Struct):
    """What the runtime gets from the plugin."""

    status: int
    stdout: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    @property
    def code(self) -> int:
        """0 is success, as for the exit status."""
        return self.json["code"] if self.status else 0


class CniNode:
    """Everything is in the home namespace of `spaces` and under one directory; `stop` ends it all."""

    def __init__(self, spaces: Namespaces) -> None:
        self.spaces = spaces
        self.plugin = sanitized_plugin()
        self.switch = NetdevSwitch()
        self.directory = self.switch.directory
        self.socket = self.directory / "cni.sock"
        self.ipam = self.directory / "ipam"
        self._agents: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        self.switch.start()
        self.switch.add_bridge(BRIDGE)

    def stop(self) -> None:
        for agent in self._agents:
            agent.kill()
            agent.wait()
        self.switch.stop()

    def start_agent(self, **changes: Any) -> subprocess.Popen[bytes]:
        """Returns once it serves, or has ended."""
        settings = Settings(
            db=str(self.switch.socket),
            mgmt=str(self.directory / f"{BRIDGE}.mgmt"),
            socket=str(self.socket),
            ipam=str(self.ipam),
        )
        given = msgspec.json.encode(msgspec.structs.replace(settings, **changes)).decode()
        log = self.directory / f"agent-{len(self._agents)}.log"
        with log.open("wb") as stderr:
            agent = subprocess.Popen(
                [sys.executable, Path(__file__).with_name("cni_agent.py"), given],
                stderr=stderr,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
        self._agents.append(agent)
        until(
            lambda: "started\n" in log.read_text() or agent.poll() is not None,
            "agent that serves",
        )
        return agent

    def start_agent_anew(self, **changes: Any) -> None:
        """Kill the last agent, unless it is dead, and start another."""
        self.stop_agent()
        self.start_agent(**changes)

    def reconcile(self) -> None:
        """Let the last agent compare with a list of no Pods."""
        self._agents[-1].send_signal(signal.SIGHUP)
        until(lambda: "reconciled\n" in self.log(len(self._agents) - 1), "end of reconcile")

    def stop_agent(self) -> None:
        """As kill -9 does."""
        self._agents[-1].kill()
        self._agents[-1].wait()

    def vanish(self, pod: Pod) -> None:
        """The container goes without a DEL: its namespace ends, and the kernel takes the interfaces away."""
        standing = self._veths()
        inside = len(json.loads(self.spaces.sh("ip -j link show type veth", pod.space)))
        subprocess.run(["ip", "netns", "del", pod.space], check=True)
        self.spaces.made.remove(pod.space)
        until(lambda: len(self._veths()) == len(standing) - inside, "end of the interfaces")

    def log(self, number: int) -> str:
        """What the agent that was started as the number-th wrote, counted from 0."""
        return (self.directory / f"agent-{number}.log").read_text()

    def pod(self, name: str = "web-84d6c9b8f7-x2x2x") -> Pod:
        return Pod(self.spaces.path(self.spaces.make()), name)

    def config(self, version: str = "1.0.0", **more: Any) -> dict[str, Any]:
        plain = {"name": "antrea", "type": "antrea", "ipam": {"type": "host-local"}}
        return {"cniVersion": version, "cniSocket": str(self.socket), **plain, **more}

    def call(self, command: str, pod: Pod | None, config: Any = None, **environment: str) -> Answer:
        """Run the plugin as a runtime does. `config` is JSON, or octets as they are."""
        stdin = config if isinstance(config, bytes) else json.dumps(config or self.config()).encode()
        own = {"CNI_COMMAND": command, "CNI_PATH": "/opt/cni/bin", "PATH": os.environ["PATH"]}
        if pod:
            own |= {
                "CNI_CONTAINERID": pod.container,
                "CNI_NETNS": pod.netns,
                "CNI_IFNAME": "eth0",
                "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod.name}",
            }
        done = subprocess.run(
            [self.plugin],
            input=stdin,
            env={**own, **environment},
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert done.stderr == b""
        return Answer(done.returncode, done.stdout)

    def add(self, pod: Pod, version: str = "1.0.0") -> Any:
        answer = self.call("ADD", pod, self.config(version))
        assert answer.status == 0, answer.stdout
        return answer.json

    def check(self, pod: Pod, result: Any) -> Answer:
        return self.call("CHECK", pod, self.config(prevResult=result))

    @contextlib.contextmanager
    def listen(self, pod: Pod | None = None) -> Iterator[Callable[[], str]]:
        """Frames that arrive in a Pod, or from any Pod before the switch has them, as tcpdump prints them."""
        path = self.directory / f"frames-{pod.space if pod else 'all'}"
        words = ["tcpdump", "-lnQ", "in", "-i", "eth0" if pod else "any", "arp or icmp6"]
        if pod:
            words = ["ip", "netns", "exec", pod.space, *words]
        with path.open("wb") as stdout:
            process = subprocess.Popen(words, stdout=stdout, stderr=subprocess.STDOUT)
            try:
                until(lambda: "listening on" in path.read_text(), "tcpdump that listens")
                yield path.read_text
            finally:
                process.terminate()
                process.wait()

    def left(self) -> tuple[set[str], set[str], set[str]]:
        """(ports of the bridge, veth interfaces, reserved addresses)"""
        held = {path.name for path in self.ipam.iterdir()} if self.ipam.exists() else set()
        addresses = {name for name in held if name[0].isdigit() or name.startswith("fd")}
        return self.switch.ports(BRIDGE), self._veths(), addresses

    def _veths(self) -> set[str]:
        links = json.loads(self.spaces.sh("ip -j link show type veth"))
        return {link["ifname"] for link in links}


def sanitized_plugin() -> Path:
    """The plugin with the address and undefined behaviour sanitizers, which end it with a message on stderr."""
    with (ROOT / "cni/antrea.c").open() as source:
        fcntl.flock(source, fcntl.LOCK_EX)  # others build it at the same time
        subprocess.run(["make", "-s", "-C", ROOT / "cni", "antrea-cni-asan"], check=True)
    return ROOT / "cni" / "antrea-cni-asan"


@contextlib.contextmanager
def cni_node(spaces: Namespaces) -> Iterator[CniNode]:
    """A node without an agent yet; all that it starts ends with it."""
    node = CniNode(spaces)
    try:
        node.start()
        yield node
    finally:
        node.stop()


__all__ = ["NOTHING", "Answer", "CniNode", "Pod", "cni_node", "sanitized_plugin", "until"]
