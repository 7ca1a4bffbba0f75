"""Room on disks, forwarding, and the size of packets between Nodes, as the doctor of a Node finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from antrea.antctl.doctor.checks import findings
from antrea.antctl.doctor.gather import Host, path_sizes
from antrea.antctl.doctor.state import CniFile, FileSystem, NodeState, PathSize, Peer

if TYPE_CHECKING:
    from pathlib import Path

EDIT = "kubectl -n kube-system edit configmap antrea-config"
WELL = NodeState(
    pod="kube-system/antrea-agent-x", cni_files=(CniFile("10-antrea.conflist"),), transport="eth0"
)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"path_sizes": (PathSize("n2", "10.0.0.2", 1500, 1500),)}, []),
        (
            {"path_sizes": (PathSize("n2", "10.0.0.2", 1396, 1500),)},
            [("path-mtu", "warning", f"{EDIT}  # set defaultMTU: 1346 in antrea-agent.conf, or raise the MTU on the way")],
        ),
        ({"file_systems": (FileSystem("/var/log/antrea", 1 << 20, -1), FileSystem("/var/run/antrea", 1 << 30, 1))}, []),
        (
            {"file_systems": (FileSystem("/var/log/antrea", 4096, 9), FileSystem("/var/run/antrea", 1 << 30, 0))},
            [
                ("disk-space", "error", "du -xah /var/log/antrea | sort -h | tail -n 20  # what to remove or move"),
                ("disk-space", "error", "du -xah /var/run/antrea | sort -h | tail -n 20  # what to remove or move"),
            ],
        ),
        (
            {"forwarding": {"net.ipv4.ip_forward": False, "net.ipv6.conf.all.forwarding": True}},
            [("forwarding", "error", "sysctl -w net.ipv4.ip_forward=1  # and in the file of /etc/sysctl.d that sets it to 0")],
        ),
    ],
)  # fmt: skip
def test_a_fault_is_said_with_its_repair(
    changes: dict[str, Any], expected: list[tuple[str, str, str]]
) -> None:
    rows = findings(WELL._replace(**changes))
    assert [(row.check, row.severity, row.repair) for row in rows] == expected


def test_room_and_forwarding_of_a_node_are_seen(tmp_path: Path) -> None:
    folder = tmp_path / "1/root/var/log/antrea"
    folder.mkdir(parents=True)
    for name, value in (("ipv4/ip_forward", "1\n"), ("ipv6/conf/all/forwarding", "0\n")):
        path = tmp_path / "sys/net" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value)
    host = Host(tmp_path)

    (place,) = host.file_systems()
    assert (place.path, place.free_bytes > 0) == ("/var/log/antrea", True)
    assert host.forwarding(["10.0.0.0/24"]) == {"net.ipv4.ip_forward": True}
    assert host.forwarding(["10.0.0.0/24", "fd00::/64"]) == {
        "net.ipv4.ip_forward": True,
        "net.ipv6.conf.all.forwarding": False,
    }


def test_ways_to_nodes_that_are_not_reached_are_not_measured() -> None:
    assert path_sizes((Peer("n2", "192.0.2.2", "no answer"),), 1500, 1500) == ()
    assert path_sizes((), 1500, 1500) == ()
    assert path_sizes((Peer("n2", "192.0.2.2"),), 0, 1500) == ()
