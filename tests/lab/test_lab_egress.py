"""Egress in a real cluster: whose address a host outside sees of each Pod, and what the Egress says of itself."""

from __future__ import annotations

import contextlib
import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from admission_object import crd, create
from outside_host import source_of
from quiet_pod import quiet_pods

from antrea.errors import Unavailable
from lab import node
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

IP, POOLED = "172.30.0.200", "172.31.0.200"
PODS = {"near": "node-2", "far": "node-1", "other": "node-1"}
NODES = {"node-1": "172.30.0.11", "node-2": "172.30.0.12"}


@pytest.fixture
def pods(lab: Lab) -> Iterator[None]:
    """Two Pods for the Egress, one on the Node that has its address, and one that is none of its business."""
    with quiet_pods(lab, PODS):
        lab.api.kubectl("label", "pod", "near", "far", "egress=web")
        yield
        lab.api.kubectl("delete", "egress", "web", "shop", "--ignore-not-found")
        lab.api.kubectl("delete", "externalippool", "shop", "--ignore-not-found")
        node.execute(lab.record, "node-2", "sh", "-c", f"ip addr del {IP}/32 dev eth0 || true")


def status(lab: Lab) -> Any:
    return json.loads(lab.api.kubectl("get", "egress", "web", "-o", "json")).get("status")


def counts(lab: Lab) -> list[int]:
    """Packets and bytes; empty: there is no entry."""
    row = lab.api.kubectl("get", "egressstats", "web", "--no-headers", "--ignore-not-found").split()
    return [int(cell) for cell in row[1:3]]


def source(lab: Lab, pod: str) -> str:
    """The address that the host outside sees; empty while the Pod does not get there."""
    with contextlib.suppress(Unavailable):
        return source_of(lab, pod, 4)
    return ""


def test_pods_of_every_node_leave_with_a_static_egress_ip_until_the_egress_is_deleted(
    lab: Lab, pods: None
) -> None:
    node.execute(lab.record, "node-2", "ip", "addr", "add", f"{IP}/32", "dev", "eth0")
    selector = {"podSelector": {"matchLabels": {"egress": "web"}}}
    lab.api.apply(json.dumps(crd("Egress", "web", {"appliedTo": selector, "egressIP": IP})))
    wait_for(
        "status of the Egress",
        lambda: status(lab) == {"egressNode": "node-2", "egressIP": IP},
        seconds=60,
    )
    for pod in ("near", "far"):
        wait_for(f"the Egress IP of {pod}", lambda pod=pod: source(lab, pod) == IP, seconds=60)  # type: ignore[misc]
    assert source_of(lab, "other", 4) == NODES["node-1"]
    # of both connections at least SYN and ACK, each with headers of Ethernet, IPv4 and TCP
    wait_for("what its Pods sent", lambda: counts(lab) >= [4, 4 * 54], seconds=60)
    lab.api.kubectl("delete", "egress", "web")
    wait_for("an end of its counts", lambda: counts(lab) == [], seconds=60)
    nodes = {pod: NODES[where] for pod, where in PODS.items()}
    wait_for("the Nodes' own addresses", lambda: {p: source(lab, p) for p in PODS} == nodes, seconds=60)


def test_an_address_of_a_pool_is_held_by_one_node_for_pods_of_all_and_given_back(
    lab: Lab, pods: None
) -> None:
    pool = {"ipRanges": [{"start": POOLED, "end": POOLED}], "nodeSelector": {}}
    lab.api.apply(json.dumps(crd("ExternalIPPool", "shop", pool)))
    selector = {"podSelector": {"matchLabels": {"egress": "web"}}}
    lab.api.apply(json.dumps(crd("Egress", "shop", {"appliedTo": selector, "externalIPPool": "shop"})))
    both = {"IPAllocated": "True", "IPAssigned": "True"}
    wait_for("an assigned address", lambda: conditions(lab, "shop") == both, seconds=60)
    holders = [name for name in NODES if POOLED in addresses(lab, name)]
    assert holders == [
        json.loads(lab.api.kubectl("get", "egress", "shop", "-o", "json"))["status"]["egressNode"]
    ]
    for pod in ("near", "far"):
        wait_for(f"the Egress IP of {pod}", lambda pod=pod: source(lab, pod) == POOLED, seconds=60)  # type: ignore[misc]
    assert source_of(lab, "other", 4) == NODES["node-1"]

    lab.api.kubectl("delete", "egress", "shop")
    wait_for(
        "the end of its device",
        lambda: not any("antrea-egress0" in addresses(lab, name) for name in NODES),
        seconds=60,
    )
    wait_for("the Node's own address", lambda: source(lab, "far") == NODES["node-1"], seconds=60)


def test_an_egress_without_an_address_keeps_its_pods_inside_and_kubectl_shows_it(
    lab: Lab, pods: None
) -> None:
    """Its pool does not exist, is there, and is deleted; of another one no Node has the address."""
    selector = {"podSelector": {"matchLabels": {"egress": "web"}}}
    closed = "Pods that the Egress selects get no packet out of the cluster"
    shop = crd("Egress", "shop", {"appliedTo": selector, "externalIPPool": "shop"})
    assert create(lab, shop).splitlines()[1:] == [
        f"Warning: spec.externalIPPool: ExternalIPPool shop does not exist: until it does, {closed}"
    ]
    typo = crd(
        "Egress", "web", {"appliedTo": {"podSelector": {"matchLabels": {"no": "pod"}}}, "egressIP": IP}
    )
    assert len(create(lab, typo).splitlines()) == 1
    failed = "Failed to assign the IP to EgressNode: "
    missing, nowhere = (
        f"{failed}ExternalIPPool shop does not exist",
        f"{failed}no Node has {IP} on an interface",
    )
    wait_for(
        "why there is no address",
        lambda: (why(lab, "shop"), why(lab, "web")) == (missing, nowhere),
        seconds=60,
    )
    assert [shown(lab, name) for name in ("shop", "web")] == [[], []]

    pool = {"ipRanges": [{"start": POOLED, "end": POOLED}], "nodeSelector": {}}
    lab.api.apply(json.dumps(crd("ExternalIPPool", "shop", pool)))
    both = {"IPAllocated": "True", "IPAssigned": "True"}
    wait_for("an assigned address", lambda: conditions(lab, "shop") == both, seconds=60)
    wait_for("the Egress IP", lambda: source(lab, "far") == POOLED, seconds=60)

    done = subprocess.run(
        lab.api.command(["delete", "externalippool", "shop"]), capture_output=True, text=True, check=True
    )
    assert done.stderr.startswith(
        "Warning: ExternalIPPool shop is used by Egress shop: these lose their addresses"
    )
    wait_for("why there is no address", lambda: why(lab, "shop") == missing, seconds=60)
    assert conditions(lab, "shop") == dict.fromkeys(both, "False")
    assert shown(lab, "shop") == []
    wait_for("no way out", lambda: not source(lab, "far"), seconds=60)
    with pytest.raises(Unavailable, match="nc"):
        source_of(lab, "far", 4, seconds=2)
    assert source_of(lab, "other", 4) == NODES["node-1"]
    wait_for(
        "Events of both", lambda: {*events(lab, "shop")} >= {"IPAssigned", "AssignmentError"}, seconds=60
    )
    assert events(lab, "web") == ["AssignmentError"]


def why(lab: Lab, name: str) -> str:
    """What the Egress says of an address that no Node has."""
    path = "{.status.conditions[?(@.type=='IPAssigned')].message}"
    return lab.api.kubectl("get", "egress", name, "-o", f"jsonpath={path}")


def shown(lab: Lab, name: str) -> list[str]:
    """EGRESSIP and NODE, as `kubectl get` shows them."""
    columns = "custom-columns=IP:.status.egressIP,NODE:.status.egressNode"
    row = lab.api.kubectl("get", "egress", name, "--no-headers", "-o", columns).split()
    return [cell for cell in row if cell != "<none>"]


def events(lab: Lab, name: str) -> list[str]:
    """Reasons."""
    about = f"involvedObject.kind=Egress,involvedObject.name={name}"
    found = lab.api.kubectl("get", "events", "--field-selector", about, "-o", "json")
    return [row["reason"] for row in json.loads(found)["items"]]


def conditions(lab: Lab, name: str) -> dict[str, str]:
    found = json.loads(lab.api.kubectl("get", "egress", name, "-o", "json"))
    return {row["type"]: row["status"] for row in found.get("status", {}).get("conditions", ())}


def addresses(lab: Lab, where: str) -> str:
    return node.execute(lab.record, where, "ip", "-br", "addr")
