"""Bring a lab up, take it down, and show its state: the order of things and what each step waits for."""

from __future__ import annotations

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.decoding import decode_json
from antrea.errors import Invalid, Unavailable
from lab import (
    antrea,
    artifacts,
    cgroup,
    checkout,
    control_plane,
    dns,
    image_recipe,
    images,
    namespace,
    node,
    reference_cni,
    underlay,
)
from lab.api import Api
from lab.process import end, wait_for
from lab.record import PROGRAM, STATE, Cgroup, Namespace, Process, Record
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from image_build.step import Progress
    from lab.topology import Topology

    Items = Sequence[dict[str, Any]]

SETTINGS, KUBECTL, COMMIT, COMPLETE = "settings.json", "kubectl", "commit", "complete"
PODS = "/api/v1/pods"
CRASHES, CRASHING = 3, "CrashLoopBackOff"
"""Restarts after which a container is no longer waited for."""
BUSY = 8
"""Processes that wait for a core, from which on time alone may be what an `up` lacked."""
NO_CLUSTER_IPS = "Without kube-proxy nothing serves ClusterIPs to nodes"


class Lab:
    """A lab that is up: its record, what it was asked to be, and a way to its API."""

    def __init__(self, record: Record, settings: Settings, kubectl: Path) -> None:
        self.record = record
        self.settings = settings
        self.topology: Topology = settings.topology()
        self.api = Api(record, self.topology, kubectl)


def open_lab(name: str) -> Lab:
    """The lab of that name, also one whose `up` failed halfway; raises Unavailable when there is none."""
    record = Record(name)
    try:
        settings = decode_json(
            (record.directory / SETTINGS).read_bytes(), Settings, str(record.directory / SETTINGS)
        )
        kubectl = Path((record.directory / KUBECTL).read_text())
    except FileNotFoundError as error:
        missing = Unavailable(f"there is no lab {name!r}; `{PROGRAM} up --name {name}` makes one")
        for line in others():
            missing.add_note(line)
        raise missing from error
    return Lab(record, settings, kubectl)


def others() -> list[str]:
    """One line that names the labs that commands can work on; none if there are none."""
    names = ", ".join(sorted(file.parent.name for file in STATE.glob(f"*/{KUBECTL}")))
    return [f"labs that are there (choose one with --name): {names}"] if names else []


def is_up(record: Record) -> bool:
    """Whether its `up` has finished and its nodes run, power cuts of single ones aside."""
    if not (record.directory / COMPLETE).exists():
        return False
    topology, running = open_lab(record.name).topology, record.processes()
    return not topology.nodes or any(machine.name in running for machine in topology.nodes)


def up(record: Record, settings: Settings, progress: Progress) -> Lab:
    """A whole cluster: nodes Ready, all Pods Ready, DNS answers. What an interrupted `up` left is taken down first.

    With no nodes it is the control plane alone, up in seconds, for what needs the API server alone.
    """
    topology = settings.topology()
    if (record.directory / COMPLETE).exists():
        raise Invalid("name", f"the lab {record.name!r} is up; `{PROGRAM} down --name {record.name}` ends it")
    if record.directory.exists():
        progress("an earlier `up` did not finish: removing what it left")
        down(record)
    with record.locked():
        (record.directory / SETTINGS).write_bytes(msgspec.json.encode(settings))
        (record.directory / COMMIT).write_text(checkout.commit())
        cgroup.limit(record, settings.cpu)
        tell = Stopwatch(progress)
        supplies = _supplies(settings, progress)
        tell("programs and images are there")
        (record.directory / KUBECTL).write_text(str(supplies.binaries.kubectl))
        lab = Lab(record, settings, supplies.binaries.kubectl)
        control_plane.make_certificates(record, topology)
        underlay.create(record, topology)
        tell(f"{len(topology.machines)} machines, switches {', '.join(topology.switches)}")
        try:
            _start(lab, supplies, tell)
            if topology.nodes:
                _network(lab, tell)
                if settings.cni != "none":
                    _settle(lab, tell)
        except Unavailable as error:
            for line in advice(record.name, os.getloadavg()[0], os.cpu_count() or 1):
                error.add_note(line)
            raise
        (record.directory / COMPLETE).touch()
    return lab


def advice(lab: str, load: float, cores: int) -> list[str]:
    """Return advice for the user after an `up` that failed."""
    name = "" if lab == "default" else f" --name {lab}"
    lines = [
        f"`{PROGRAM} kubectl{name}` and `{PROGRAM} logs{name}` tell more; `{PROGRAM} down{name}` removes the lab"
    ]
    if load > BUSY * cores:
        lines.append(
            f"the machine is busy, a load of {load:.0f} on {cores} cores: try `up` again when it is not"
        )
    return lines


def prepare(progress: Progress) -> None:
    """Bring what labs and their tests need into the cache: minutes on a machine that has none of it."""
    _supplies(Settings(cni="antrea"), progress)
    artifacts.helm(progress)


def _supplies(settings: Settings, progress: Progress) -> node.Supplies:
    binaries = artifacts.binaries(progress)
    wanted = image_recipe.standard(binaries, progress) if settings.nodes else []
    if settings.nodes and settings.cni == "antrea":
        wanted.append(image_recipe.product(progress))
        wanted += [image_recipe.product(progress, option) for option in antrea.engines(settings)]
    return node.Supplies(binaries, images.prepare(progress, wanted))


class Stopwatch:
    """Progress lines that carry the seconds since the beginning."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._began = progress, time.monotonic()

    def __call__(self, line: str) -> None:
        self._progress(f"{time.monotonic() - self._began:6.1f} s  {line}")


def _start(lab: Lab, supplies: node.Supplies, tell: Progress) -> None:
    """Control plane and nodes side by side; kubelets start when the API server is ready."""
    record, topology = lab.record, lab.topology

    def bring(machine: Any) -> None:
        node.prepare(record, topology, machine, settings=lab.settings, supplies=supplies)
        node.power_on(record, machine.name)

    with ThreadPoolExecutor(len(topology.nodes) + 1) as pool:
        start = partial(control_plane.start, allocate_node_cidrs=lab.settings.allocate_node_cidrs)
        control = pool.submit(start, record, topology, supplies.binaries, lab.api)
        nodes = [pool.submit(bring, machine) for machine in topology.nodes]
        for future in nodes:
            future.result()
        tell("containerd runs on every node")
        control.result()
    for machine in topology.nodes:
        node.release(record, machine.name)
    tell("the API server is ready")


def _network(lab: Lab, tell: Progress) -> None:
    """Cluster DNS and the CNI; and routes, so that the API server reaches Pods that serve webhooks or APIs."""
    lab.api.apply(dns.manifest(lab.topology, cluster_ips=lab.settings.serves_cluster_ips))
    if not lab.settings.allocate_node_cidrs and lab.settings.cni == "antrea":
        antrea.install(lab)
    cidrs = wait_for("the nodes' Pod CIDRs", lambda: pod_cidrs(lab), seconds=180)
    tell("every kubelet has registered its node")
    control = namespace.path(lab.record, lab.topology.control_plane.name)
    namespace.script(lab.record, control, reference_cni.routes(lab.topology, cidrs))
    if lab.settings.cni == "reference":
        reference_cni.configure(lab.record, lab.topology, cidrs)
    elif lab.settings.cni == "antrea" and lab.settings.allocate_node_cidrs:
        antrea.install(lab)


def pod_cidrs(lab: Lab) -> dict[str, list[str]]:
    """Pod CIDRs by node; empty until every node has its own."""
    pod_cidrs = {n["metadata"]["name"]: n["spec"].get("podCIDRs", []) for n in lab.api.items("/api/v1/nodes")}
    return pod_cidrs if len(pod_cidrs) == len(lab.topology.nodes) and all(pod_cidrs.values()) else {}


def _settle(lab: Lab, tell: Progress) -> None:
    _wait(lab, "Ready nodes", lambda _: not not_ready(lab, "/api/v1/nodes"), tell)
    _wait(lab, "Ready Pods", lambda pods: not unready(pods, PODS), tell)
    served = lab.settings.serves_cluster_ips
    server = dns.address(lab.topology) if served else dns.pod_address(lab.api)
    first = lab.topology.nodes[0].name
    _wait(lab, "an answer from DNS", lambda _: dns.answers(lab.record, lab.topology, first, server), tell)
    if not served:
        pods = "" if lab.settings.serves_pods else " and Pods"
        tell(f"{NO_CLUSTER_IPS}{pods}; DNS answers at {server}")


def _wait(lab: Lab, what: str, condition: Callable[[Items], bool], tell: Progress) -> None:
    """Wait until the Pods meet the condition. Raises Unavailable when a container has ended again and again."""

    def done() -> bool:
        pods = lab.api.items(PODS)
        if why := crash(lab, pods):
            raise Unavailable(why)
        return condition(pods)

    try:
        wait_for(what, done, seconds=180, step=0.2)
    except Unavailable as error:
        waiting = not_ready(lab, "/api/v1/nodes") + not_ready(lab, PODS)
        error.add_note(f"not ready: {', '.join(waiting)}")
        raise
    tell(f"{what[0].upper()}{what[1:]}")


def not_ready(lab: Lab, path: str) -> list[str]:
    """Names of the nodes or Pods that are not Ready; one line to that effect when there are none at all."""
    return unready(lab.api.items(path), path)


def unready(items: Items, path: str) -> list[str]:
    """The same of items that were read from there."""

    def ready(item: dict[str, Any]) -> bool:
        conditions = item["status"].get("conditions", [])
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    return [i["metadata"]["name"] for i in items if not ready(i)] if items else [f"nothing at {path}"]


def crash(lab: Lab, pods: Items) -> str:
    """Which container has ended again and again, with its last words; empty while none has."""
    for namespace_, pod, container in crashing(pods):
        last_line = lab.api.kubectl("logs", "-n", namespace_, pod, "-c", container, "--tail=1").strip()
        return f"Pod {pod}: {container} ended {CRASHES} times: {last_line}"
    return ""


def crashing(pods: Iterable[dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """Namespace, Pod and container of those that ended again and again."""
    for pod in pods:
        meta, status = pod["metadata"], pod["status"]
        for status_row in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
            waits = status_row["state"].get("waiting", {}).get("reason") == CRASHING
            if waits and status_row["restartCount"] >= CRASHES:
                yield meta["namespace"], meta["name"], status_row["name"]


def down(record: Record) -> bool:
    """End and remove exactly what the record lists; idempotent, and able to follow an `up` that was killed.

    Whether there was anything to remove.
    """
    if not record.directory.exists():
        return False
    with record.locked():
        things = record.things()
        for thing in things:
            if isinstance(thing, Cgroup):
                cgroup.thaw(Path(thing.path))
        end([t for t in things if isinstance(t, Process)])
        for thing in reversed(things):
            if isinstance(thing, Namespace):
                namespace.remove(Path(thing.path))
            elif isinstance(thing, Cgroup):
                cgroup.remove(Path(thing.path))
        _remove_directory(record)
    return True


def _remove_directory(record: Record) -> None:
    inside = [m for m in namespace.mounts() if m.startswith(f"{record.directory}/")]
    if inside:
        raise Unavailable(f"{', '.join(inside)} is still mounted; unmount it and run `{PROGRAM} down` again")
    shutil.rmtree(record.directory)
    try:
        record.directory.parent.rmdir()
    except OSError:
        return  # another lab's directory is in it


def status(lab: Lab) -> list[str]:
    """One line per machine and daemon."""
    running = lab.record.processes()
    lines = []
    for machine in lab.topology.machines:
        addresses = " ".join(a for n in machine.nics for a in n.addresses)
        power = "" if machine.role != "node" else "on" if machine.name in running else "off"
        lines.append(f"{machine.name:12} {machine.role:14} {power:4} {addresses}")
    daemons = [p for p in running.values() if p.name not in {m.name for m in lab.topology.machines}]
    lines += [f"{p.name:26} pid {p.pid}" for p in daemons]
    return lines


def logs(lab: Lab) -> dict[str, Path]:
    """Log files by the name of what writes them."""
    top = lab.record.directory
    files = {f.stem: f for f in (top / "logs").glob("*.log")}
    for machine in lab.topology.nodes:
        logs = (node.root(lab.record, machine.name) / "var/log").glob("*.log")
        files |= {f"{machine.name}/{f.stem}": f for f in logs}
    return dict(sorted(files.items()))


def enter(lab: Lab, machine: str, command: Sequence[str]) -> list[str]:
    """The command line that runs `command` on a node, or in another machine's network."""
    if machine in (m.name for m in lab.topology.nodes):
        return node.inside(lab.record, machine, command)
    if machine != underlay.UNDERLAY:
        lab.topology.machine(machine)
    return namespace.inside(namespace.path(lab.record, machine), command)
