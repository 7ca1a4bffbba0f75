"""A Kubernetes node: namespaces around an init that runs containerd, kubelet and kube-proxy.

The node has its own root directory (NODE/root), in which the machine's /usr and /etc are copy-on-write: what it writes
stays in the lab's directory. Its Python is hidden. One SIGKILL to its init ends all of it.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from antrea.errors import Unavailable
from lab import cgroup, control_plane, images, namespace, node_files, underlay
from lab.artifacts import Binaries
from lab.images import SeedRoot
from lab.process import end, launch, run, tail, wait_for
from lab.record import Record  # noqa: TC001

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.settings import Settings
    from lab.topology import Machine, Topology

PLUGINS = Path("/usr/lib/cni")
SOURCE = Path(__file__).parents[1] / "antrea"
LOOPBACK = ("loopback",)
REFERENCE = ("loopback", "bridge", "host-local", "portmap")
ROOT_DIRECTORIES = (
    "dev etc opt/kubernetes opt/cni/bin old proc root run sys tmp "
    "var/lib/containerd var/lib/kubelet var/lib/cni var/lib/lab var/log/pods var/log/containers var/tmp"
)


def directory(record: Record, node: str) -> Path:
    """Return the directory of a Node in that of the lab."""
    return record.directory / "nodes" / node


def root(record: Record, node: str) -> Path:
    """The node's root directory as the machine sees it (without its mounts: /etc is in the directory beside it)."""
    return directory(record, node) / "root"


def etc(record: Record, node: str) -> Path:
    """Return the directory of files that the node's /etc has beyond the machine's; written before the node starts."""
    return directory(record, node) / "etc"


class Supplies(msgspec.Struct, frozen=True):
    """Files in the lab's cache for every node: the programs and the images."""

    binaries: Binaries
    images: SeedRoot


def prepare(
    record: Record, topology: Topology, node: Machine, *, settings: Settings, supplies: Supplies
) -> None:
    """Everything on the node's disk: directories, configuration, certificates, plugins, images."""
    top, etc_files = root(record, node.name), etc(record, node.name)
    for name in ROOT_DIRECTORIES.split():
        (top / name).mkdir(parents=True, exist_ok=True)
    (top / "tmp").chmod(0o1777)
    (top / "var/run").symlink_to("/run")
    (top / "var/lock").symlink_to("/run/lock")
    (directory(record, node.name) / "etc.work").mkdir(exist_ok=True)
    for name in ("kubernetes", "containerd", "cni/net.d"):
        (etc_files / name).mkdir(parents=True, exist_ok=True)
    node_files.write_tunables(etc_files)
    (etc_files / "hostname").write_text(f"{node.name}\n")
    (etc_files / "hosts").write_text(node_files.hosts(topology))
    (etc_files / "resolv.conf").write_text("")
    (etc_files / "containerd/lab.toml").write_text(node_files.containerd())
    services = _write_kubernetes(record, topology, node, settings)
    programs = [supplies.binaries.kubelet, supplies.binaries.kube_proxy, supplies.binaries.kubectl]
    (directory(record, node.name) / "init.sh").write_text(
        node_files.init(services, programs, SOURCE if settings.dev else None)
    )
    for name in REFERENCE if settings.cni == "reference" else LOOPBACK:
        shutil.copy2(PLUGINS / name, top / "opt/cni/bin" / name)
    images.seed(supplies.images, top / "var/lib/containerd")


def _write_kubernetes(
    record: Record, topology: Topology, node: Machine, settings: Settings
) -> list[tuple[str, str]]:
    target, files = etc(record, node.name) / "kubernetes", control_plane.pki(record)
    services = [("kubelet", node_files.kubelet_command(topology, node))]
    (target / "kubelet.yaml").write_bytes(node_files.yaml(node_files.kubelet(topology)))
    shutil.copy2(control_plane.kubeconfig(record, node.name), target / "kubelet.conf")
    shutil.copy2(files / "ca.crt", target / "ca.crt")
    shutil.copy2(files / f"{node.name}-server.crt", target / "kubelet.crt")
    shutil.copy2(files / f"{node.name}-server.key", target / "kubelet.key")
    if settings.kube_proxy != "none":
        config = node_files.kube_proxy(topology, node.name, settings.kube_proxy)
        (target / "kube-proxy.yaml").write_bytes(node_files.yaml(config))
        shutil.copy2(control_plane.kubeconfig(record, "kube-proxy"), target / "kube-proxy.conf")
        services.append(("kube-proxy", node_files.kube_proxy_command()))
    return services


def power_on(record: Record, node: str) -> None:
    """Start the init of a node that is plugged in and prepared."""
    place, cgroups = directory(record, node), cgroup.create(record, node)
    ready = root(record, node) / node_files.READY.lstrip("/")
    ready.unlink(missing_ok=True)
    kinds = ("--cgroup", "--mount", "--uts", "--ipc", "--pid")
    unshare: list[str | Path] = [
        "unshare",
        *kinds,
        "--fork",
        "--kill-child=KILL",
        "bash",
        place / "init.sh",
        place,
        node,
    ]
    init = launch(record, node, namespace.inside(namespace.path(record, node), unshare), cgroups=cgroups)
    wait_for(f"the init of {node}", lambda: ready.exists() or not init.alive, seconds=60, step=0.02)
    if not ready.exists():
        raise Unavailable(f"the init of {node} ended: {tail(record.directory / 'logs' / f'{node}.log')}")
    cgroup.settle(record, node, init.pid)


def release(record: Record, node: str) -> None:
    """Let kubelet and kube-proxy start: the API server is there. Holds over power cycles."""
    (root(record, node) / node_files.START.lstrip("/")).touch()


def power_off(record: Record, node: Machine) -> None:
    """Cut the power of a node: its processes, interfaces and rules are gone, its disk stays."""
    underlay.unplug(record, node)
    process = record.processes().get(node.name)
    if process:
        thaw(record, node.name)
        end([process])
    for top_cgroup in cgroup.tops(record, node.name):
        cgroup.remove(top_cgroup)
    namespace.remove(namespace.path(record, node.name))


def plug_and_power_on(record: Record, topology: Topology, node: Machine) -> None:
    """Connect the network cards of a Node and start it."""
    underlay.plug(record, topology, node)
    power_on(record, node.name)


def init_pid(record: Record, node: str) -> int:
    """Process 1 of the node as the machine numbers it. Raises Unavailable when the node is off."""
    process = record.processes().get(node)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children") if process else None
    try:
        return int(children.read_text().split()[0]) if children else 0
    except (FileNotFoundError, IndexError) as error:
        raise Unavailable(f"{node} is not running") from error


def freeze(record: Record, node: str) -> None:
    """Stop all processes of a Node, as a machine that hangs."""
    file, stop, _ = cgroup.freezer(record, node)
    file.write_text(stop)


def thaw(record: Record, node: str) -> None:
    """Let the processes of a frozen Node run again."""
    file, _, go = cgroup.freezer(record, node)
    if file.exists():
        file.write_text(go)


JOIN = 'for cgroup in $LAB_CGROUPS; do echo $$ > "$cgroup/cgroup.procs"; done; unset LAB_CGROUPS; exec "$@"'


def inside(record: Record, node: str, argv: Sequence[str | Path]) -> list[str]:
    """The command, run in all namespaces and cgroups of a node. Raises Unavailable when the node is off."""
    pid = init_pid(record, node)
    if not pid:
        raise Unavailable(f"{node} is not running")
    groups = " ".join(map(str, cgroup.members(record, node)))
    enter = ["nsenter", "-t", str(pid), "-m", "-u", "-i", "-n", "-p", "-C", "--", *map(str, argv)]
    return ["env", f"LAB_CGROUPS={groups}", "bash", "-c", JOIN, "lab", *enter]


def inside_pod(record: Record, node: str, address: str) -> list[str]:
    """The words that bring a command of the machine into the network of the node's Pod with this address.

    Raises Unavailable if none has it.
    """
    for file in Path(f"/proc/{init_pid(record, node)}/root/run/netns").iterdir():
        command = namespace.inside(file, [])
        with suppress(Unavailable):  # of a Pod that goes
            if f" {address}/" in run([*command, "ip", "-o", "addr"]):
                return command
    raise Unavailable(f"a Pod of {node} with the address {address}")


def execute(record: Record, node: str, *argv: str, stdin: str | None = None, seconds: float = 60) -> str:
    """Run a command inside a node and return what it printed; raises Unavailable when it fails."""
    return run(inside(record, node, argv), record=record, stdin=stdin, seconds=seconds)
