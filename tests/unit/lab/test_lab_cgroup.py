"""Which cgroup hierarchies a machine has, read from the text of /proc/mounts, and how a node mounts them."""

from __future__ import annotations

from pathlib import Path

from lab.cgroup import Hierarchy, hierarchies, mount_lines

V1 = """proc /proc proc rw,relatime 0 0
tmpfs /sys/fs/cgroup tmpfs rw,relatime,mode=755 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,nodev,noexec,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,relatime,xattr,release_agent=/lib/x,name=systemd 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0
"""
V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev,noexec,relatime,nsdelegate 0 0\n"


def test_version_1_has_a_hierarchy_per_controller_mounted_again_with_its_own_options() -> None:
    found = hierarchies(V1)

    assert found == [
        Hierarchy(Path("/sys/fs/cgroup/cpu,cpuacct"), 1, "cpu,cpuacct"),
        Hierarchy(Path("/sys/fs/cgroup/systemd"), 1, "none,name=systemd"),
    ]
    assert mount_lines(found) == [
        "mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup",
        "mkdir -p /sys/fs/cgroup/cpu,cpuacct",
        "mount -t cgroup -o cpu,cpuacct cgroup /sys/fs/cgroup/cpu,cpuacct",
        "ln -s cpu,cpuacct /sys/fs/cgroup/cpu",
        "ln -s cpu,cpuacct /sys/fs/cgroup/cpuacct",
        "mkdir -p /sys/fs/cgroup/systemd",
        "mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd",
    ]


def test_version_2_is_one_hierarchy_whose_root_a_node_leaves_empty() -> None:
    assert hierarchies(V2) == [Hierarchy(Path("/sys/fs/cgroup"), 2, "")]
    assert mount_lines(hierarchies(V2))[:2] == [
        "mount -t cgroup2 cgroup2 /sys/fs/cgroup",
        "mkdir /sys/fs/cgroup/init.scope",
    ]
