"""Pod CIDRs that antrea-controller gives Nodes, in a cluster whose kube-controller-manager gives none."""

from __future__ import annotations

import json
import subprocess
from contextlib import contextmanager
from functools import partial
from ipaddress import IPv4Network, ip_network
from typing import TYPE_CHECKING, Any

import pytest
import workstation
from agent_node import pod_namespace
from own_lab import own_lab
from quiet_pod import quiet_pods

from lab import artifacts, control_plane
from lab.process import end, wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

NODE_IPAM: dict[str, Any] = {
    "enableNodeIPAM": True,
    "clusterCIDRs": ["10.32.0.0/22", "fd00:32::/62"],
    "serviceCIDR": "10.32.1.0/24",
    "nodeCIDRMaskSizeIPv4": 24,
    "nodeCIDRMaskSizeIPv6": 64,
}
"""Room for three Nodes, of which two have a machine."""
NODE = {"apiVersion": "v1", "kind": "Node"}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    settings = Settings(nodes=2, family="dual", allocate_node_cidrs=False, controller={"nodeIPAM": NODE_IPAM})
    with own_lab("nodeipam", settings) as found:
        yield found


def cidrs(lab: Lab, name: str) -> list[str]:
    shown = json.loads(lab.api.kubectl("get", "node", name, "-o", "json"))
    return list(shown["spec"].get("podCIDRs", []))


def reported(lab: Lab, name: str, reason: str) -> str:
    """The message of the Event of a Node."""
    words = (
        "get",
        "events",
        "-n",
        "default",
        "--field-selector",
        f"reason={reason},involvedObject.name={name}",
    )
    return lab.api.kubectl(*words, "-o", "jsonpath={.items[*].message}")


def doctor(lab: Lab) -> str:
    """What it finds from a workstation, a line each."""
    done = workstation.run(lab, "doctor", "-o", "json", code=1)
    return "\n".join(row["finding"] for row in json.loads(done.stdout))


def create(lab: Lab, name: str, *pod_cidrs: str) -> None:
    spec = {"podCIDR": pod_cidrs[0], "podCIDRs": pod_cidrs} if pod_cidrs else {}
    # no kubelet: what needs one is kept away
    taint = {"key": "lab", "value": "none", "effect": "NoExecute"}
    lab.api.apply(json.dumps({**NODE, "metadata": {"name": name}, "spec": {**spec, "taints": [taint]}}))


def delete(lab: Lab, *names: str) -> None:
    lab.api.kubectl("delete", "node", *names, "--wait=false", "--ignore-not-found")


def test_nodes_get_a_cidr_of_each_family_and_pods_addresses_of_it(lab: Lab) -> None:
    found = {name: cidrs(lab, name) for name in ("node-1", "node-2")}
    sizes = {name: [ip_network(cidr).prefixlen for cidr in mine] for name, mine in found.items()}
    assert sizes == {"node-1": [24, 64], "node-2": [24, 64]}
    assert not ip_network(found["node-1"][0]).overlaps(ip_network(found["node-2"][0]))
    for mine in found.values():
        assert IPv4Network(mine[0]).subnet_of(IPv4Network("10.32.0.0/22")), found
        assert mine[0] != NODE_IPAM["serviceCIDR"]
    with quiet_pods(lab, {"one": "node-1", "two": "node-2"}) as pods:
        inside = pod_namespace(lab, "node-1", pods["one"])
        ping = [*inside, "ping", "-c", "1", "-W", "10", pods["two"]]
        assert subprocess.run(ping, capture_output=True, check=False).returncode == 0
    # the leader alone wrote them
    manager = json.loads(lab.api.kubectl("get", "node", "node-1", "-o", "json", "--show-managed-fields"))
    writers = [
        row["manager"]
        for row in manager["metadata"]["managedFields"]
        if "f:podCIDR" in row["fieldsV1"].get("f:spec", {})
    ]
    assert writers == ["antrea"]


def test_a_node_without_a_free_cidr_is_reported_and_gets_one_that_is_freed(lab: Lab) -> None:
    try:
        create(lab, "third")
        wait_for("the last CIDR", lambda: len(cidrs(lab, "third")) == 2, seconds=30)
        create(lab, "fourth")
        wait_for(
            "an Event",
            lambda: (
                "all 4 CIDRs of length /24 in 10.32.0.0/22 are in use"
                in reported(lab, "fourth", "CIDRNotAvailable")
            ),
            seconds=30,
        )
        assert "Node fourth status is now: CIDRNotAvailable" in doctor(lab)
        freed = cidrs(lab, "third")
        delete(lab, "third")
        # of IPv6 there is another free one, which comes before one that was freed
        wait_for("the freed CIDR", lambda: cidrs(lab, "fourth")[:1] == freed[:1], seconds=30)
        assert len(cidrs(lab, "fourth")) == 2
    finally:
        delete(lab, "third", "fourth")


@pytest.mark.wide
def test_two_nodes_with_one_cidr_are_reported(lab: Lab) -> None:
    taken = cidrs(lab, "node-1")
    try:
        create(lab, "fifth", *taken)
        said = partial(reported, lab, "fifth", "PodCIDRShared")
        wait_for(
            "an Event",
            lambda: f"Pod CIDR {taken[0]} of Node fifth is also that of node-1" in said(),
            seconds=30,
        )
        assert "another allocator (kubectl" in reported(lab, "fifth", "SecondPodCIDRAllocator")
    finally:
        delete(lab, "fifth")


def restart_controller_manager(lab: Lab, *cluster_cidrs: str) -> None:
    """It gives Nodes Pod CIDRs of these ranges; none if there are none."""
    with lab.record.locked():
        end([lab.record.processes()["kube-controller-manager"]])
        control_plane.start_controller_manager(
            lab.record, lab.topology, artifacts.binaries(print), cluster_cidrs
        )


@contextmanager
def without_right(lab: Lab) -> Iterator[None]:
    """antrea-controller may not write Nodes, so that kube-controller-manager is the first to give a Node its CIDRs."""
    role = ("clusterrole", "antrea-controller")
    rules = json.loads(lab.api.kubectl("get", *role, "-o", "json"))["rules"]
    others = [rule for rule in rules if (rule.get("resources"), rule["verbs"]) != (["nodes"], ["patch"])]
    assert len(others) == len(rules) - 1
    lab.api.kubectl("patch", *role, "--type=merge", "-p", json.dumps({"rules": others}))
    try:
        yield
    finally:
        lab.api.kubectl("patch", *role, "--type=merge", "-p", json.dumps({"rules": rules}))


@pytest.mark.wide
def test_a_second_allocator_is_named(lab: Lab) -> None:
    restart_controller_manager(lab, *NODE_IPAM["clusterCIDRs"])
    try:
        with without_right(lab):
            create(lab, "rival")
            wait_for("the CIDRs of the other", lambda: cidrs(lab, "rival"), seconds=30)
        wait_for("an Event", lambda: reported(lab, "rival", "SecondPodCIDRAllocator"), seconds=30)
        text = "of another allocator (kube-controller-manager)"
        assert text in reported(lab, "rival", "SecondPodCIDRAllocator")
        assert text in doctor(lab)
    finally:
        delete(lab, "rival")
        restart_controller_manager(lab)
