"""CNI calls when something breaks: nothing is lost, nothing is left, and the runtime hears what to do."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from cni_node import NOTHING, CniNode, cni_node, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Namespaces


def steps(core: str, *others: str) -> list[Any]:
    """Return steps of a CNI call for a parameter; tests of others than `core` are wide."""
    return [core, *(pytest.param(step, marks=pytest.mark.wide) for step in others)]


# Before a step is after the one before.
STEPS = steps("after create_pod_veth", "before allocate", "after allocate", "after add", "after settle")
UNDO_STEPS = steps("after drop", "before drop", "before release", "after release")


@pytest.fixture
def node(netns: Namespaces) -> Iterator[CniNode]:
    with cni_node(netns) as node:
        yield node


@pytest.mark.parametrize("step", STEPS)
def test_an_agent_killed_at_any_step_of_add_leaves_what_del_and_a_new_add_repair(
    node: CniNode, step: str
) -> None:
    node.start_agent(die=step)
    pod, other = node.pod(), node.pod("other")
    answer = node.call("ADD", pod)
    assert answer.code == 11
    assert answer.json["msg"] == "antrea-agent went away before it answered, try again later"
    node.start_agent_anew(pods=(pod.key,))
    result = node.add(pod)
    assert node.check(pod, result).stdout == b""
    assert [len(left) for left in node.left()] == [1, 1, 2]
    assert node.add(other)["ips"] != result["ips"]
    for gone in (pod, other):
        assert node.call("DEL", gone).status == 0
    assert node.left() == NOTHING


@pytest.mark.parametrize("step", STEPS)
def test_an_agent_killed_at_any_step_of_add_leaves_nothing_once_the_runtime_gave_up(
    node: CniNode, step: str
) -> None:
    node.start_agent(die=step)
    pod = node.pod()
    assert node.call("ADD", pod).code == 11
    assert node.call("DEL", pod, ANTREA_CNI_TIMEOUT_MS="200").code == 11
    node.vanish(pod)
    node.start_agent_anew(pods=(pod.key,))
    assert node.left() == NOTHING


@pytest.mark.parametrize("step", UNDO_STEPS)
def test_an_agent_killed_at_any_step_of_del_finishes_it_when_asked_again(node: CniNode, step: str) -> None:
    node.start_agent()
    pod = node.pod()
    node.add(pod)
    node.start_agent_anew(die=step)
    assert node.call("DEL", pod).code == 11
    node.start_agent_anew()
    assert node.call("DEL", pod).status == 0
    assert node.left() == NOTHING


def test_what_vanished_while_the_agent_was_down_is_removed_and_the_living_stay(node: CniNode) -> None:
    node.start_agent()
    alive, deleted, crashed = node.pod("alive"), node.pod("deleted"), node.pod("crashed")
    result = node.add(alive)
    stood = node.left()
    node.add(deleted)
    node.add(crashed)
    node.stop_agent()
    node.vanish(crashed)
    node.start_agent(pods=(alive.key, crashed.key))
    assert node.left() == stood
    assert node.check(alive, result).stdout == b""


def test_nothing_is_removed_before_the_list_of_pods_is_complete(node: CniNode) -> None:
    node.start_agent()
    pod = node.pod()
    result = node.add(pod)
    stood = node.left()
    node.start_agent_anew(pods=None)
    assert node.left() == stood
    assert node.check(pod, result).stdout == b""


def test_what_vanished_is_removed_by_a_list_that_comes_late_too(node: CniNode) -> None:
    node.start_agent()
    crashed = node.pod("crashed")
    node.add(crashed)
    node.stop_agent()
    node.vanish(crashed)
    left = node.left()
    node.start_agent(pods=None)
    assert node.left() == left
    pod = node.pod("later")
    result = node.add(pod)
    node.reconcile()
    assert [len(left) for left in node.left()] == [1, 1, 2]
    assert node.check(pod, result).stdout == b""


def test_a_list_older_than_the_last_add_removes_nothing_that_was_added(node: CniNode) -> None:
    node.start_agent()
    before = node.pod("before")
    node.add(before)
    node.start_agent_anew()
    pod, deleted = node.pod("pod"), node.pod("deleted")
    result = node.add(pod)
    node.add(deleted)
    assert node.call("DEL", deleted).status == 0
    node.reconcile()
    assert [len(left) for left in node.left()] == [1, 1, 2]
    assert node.check(pod, result).stdout == b""


def test_a_second_agent_of_the_node_ends_and_the_first_goes_on(node: CniNode) -> None:
    node.start_agent()
    second = node.start_agent()
    assert second.wait(timeout=60) == 1
    assert "another antrea-agent of this Node serves it" in node.log(1)
    node.add(node.pod())


def test_add_without_ovsdb_says_try_again_and_leaves_neither_interface_nor_address(node: CniNode) -> None:
    node.start_agent()
    pod = node.pod()
    node.switch.kill("ovsdb-server")
    answer = node.call("ADD", pod)
    assert (answer.code, answer.json["cniVersion"]) == (11, "1.0.0")
    node.switch.start_database()
    until(lambda: node.call("ADD", pod).status == 0, "ADD that succeeds")
    assert [len(left) for left in node.left()] == [1, 1, 2]


def test_add_whose_flows_are_refused_is_rolled_back(node: CniNode) -> None:
    node.start_agent(refuse="priority=1 is taken")
    answer = node.call("ADD", node.pod())
    assert (answer.code, answer.json["msg"]) == (102, "priority=1 is taken")
    assert node.left() == NOTHING


def test_add_of_a_pod_whose_policies_nobody_knows_says_try_again_and_leaves_nothing(node: CniNode) -> None:
    node.start_agent(silent=1)
    answer = node.call("ADD", node.pod("a"))
    why = "Not available now: policies for Pod default/a from antrea-controller not received within 2 s"
    assert (answer.code, answer.json["msg"]) == (11, why)
    assert node.left() == NOTHING


def test_a_pod_that_is_added_again_at_once_is_heard(node: CniNode) -> None:
    """A switch that looks once for both tries takes the second device for the first, and reads from that for ever."""
    node.start_agent(silent=1, stops=node.switch.pid("ovs-vswitchd"))
    pod, other = node.pod("a"), node.pod("b")
    assert node.call("ADD", pod).code == 11
    node.add(pod)
    address = node.add(other)["ips"][0]["address"].split("/")[0]
    node.spaces.sh(f"ping -c 1 -W 10 {address}", pod.space)


def test_add_into_a_namespace_that_has_the_interface_already_is_rolled_back(node: CniNode) -> None:
    node.start_agent()
    pod = node.pod()
    node.spaces.sh("ip link add eth0 type veth peer name other", pod.space)
    answer = node.call("ADD", pod)
    assert answer.code == 102
    assert "File exists" in answer.json["msg"]
    assert node.left() == NOTHING


def test_an_exhausted_pod_cidr_is_said_and_one_released_address_is_enough(node: CniNode) -> None:
    node.start_agent(pod_cidrs=("10.244.1.0/30",))
    first, second = node.pod("a"), node.pod("b")
    node.add(first)
    stood = node.left()
    answer = node.call("ADD", second)
    assert answer.json == {
        "cniVersion": "1.0.0",
        "code": 101,
        "msg": "no free IP address in podCIDR 10.244.1.0/30: all 1 are reserved",
    }
    assert node.left() == stood
    node.call("DEL", first)
    node.add(second)


def test_a_node_without_pod_cidr_says_so_and_still_deletes(node: CniNode) -> None:
    node.start_agent()
    pod = node.pod()
    node.add(pod)
    node.start_agent_anew(pod_cidrs=())
    answer = node.call("ADD", node.pod("b"))
    assert (answer.code, answer.json["msg"]) == (
        11,
        "This Node has no podCIDR yet, so its Pods cannot get addresses",
    )
    assert node.call("DEL", pod).status == 0
    assert node.left() == NOTHING


def test_a_pod_cidr_that_changed_serves_new_pods_and_the_old_ones_can_go(node: CniNode) -> None:
    node.start_agent()
    old, new = node.pod("old"), node.pod("new")
    node.add(old)
    node.start_agent_anew(pod_cidrs=("10.244.9.0/24",))
    assert [ip["address"] for ip in node.add(new)["ips"]] == ["10.244.9.2/24"]
    for pod in (old, new):
        assert node.call("DEL", pod).status == 0
    assert node.left() == NOTHING


def test_a_pod_cidr_that_cannot_serve_is_an_ipam_failure(node: CniNode) -> None:
    node.start_agent(pod_cidrs=("10.244.1.0/32",))
    answer = node.call("ADD", node.pod())
    assert answer.code == 101
    assert "10.244.1.0/32 is too small" in answer.json["msg"]


def test_a_full_disk_refuses_add_but_not_del(node: CniNode) -> None:
    node.ipam.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", node.ipam], check=True)
    try:
        node.start_agent()
        pod = node.pod("a")
        node.add(pod)
        stood = node.left()
        with pytest.raises(OSError, match="No space left"):
            (node.ipam / "filler").write_bytes(bytes(64 << 10))
        answer = node.call("ADD", node.pod("b"))
        assert answer.code == 101
        assert "No space left on device" in answer.json["msg"]
        assert node.left() == stood
        assert node.call("DEL", pod).status == 0
        assert node.left() == NOTHING
    finally:
        subprocess.run(["umount", node.ipam], check=True)


def test_add_waits_for_the_network_a_bounded_time(node: CniNode) -> None:
    node.start_agent(ready=False)
    pod = node.pod()
    answer = node.call("ADD", pod)
    assert answer.json == {
        "cniVersion": "1.0.0",
        "code": 11,
        "msg": "The network of this Node is not ready after 1 s",
    }
    assert node.call("DEL", pod).status == 0


def test_a_namespace_that_is_gone_is_an_unknown_container(node: CniNode) -> None:
    node.start_agent()
    assert node.call("ADD", node.pod(), CNI_NETNS="/var/run/netns/gone").code == 3
    assert node.left() == NOTHING
