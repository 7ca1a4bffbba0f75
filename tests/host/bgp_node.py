"""A Node of a test with the agent's units of BGPPolicy and FRR in the container's program, and routers of FRR beside it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import msgspec
from netdev_switch import TIMEOUT

from antrea.apis.annotation import NodeAnnotation
from antrea.apis.crd.bgp import BGPPolicy
from antrea.engine import Engine, Facts
from antrea.facts.member import AgentNode
from antrea.facts.node import ThisNode
from antrea.features.bgp_policy.agent import EGRESS, FEATURE, IMPORTS
from antrea.features.bgp_policy.agent_part.control import FrrControl
from antrea.features.bgp_policy.policy import policy_row
from antrea.features.framework.agent_feature import stamped
from antrea.host.bgp import KINDS
from antrea.host.route import Route
from antrea.openflow.cookie import Category
from antrea.outside.netlink.sink import NetlinkSink
from build import debian_root

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from conftest import Namespaces

    from antrea.engine import Sink

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "build/image/run_bgp_engine"
CHART = ROOT / "build/charts/antrea/templates/agent/daemonset.yaml"
ALONE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private")
"""Its mounts and processes go with the first of them."""
ROOM = """
set -e
root=$1 own=$2; shift 2
for dir in run var/lib/frr var/tmp etc/frr; do mkdir -p "$root/$dir"; mount -t tmpfs frr "$root/$dir"; done
mkdir "$root/run/frr"; mount --bind "$own" "$root/run/frr"
mount --rbind /dev "$root/dev"; mount -t proc proc "$root/proc"
"""
"""Arguments: the root of Debian, the folder that it has as /run/frr."""
ENGINE = (
    ROOM
    + """
mount --rbind "$root" "$root"; cd "$root"; mkdir run/old; pivot_root . run/old; umount -l /run/old
exec setpriv --bounding-set "-all,$1" /run/frr/run_bgp_engine
"""
)
"""With the capabilities of the container alone, and with a root of its own as a container has: in one of chroot there are no user
namespaces."""
ROUTER = (
    ROOM
    + """
exec chroot "$root" sh -c '
  PATH=/usr/sbin:/usr/bin:/sbin:/bin
  chown -R frr:frr /run/frr /var/lib/frr /etc/frr
  for name in mgmtd zebra bfdd staticd bgpd; do /usr/lib/frr/$name -d -A 127.0.0.1 -P 0 --log file:/run/frr/$name.log; done
  cp /run/frr/frr.conf /etc/frr/
  vtysh -b; exec sleep infinity'
"""
)
BIRD = """
set -e
root=$1 own=$2; shift 2
mount -t tmpfs bird "$root/run"; mkdir "$root/run/bird"; mount --bind "$own" "$root/run/bird"
mount --rbind /dev "$root/dev"; mount -t proc proc "$root/proc"
exec chroot "$root" /usr/sbin/bird -f -c /run/bird/frr.conf -s /run/bird/bird.ctl
"""
"""Routers of BIRD; a Room has its configuration in the same file."""
NODE_IPS, ROUTER_IPS = ("10.7.0.1", "fd07::1"), ("10.7.0.9", "fd07::9")
NODE = ThisNode("n1", ("10.10.0.0/24", "fd00:10::/64"), NODE_IPS, NODE_IPS)
NODE_AS, ROUTER_AS = 64512, 64513


def capabilities() -> str:
    """What the chart gives the container, as setpriv takes it."""
    text = CHART.read_text()
    found = re.search(r'bgpEngine.securityContext "needs" \(list ([^)]*)\)', text)
    assert found
    return ",".join(f"+{name.lower()}" for name in re.findall(r'"(\w+)"', found[1]))


class Room:
    """Processes in the root of Debian, in a network namespace."""

    def __init__(
        self, script: str, *words: str, space: str = "", configuration: str = "", packages: str = "frr"
    ) -> None:
        """`space` is a network namespace; empty: that of the test. `packages` are those of its root."""
        self.folder = Path(tempfile.mkdtemp(prefix="frr-", dir="/run"))
        self.folder.chmod(0o755 if configuration else 0o700)  # FRR owns that of the container
        if configuration:
            (self.folder / "frr.conf").write_text(configuration)
        else:
            shutil.copy(PROGRAM, self.folder)
        self._script, self._words, self._space, self._packages = script, words, space, packages
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        root = debian_root.root(print, self._packages)
        inside = ("ip", "netns", "exec", self._space) if self._space else ()
        words = (*inside, *ALONE, "sh", "-c", self._script, "room", str(root), str(self.folder), *self._words)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(words, stdout=log, stderr=log)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def log(self) -> str:
        return "".join(path.read_text(errors="replace")[-4000:] for path in self.folder.glob("*log"))

    def process(self, name: str) -> int:
        """Process of a daemon; 0: it does not run."""
        assert self._process is not None
        return next((pid for pid in _descendants(self._process.pid) if _name(pid) == name), 0)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        print(self.log())  # shown for a test that fails
        shutil.rmtree(self.folder)


def _descendants(pid: int) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            children += map(int, task.read_text().split())
    return [*children, *(one for child in children for one in _descendants(child))]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


class Network:
    """The Node and a router at one switch."""

    def __init__(self, netns: Namespaces) -> None:
        self._netns, self.switch, self.router = netns, netns.make(), netns.make()
        netns.sh("ip link add br0 type bridge; ip link set br0 up", self.switch)
        for number, (space, ips) in enumerate(((netns.home, NODE_IPS), (self.router, ROUTER_IPS))):
            port = f"p{number}"
            # without duplicate address detection: bgpd does not connect before the interface has a link-local address
            netns.sh("sysctl -qw net.ipv6.conf.default.accept_dad=0", space)
            netns.sh(
                f"ip link add eth0 type veth peer name {port} netns {self.switch}; ip link set eth0 up", space
            )
            netns.sh(f"ip addr add {ips[0]}/24 dev eth0; ip addr add {ips[1]}/64 dev eth0 nodad", space)
            netns.sh(f"ip link set {port} master br0 up", self.switch)
            wait = "until ip -6 address show dev eth0 scope link | grep -q inet6; do sleep 0.02; done"
            netns.sh(f"timeout 10 sh -c '{wait}'", space)

    def cut(self) -> None:
        """Silently for the router: its own cable stays."""
        self._netns.sh("ip link set p0 down", self.switch)

    def mend(self) -> None:
        self._netns.sh("ip link set p0 up", self.switch)

    def routes(self, to: str) -> str:
        """Routes of the router to a network, as its kernel has them."""
        return self._netns.sh(f"ip {'-6 ' if ':' in to else ''}route show {to}", self.router).strip()

    @contextlib.contextmanager
    def watched_routes(self) -> Iterator[list[tuple[float, str]]]:
        """Changes of routes of the router with their times, as they come."""
        words = ["ip", "netns", "exec", self.router, "ip", "monitor", "route"]
        seen: list[tuple[float, str]] = []
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as watch:
            assert watch.stdout is not None
            stream = watch.stdout
            reader = threading.Thread(target=_note, args=(stream, seen))
            reader.start()
            try:
                yield seen
            finally:
                watch.kill()
                reader.join()


def _note(stream: IO[str], seen: list[tuple[float, str]]) -> None:
    seen.extend((time.monotonic(), line) for line in stream)


def policy(name: str = "p", created: str = "2026-01-01T00:00:00Z", **spec: Any) -> BGPPolicy:
    """A policy that selects all Nodes."""
    whole = {"nodeSelector": {}, "localASN": NODE_AS, **spec}
    found = {"metadata": {"name": name, "uid": name, "creationTimestamp": created}, "spec": whole}
    return msgspec.convert(found, BGPPolicy)


def cluster_node(name: str, *, cordoned: bool = False) -> AgentNode:
    """A Node of the cluster."""
    return AgentNode(name, NODE_IPS, NODE_IPS, pod_cidrs=NODE.pod_cidrs, cordoned=cordoned)


class NoAnnotations:
    """Sink of annotations, of which this test has no API server."""

    async def apply(self, put: Sequence[NodeAnnotation], drop: Sequence[NodeAnnotation]) -> None: ...
    async def resync(self, entries: Sequence[NodeAnnotation]) -> None: ...
    async def sweep(self, category: int) -> None: ...


class BgpNode:
    """The agent's part of one Node."""

    def __init__(self, folder: Path) -> None:
        self.facts, self.control = Facts(), FrrControl(folder)
        units = (
            *FEATURE.units,
            *EGRESS.units,
            *(stamped(unit, Category.IMPORTED_ROUTES) for unit in IMPORTS.units),
        )
        sinks: dict[type, Sink] = {
            **dict.fromkeys(KINDS, self.control),
            NodeAnnotation: NoAnnotations(),
            Route: NetlinkSink(),
        }
        kinds = (*FEATURE.sweep_after, *EGRESS.sweep_after)
        after = {int(Category.ROUTES): kinds, int(Category.IMPORTED_ROUTES): IMPORTS.sweep_after}
        self.engine = Engine(self.facts, units, sinks, {}, after)
        self._kinds = kinds
        self.facts.put(NODE)
        self.facts.put(cluster_node(NODE.name))

    def put(self, stored: BGPPolicy) -> None:
        self.facts.put(policy_row(stored))

    def listed(self) -> None:
        """All lists are complete."""
        for kind in self._kinds:
            self.facts.synced(kind)

    @contextlib.asynccontextmanager
    async def running(self, *, listed: bool = True) -> AsyncIterator[Self]:
        if listed:
            self.listed()
        works = [asyncio.create_task(work) for work in (self.engine.run(), self.control.run(self.facts))]
        try:
            yield self
        finally:
            for work in works:
                work.cancel()
            await asyncio.gather(*works, return_exceptions=True)


async def until(true: Any, what: str, seconds: float = 20 * TIMEOUT) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not in time: {what}"
        await asyncio.sleep(0.02)
