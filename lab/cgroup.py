"""The cgroups of a node: its own subtree in every hierarchy of the machine, which the node then sees as the root.

Version 1 has one hierarchy per controller, version 2 ("unified") a single one. On version 2 a cgroup that hands
controllers to its children may hold no process itself, so a node's daemons live in its child `init.scope`.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec

from lab.process import wait_for
from lab.record import Cgroup, Record

ROOT = Path("/sys/fs/cgroup")
LEAF = "init.scope"
CPU_PERIOD = 100_000
"""Microseconds after which a group that has used its share of processor time may run again."""
_GENERIC_OPTIONS = {
    "rw",
    "ro",
    "relatime",
    "nosuid",
    "nodev",
    "noexec",
    "xattr",
    "clone_children",
    "seclabel",
}


class Hierarchy(msgspec.Struct, frozen=True):
    """A mounted hierarchy; `options` are those a second mount of it needs ("cpu,cpuacct", "none,name=systemd")."""

    mount: Path
    version: int
    options: str


def hierarchies(mounts: str) -> list[Hierarchy]:
    """The hierarchies in the text of /proc/mounts: the unified one alone, or else those of version 1."""
    hierarchies = []
    for line in mounts.splitlines():
        _, mount, kind, options, *_ = line.split()
        if kind == "cgroup2" and Path(mount) == ROOT:
            return [Hierarchy(ROOT, 2, "")]
        if kind == "cgroup" and mount.startswith(f"{ROOT}/"):
            controllers = [
                o
                for o in options.split(",")
                if o not in _GENERIC_OPTIONS and not o.startswith("release_agent")
            ]
            named = [f"none,{o}" if o.startswith("name=") else o for o in controllers]
            hierarchies.append(Hierarchy(Path(mount), 1, ",".join(named)))
    return hierarchies


def mounted() -> list[Hierarchy]:
    """Return the cgroup hierarchies that this machine has mounted."""
    return hierarchies(Path("/proc/mounts").read_text())


def top_name(record: Record) -> str:
    """The lab's own cgroup, below which its nodes are."""
    return f"antrea-lab-{record.name}"


def _quota(record: Record) -> Path:
    return record.directory / "cpu-percent"


def limit(record: Record, percent: int) -> None:
    """Give each group that is made from now on this part of one processor; 0: no limit."""
    _quota(record).write_text(str(percent))


def is_limited(record: Record) -> bool:
    """Return whether the lab was started with a limit of processor time for each Node."""
    return _percent(record) > 0


def _percent(record: Record) -> int:
    return int(_quota(record).read_text()) if _quota(record).exists() else 0


def _top(record: Record, hierarchy: Hierarchy) -> Path:
    return hierarchy.mount / top_name(record)


def create(record: Record, node: str) -> list[Path]:
    """Make the node's cgroups; answers those that its init joins before it unshares its cgroup namespace."""
    joined, percent = [], _percent(record)
    for hierarchy in mounted():
        top = _top(record, hierarchy)
        for directory in (top, top / node):
            if not directory.exists():
                record.note(Cgroup(str(directory)))
                directory.mkdir(exist_ok=True)  # nodes start side by side, and share the one above theirs
            if hierarchy.version == 1:
                _inherit_cpuset(directory)
        if hierarchy.version == 2:
            _delegate(hierarchy.mount)
            _delegate(top)
        if percent:
            _limit(hierarchy, top / node, percent)
        joined.append(top / node)
    return joined


def _limit(hierarchy: Hierarchy, directory: Path, percent: int) -> None:
    quota = percent * CPU_PERIOD // 100
    if hierarchy.version == 2:
        (directory / "cpu.max").write_text(f"{quota} {CPU_PERIOD}")
    elif "cpu" in hierarchy.options.split(","):
        (directory / "cpu.cfs_period_us").write_text(str(CPU_PERIOD))
        (directory / "cpu.cfs_quota_us").write_text(str(quota))


def settle(record: Record, node: str, parent: int) -> None:
    """Version 2: empty the node's own cgroup and hand its controllers to its children, once its init runs.

    The init has moved itself; `parent` is the process that waits for it outside the node's pid namespace.
    """
    for hierarchy in mounted():
        if hierarchy.version == 2:
            top = _top(record, hierarchy) / node
            (top / LEAF / "cgroup.procs").write_text(str(parent))
            _delegate(top)


def tops(record: Record, node: str) -> list[Path]:
    """The node's subtrees, one per hierarchy."""
    return [_top(record, h) / node for h in mounted()]


def members(record: Record, node: str) -> list[Path]:
    """The cgroups that a further process of a running node joins."""
    return [_top(record, h) / node / (LEAF if h.version == 2 else "") for h in mounted()]


def thaw(directory: Path) -> None:
    """Thaw frozen processes of version 1, since SIGKILL does not reach them; version 2 does not need it."""
    state = directory / "freezer.state"
    if state.exists():
        state.write_text("THAWED")


def freezer(record: Record, node: str) -> tuple[Path, str, str]:
    """Return the file that stops a node's processes, the text that stops them, and the text that resumes them."""
    for hierarchy in mounted():
        directory = _top(record, hierarchy) / node
        if hierarchy.version == 2:
            return directory / "cgroup.freeze", "1", "0"
        if "freezer" in hierarchy.options.split(","):
            return directory / "freezer.state", "FROZEN", "THAWED"
    raise FileNotFoundError("the machine has no freezer cgroup")


def _inherit_cpuset(directory: Path) -> None:
    """An empty cpuset takes no process (cgroup-v1/cpusets)."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        if (directory / name).exists():
            (directory / name).write_text((directory.parent / name).read_text())


def _delegate(directory: Path) -> None:
    controllers = (directory / "cgroup.controllers").read_text().split()
    (directory / "cgroup.subtree_control").write_text(" ".join(f"+{c}" for c in controllers))


def remove(directory: Path) -> None:
    """Remove a subtree whose processes have ended; the kernel may take a moment to notice that they have."""

    def is_removed() -> bool:
        try:
            for path, _, _ in os.walk(directory, topdown=False):
                Path(path).rmdir()
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.ENOTEMPTY, errno.ENOENT):
                raise
        return not directory.exists()

    if directory.exists():
        wait_for(f"removal of {directory}", is_removed, seconds=60, step=0.05)


def mount_lines(hierarchies: list[Hierarchy]) -> list[str]:
    """Shell lines that give a node, inside its cgroup namespace, its own view of the hierarchies."""
    if hierarchies and hierarchies[0].version == 2:
        return [
            f"mount -t cgroup2 cgroup2 {ROOT}",
            f"mkdir {ROOT}/{LEAF}",
            f"while read -r pid; do echo $pid > {ROOT}/{LEAF}/cgroup.procs; done < {ROOT}/cgroup.procs",
        ]
    lines = [f"mount -t tmpfs -o mode=755 tmpfs {ROOT}"]
    for hierarchy in hierarchies:
        lines.append(f"mkdir -p {hierarchy.mount}")
        lines.append(f"mount -t cgroup -o {hierarchy.options} cgroup {hierarchy.mount}")
        names = hierarchy.mount.name.split(",")
        if len(names) > 1:
            lines.extend(f"ln -s {hierarchy.mount.name} {ROOT}/{name}" for name in names)
    return lines
