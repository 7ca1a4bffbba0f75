"""CNI calls through the real plugin, a real agent process, the real kernel and a real switch."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cni_node import ROOT, CniNode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Namespaces

NOTHING: tuple[set[str], set[str], set[str]] = (set(), set(), set())


@pytest.fixture(scope="session")
def plugin() -> Path:
    """With the address and undefined behaviour sanitizers, which end it with a message on stderr."""
    subprocess.run(["make", "-s", "-C", ROOT / "cni", "antrea-cni-asan"], check=True)
    return ROOT / "cni" / "antrea-cni-asan"


@pytest.fixture
def node(netns: Namespaces, tmp_path: Path, plugin: Path) -> Iterator[CniNode]:
    node = CniNode(netns, tmp_path, plugin)
    try:
        node.start()
        yield node
    finally:
        node.stop()


@pytest.mark.parametrize("version", ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"])
def test_add_answers_in_the_shape_of_the_version_asked_for(node: CniNode, version: str) -> None:
    node.start_agent()
    pod = node.pod()
    result = node.add(pod, version)
    mac = node.spaces.sh("cat /sys/class/net/eth0/address", Path(pod.netns).name).strip()
    host = node.left()[0].pop()
    old = version.startswith("0.")
    assert result == {
        "cniVersion": version,
        "interfaces": [{"name": host}, {"name": "eth0", "mac": mac, "sandbox": pod.netns}],
        "ips": [
            {
                "address": "10.244.1.2/24",
                "gateway": "10.244.1.1",
                "interface": 1,
                **({"version": "4"} if old else {}),
            },
            {
                "address": "fd00:10:244:1::2/64",
                "gateway": "fd00:10:244:1::1",
                "interface": 1,
                **({"version": "6"} if old else {}),
            },
        ],
        "routes": [
            {"dst": "0.0.0.0/0", "gw": "10.244.1.1"},
            {"dst": "::/0", "gw": "fd00:10:244:1::1"},
        ],
        "dns": {},
    }


def test_pods_reach_each_other_after_add_and_nothing_is_left_after_del(node: CniNode) -> None:
    node.start_agent()
    a, b = node.pod("a"), node.pod("b")
    node.add(a)
    address = node.add(b)["ips"][0]["address"].split("/")[0]
    node.spaces.sh(f"ping -c 1 -W 2 {address}", Path(a.netns).name)
    assert node.call("DEL", a).stdout == b""
    assert node.call("DEL", b).stdout == b""
    assert node.left() == NOTHING
