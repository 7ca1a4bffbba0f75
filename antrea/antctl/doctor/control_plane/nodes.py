"""Nodes as kube-apiserver has them: kubelets that report and have room, and addresses that no other Node has."""

from __future__ import annotations

from bisect import bisect_left
from ipaddress import ip_address, ip_network
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from antrea.antctl.doctor.control_plane.cluster_state import name_of
from antrea.antctl.doctor.control_plane.report import seconds_of
from antrea.antctl.doctor.control_plane.rollout import condition
from antrea.antctl.doctor.state import Finding
from antrea.apis.shown import one_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

    from antrea.antctl.doctor.control_plane.cluster_state import ClusterState

NODES: Final = "nodes"
NODE_NETWORK: Final = "node-network"
PRESSURE: Final = "node-pressure"
ADDRESSES: Final = "node-addresses"
PRESSURES: Final = ("DiskPressure", "MemoryPressure", "PIDPressure")
"""Conditions of a kubelet that evicts Pods and starts none."""
GRACE_SECONDS: Final = 30.0
"""Age up to which a Node may have no podCIDR: kube-controller-manager allocates them one after the other."""


def nodes(state: ClusterState) -> Iterator[Finding]:
    """Yield Nodes whose kubelet does not report, or reports that it is not ready."""
    for node in state.nodes or ():
        ready = condition(node, "Ready")
        if ready.get("status") == "True":
            continue
        name, message = name_of(node), one_line(ready.get("message") or "no condition Ready")
        if ready.get("status") == "Unknown":
            text = f"the kubelet of this Node does not report: {message}"
            yield Finding(name, "error", NODES, text, "systemctl restart kubelet")
        elif "network" in message.lower():
            text = f"this Node is not Ready: {message}"
            yield Finding(name, "error", NODE_NETWORK, text, f"kubectl describe node {name}")
        else:
            yield Finding(
                name, "error", NODES, f"this Node is not Ready: {message}", f"kubectl describe node {name}"
            )


def pressure(state: ClusterState) -> Iterator[Finding]:
    """Yield Nodes that lack disk space, memory or process numbers."""
    for node in state.nodes or ():
        for kind in PRESSURES:
            reported = condition(node, kind)
            if reported.get("status") == "True":
                name, message = name_of(node), one_line(reported.get("message", ""))
                text = f"kubelet reports {kind}, evicts Pods and starts none: {message}"
                yield Finding(name, "error", PRESSURE, text, f"kubectl describe node {name}")


class NodeAddress(NamedTuple):
    """An InternalIP of a Node."""

    address: IPv4Address | IPv6Address
    node: str


class PodCidr(NamedTuple):
    """A podCIDR of a Node."""

    network: IPv4Network | IPv6Network
    node: str


def addresses(state: ClusterState) -> Iterator[Finding]:
    """Yield Nodes without a podCIDR, and those whose podCIDR or address another Node has as well; of two the one that is not ready, else the younger one."""
    listed = sorted(
        state.nodes or (),
        key=lambda node: (str(node["metadata"].get("creationTimestamp", "")), name_of(node)),
    )
    age = {name_of(node): number for number, node in enumerate(listed)}
    ready = {name_of(node) for node in listed if condition(node, "Ready").get("status") == "True"}
    yield from _without_cidr(state, listed)
    for version in (4, 6):
        ips = sorted(ip for node in listed for ip in _addresses(node) if ip.address.version == version)
        cidrs = sorted(
            cidr for node in listed for cidr in _pod_cidrs(node) if cidr.network.version == version
        )
        yield from _same_address(ips, age, ready)
        yield from _overlap(cidrs, age)
        yield from _node_in_cidr(cidrs, ips)


def _addresses(node: Mapping[str, Any]) -> Iterator[NodeAddress]:
    for row in node.get("status", {}).get("addresses") or ():
        if row["type"] == "InternalIP":
            yield NodeAddress(ip_address(row["address"]), name_of(node))


def _pod_cidrs(node: Mapping[str, Any]) -> Iterator[PodCidr]:
    spec = node["spec"]
    for cidr in spec.get("podCIDRs") or ([spec["podCIDR"]] if spec.get("podCIDR") else ()):
        yield PodCidr(ip_network(cidr, strict=False), name_of(node))


def _without_cidr(state: ClusterState, listed: Iterable[Mapping[str, Any]]) -> Iterator[Finding]:
    for node in listed:
        created = node["metadata"].get("creationTimestamp")
        is_new = created and (state.now or 0.0) - seconds_of(created) < GRACE_SECONDS
        if not is_new and next(_pod_cidrs(node), None) is None:
            name = name_of(node)
            text = "this Node has no podCIDR: its Pods get no address"
            repair = f"kubectl describe node {name}  # kube-controller-manager allocates podCIDRs with --allocate-node-cidrs and --cluster-cidr"
            yield Finding(name, "error", ADDRESSES, text, repair)


def _same_address(
    ips: Sequence[NodeAddress], age: Mapping[str, int], ready: Collection[str]
) -> Iterator[Finding]:
    for ip, following in pairwise(ips):
        if ip.address != following.address:
            continue
        # a machine that joined again under another name leaves a Node object that no kubelet reports for
        other, node = sorted((ip.node, following.node), key=lambda name: (name not in ready, age[name]))
        text = f"address {ip.address} of this Node is that of Node {other} as well: packets for one get to the other"
        set_address = f"set another --node-ip for the kubelet of {node}"
        repair = f"kubectl get nodes -o wide  # {set_address}"
        if node not in ready and other in ready:
            text += f"; only the kubelet of {other} is ready"
            repair = f"kubectl delete node {node}  # or, if it has a machine of its own, {set_address}"
        yield Finding(node, "error", ADDRESSES, text, repair)


def _overlap(cidrs: Sequence[PodCidr], age: Mapping[str, int]) -> Iterator[Finding]:
    last: PodCidr | None = None
    for cidr in cidrs:
        if last and last.node != cidr.node and last.network.broadcast_address >= cidr.network.network_address:  # type: ignore[operator]
            older, younger = sorted((last, cidr), key=lambda owned: age[owned.node])
            text = (
                f"podCIDR {younger.network} of this Node and {older.network} of Node {older.node} overlap: "
                "Pods of both have the same addresses"
            )
            repair = (
                "kubectl get nodes -o custom-columns=NAME:.metadata.name,PODCIDRS:.spec.podCIDRs  # a podCIDR cannot be changed: "
                f"drain {younger.node}, delete its Node object and restart its kubelet"
            )
            yield Finding(younger.node, "error", ADDRESSES, text, repair)
        if last is None or cidr.network.broadcast_address > last.network.broadcast_address:  # type: ignore[operator]
            last = cidr


def _node_in_cidr(cidrs: Iterable[PodCidr], ips: Sequence[NodeAddress]) -> Iterator[Finding]:
    for cidr in cidrs:
        place = bisect_left(ips, cidr.network.network_address, key=lambda ip: ip.address)
        if place < len(ips) and ips[place].address in cidr.network:
            text = (
                f"podCIDR {cidr.network} of this Node contains address {ips[place].address} of Node {ips[place].node}: "
                "Pods and Nodes have the same addresses"
            )
            repair = f"kubectl describe node {cidr.node}  # --cluster-cidr of kube-controller-manager has to be outside the Nodes' network"
            yield Finding(cidr.node, "error", ADDRESSES, text, repair)
