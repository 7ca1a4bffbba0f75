"""The checks of paths: whether packets get to Pods of other Nodes, and whether Services are served."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.antctl.doctor.state import FindingText, edit
from antrea.config.tunnel import TUNNELS, tunnel_port_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from antrea.antctl.doctor.state import NodeState

MAX_NAMED = 5
UNROUTED = (
    "; trafficEncapMode has no tunnels: the network between the Nodes, and routers in it, have to carry "
    "packets with addresses of Pods"
)
HYBRID = "hybrid"
UNROUTED_HYBRID = (
    "; with trafficEncapMode hybrid a Node on the network of the transport interface is reached without a tunnel: that "
    "network has to carry packets with addresses of Pods"
)
ENCAP = "  # where they cannot, set trafficEncapMode: encap in antrea-agent.conf"


def transport(node: NodeState) -> Iterator[FindingText]:
    """Packets for Pods of other Nodes leave by the interface that has the route to the Node.

    Open vSwitch in user space sends those of tunnels only by its own bridge.
    """
    what = "tunnels to" if has_tunnels(node.config) else "packets for Pods of"
    in_user_space = node.config.get("ovsDatapathType") == "netdev"
    device = "br-phy" if in_user_space else node.transport
    others: dict[str, list[str]] = {}
    for peer in node.peers or ():
        actual = (node.devices or {}).get(peer.address)
        if device and actual is not None and actual != device:
            others.setdefault(actual, []).append(f"{peer.node} ({peer.address})")
    for actual, peers in others.items():
        more = f" and {len(peers) - MAX_NAMED} more" if len(peers) > MAX_NAMED else ""
        card = f"{device}, which has the transport interface {node.transport}"
        way = card if device != node.transport else f"{device}, the transport interface"
        how = f"leave by {actual} and not by {way}" if actual else f"have no route by {way}"
        lost = (in_user_space and has_tunnels(node.config)) or not actual
        yield FindingText(
            "error" if lost else "warning",
            f"{what} Node {', '.join(peers[:MAX_NAMED])}{more} {how}{': no packet gets to Pods there' if lost else ''}",
            f"{edit(node.pod.partition('/')[0])}  # set transportInterface in antrea-agent.conf",
        )


def has_tunnels(config: Mapping[str, Any]) -> bool:
    """Whether there are tunnels to other Nodes."""
    return str(config.get("trafficEncapMode", "encap")) in ("encap", HYBRID)


def tunnels(node: NodeState) -> Iterator[FindingText]:
    """A Node that is reached, and whose Pods are not: something drops packets of tunnels, or those of Pods as they are."""
    dead = {peer.node for peer in node.peers or () if peer.trouble}
    for peer in node.pod_peers or ():
        if peer.trouble and peer.node not in dead:
            unreached = (
                f"Pods of Node {peer.node} cannot be reached: "
                f"its gateway {peer.address} does not answer: {peer.trouble}"
            )
            if not has_tunnels(node.config):
                repair = f"{edit(node.pod.partition('/')[0])}{ENCAP}"
                yield FindingText("error", f"{unreached}{UNROUTED}", repair, peer.node)
                continue
            where = f"; if it is a firewall, the repair is for Node {peer.node}"
            if node.config.get("trafficEncapMode") == HYBRID:
                where += UNROUTED_HYBRID
            yield FindingText("error", f"{unreached}{where}", _accept_tunnels(node), peer.node)


def tunnel_type(config: Mapping[str, Any]) -> str:
    """Return the type of tunnels of an agent; one that has refused its configuration keeps geneve."""
    kind = str(config.get("tunnelType", "geneve"))
    return kind if kind in TUNNELS else "geneve"


def _accept_tunnels(node: NodeState) -> str:
    """Return the command that opens a firewall on the other Node, whose tunnels end in the same family."""
    kind = tunnel_type(node.config)
    port = tunnel_port_number(kind, node.config.get("tunnelPort") or 0)
    ends = [peer.address for peer in node.peers or ()]
    tool = "ip6tables" if ends and all(":" in end for end in ends) else "iptables"
    return f"{tool} -I INPUT -p {TUNNELS[kind].transport}{f' --dport {port}' if port else ''} -j ACCEPT"


def services(node: NodeState) -> Iterator[FindingText]:
    """The Service of the API server is in every cluster."""
    if not node.service_trouble:
        return
    if "kube-proxy" in (node.processes or ()):
        yield FindingText(
            "error",
            f"Services are not served, though kube-proxy runs: {node.service_trouble}",
            "kubectl -n kube-system rollout restart ds/kube-proxy",
        )
        return
    proxy_all = node.config.get("antreaProxy.proxyAll")
    why = "no kube-proxy runs" + ("" if proxy_all else ", and antreaProxy.proxyAll is off")
    repair = f"{edit(node.pod.partition('/')[0])}  # set antreaProxy.proxyAll and kubeAPIServerOverride"
    yield FindingText(
        "error",
        f"Services are not served to this Node and its hostNetwork Pods, {why}: {node.service_trouble}",
        "" if proxy_all else repair,
    )
