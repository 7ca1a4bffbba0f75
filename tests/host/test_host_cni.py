"""CNI calls through the real plugin, a real agent process, the real kernel and a real switch."""

from __future__ import annotations

import copy
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from cni_node import NOTHING, CniNode, cni_node, until

from antrea.apis.cni import VERSIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Namespaces


@pytest.fixture
def node(netns: Namespaces) -> Iterator[CniNode]:
    with cni_node(netns) as node:
        yield node


def test_add_answers_in_the_shape_of_the_version_asked_for(node: CniNode) -> None:
    node.start_agent()
    for last, version in enumerate(VERSIONS, start=2):
        pod = node.pod(f"web-{last}")
        result = node.add(pod, version)
        mac = node.spaces.sh("cat /sys/class/net/eth0/address", pod.space).strip()
        (host,) = (name for name in node.left()[0] if name.startswith(pod.name))
        four, six = ({"version": "4"}, {"version": "6"}) if version.startswith("0.") else ({}, {})
        ipv4 = {"address": f"10.244.1.{last}/24", "gateway": "10.244.1.1", "interface": 1, **four}
        ipv6 = {"address": f"fd00:10:244:1::{last}/64", "gateway": "fd00:10:244:1::1", "interface": 1, **six}
        assert result == {
            "cniVersion": version,
            "interfaces": [{"name": host}, {"name": "eth0", "mac": mac, "sandbox": pod.netns}],
            "ips": [ipv4, ipv6],
            "routes": [{"dst": "0.0.0.0/0", "gw": "10.244.1.1"}, {"dst": "::/0", "gw": "fd00:10:244:1::1"}],
            "dns": {},
        }


def test_pods_reach_each_other_after_add_and_nothing_is_left_after_del(node: CniNode) -> None:
    node.start_agent()
    a, b = node.pod("a"), node.pod("b")
    node.add(a)
    address = node.add(b)["ips"][0]["address"].split("/")[0]
    node.spaces.sh(f"ping -c 1 -W 10 {address}", a.space)
    assert node.call("DEL", a).stdout == b""
    assert node.call("DEL", b).stdout == b""
    assert node.left() == NOTHING


def test_a_repeated_add_gets_the_same_answer_and_makes_nothing(node: CniNode) -> None:
    node.start_agent()
    pod = node.pod()
    first, stood = node.add(pod), node.left()
    assert node.add(pod) == first
    node.start_agent_anew()
    assert node.add(pod) == first
    assert node.left() == stood


def test_a_repeated_add_repairs_what_was_broken_and_keeps_the_address(node: CniNode) -> None:
    node.start_agent()
    pod, other = node.pod("web"), node.pod("other")
    node.add(other)
    first = node.add(pod)
    node.spaces.sh("ip addr flush dev eth0", pod.space)
    second = node.add(pod)
    assert second["ips"] == first["ips"]
    assert node.check(pod, second).code == 0
    assert [len(left) for left in node.left()] == [2, 2, 4]
    node.spaces.sh("ping -c 1 -W 10 10.244.1.2", pod.space)


def test_del_of_the_unknown_and_a_repeated_del_succeed(node: CniNode) -> None:
    node.start_agent()
    pod, other = node.pod("a"), node.pod("b")
    node.add(other)
    stood = node.left()
    node.add(pod)
    answers = [node.call("DEL", pod, CNI_NETNS=netns) for netns in (pod.netns, "", "/gone", "")]
    assert [(answer.status, answer.stdout) for answer in answers] == [(0, b"")] * 4
    assert node.call("DEL", node.pod("never")).status == 0
    assert node.left() == stood


def test_del_without_the_name_of_the_pod_finds_its_interface(node: CniNode) -> None:
    node.start_agent()
    pod = node.pod()
    node.add(pod)
    assert node.call("DEL", pod, CNI_NETNS="", CNI_ARGS="").status == 0
    assert node.left() == NOTHING


def test_ten_adds_at_once_get_different_addresses(node: CniNode) -> None:
    node.start_agent()
    pods = [node.pod(f"web-{number}") for number in range(10)]
    with ThreadPoolExecutor(10) as pool:
        results = list(pool.map(node.add, pods))
        assert len({result["ips"][0]["address"] for result in results}) == 10
        assert [len(left) for left in node.left()] == [10, 10, 20]
        list(pool.map(lambda pod: node.call("DEL", pod), pods))
    assert node.left() == NOTHING


def test_the_mtu_of_the_configuration_wins_over_that_of_the_node(node: CniNode) -> None:
    node.start_agent()
    pod, other = node.pod("a"), node.pod("b")
    node.add(pod)
    assert node.call("ADD", other, node.config(mtu=1300)).status == 0
    mtus = [node.spaces.sh("cat /sys/class/net/eth0/mtu", p.space).strip() for p in (pod, other)]
    assert mtus == ["1450", "1300"]


def test_neighbours_hear_of_a_new_pod(node: CniNode) -> None:
    """Each address is said three times. The first frame may meet what the datapath still drops from before the Pod's flows."""
    node.start_agent()
    listener, pod = node.pod("a"), node.pod("b")
    node.add(listener)
    with node.listen() as said, node.listen(listener) as heard:
        ipv4, ipv6 = (ip["address"].split("/")[0] for ip in node.add(pod)["ips"])
        until(lambda: heard().count(f"Request who-has {ipv4}") >= 2, "gratuitous ARP requests")
        advertised = f"{ipv6} > ff02::1: ICMP6, neighbor advertisement"
        until(lambda: heard().count(advertised) >= 2, "neighbour advertisements")
        until(lambda: said().count(f"Request who-has {ipv4}") == 3, "three gratuitous ARP requests")
        until(lambda: said().count(advertised) == 3, "three neighbour advertisements")


BREAKS = {
    "ip addr del 10.244.1.2/24 dev eth0": "eth0 in .* does not have address 10.244.1.2/24",
    "ip route del default": "eth0 in .* has no default route via 10.244.1.1",
    "ip link set eth0 address 02:00:00:00:00:01": "eth0 in .* has MAC 02:00:00:00:00:01",
    "ip link set eth0 down": "eth0 in .* is down",
}
"""What is done in the Pod -> what CHECK says of it"""


def test_check_names_what_is_broken_in_the_pod(node: CniNode) -> None:
    node.start_agent()
    pod = node.pod()
    for command, why in BREAKS.items():
        result = node.add(pod)
        assert (node.check(pod, result).status, node.check(pod, result).stdout) == (0, b"")
        node.spaces.sh(command, pod.space)
        answer = node.check(pod, result)
        assert answer.code == 103
        assert re.search(why, answer.json["msg"])


def test_check_names_what_is_broken_on_the_node(node: CniNode) -> None:
    node.start_agent()
    pod = node.pod()
    result = node.add(pod)
    host = result["interfaces"][0]["name"]
    other = copy.deepcopy(result)
    other["interfaces"][1]["mac"] = "02:00:00:00:00:01"
    assert node.check(pod, other).json["msg"] == f"OVS port {host} does not match prevResult"
    assert node.check(pod, {**result, "interfaces": []}).code == 7
    assert node.check(node.pod(), result).code == 7
    assert node.call("CHECK", pod, node.config()).json["msg"] == "CHECK needs prevResult, the result of ADD"
    node.spaces.sh(f"ip link set {host} down")
    assert node.check(pod, result).json["msg"] == f"interface {host} is down on the Node"
    (node.ipam / "10.244.1.2").unlink()
    answer = node.check(pod, result)
    assert answer.code == 101
    assert answer.json["msg"] == (
        "Reserved are fd00:10:244:1::2, prevResult has 10.244.1.2, fd00:10:244:1::2"
    )
    node.switch.vsctl("del-port", host)
    assert node.check(pod, result).code == 3


def test_gc_removes_all_but_the_valid_attachments(node: CniNode) -> None:
    node.start_agent()
    kept, lost = node.pod("kept"), node.pod("lost")
    node.add(kept)
    stood = node.left()
    node.add(lost)
    valid = [{"containerID": kept.container, "ifname": "eth0"}]
    config = node.config("1.1.0", **{"cni.dev/valid-attachments": valid})
    assert (node.call("GC", None, config).status, node.left()) == (0, stood)
    answer = node.call("GC", None, node.config("1.1.0"))
    assert (answer.code, node.left()) == (7, stood)
    config = node.config("1.1.0", **{"cni.dev/valid-attachments": []})
    assert (node.call("GC", None, config).status, node.left()) == (0, NOTHING)


def test_status_tells_whether_pods_can_be_added(node: CniNode) -> None:
    agent = node.start_agent()
    config = node.config("1.1.0")
    assert (node.call("STATUS", None, config).status, node.call("STATUS", None, config).stdout) == (0, b"")
    node.switch.kill("ovsdb-server")
    assert node.call("STATUS", None, config).code == 51
    node.switch.start_database()
    agent.kill()
    agent.wait()
    assert node.call("STATUS", None, config).code == 50
    node.start_agent(ready=False)
    assert node.call("STATUS", None, config).code == 50
