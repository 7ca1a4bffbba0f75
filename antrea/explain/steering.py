"""Which TrafficControl copies a packet, or takes it out of its way, at each Node that it passes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.explain.packet import pod_name
from antrea.explain.rule import EGRESS, INGRESS
from antrea.explain.selector import fits
from antrea.explain.verdict import Printed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.apis.core import Pod
    from antrea.apis.crd.traffic_control import TrafficControl, TrafficControlPort
    from antrea.explain.packet import End, Packet
    from antrea.explain.world import World

OLDER = "an older one selects the Pod too, {}: of several the oldest counts, then the first by name"
STRONGER = "{} comes first: Redirect before Mirror, then that of the sender"
TUNNELS = ("geneve", "vxlan", "gre", "erspan")


class SteeredPacket(Printed, frozen=True):
    """Treatment by a Node of a packet that passes all policies."""

    node: str
    direction: str
    """Egress: for its sender; Ingress: for its receiver."""
    pod: str
    traffic_control: str
    action: str
    """Mirror or Redirect."""
    target: str
    returned: str
    """Where redirected packets come back; empty: nowhere."""
    without_effect: tuple[str, ...] = ()
    """Others that select the packet, each with the reason."""
    missing: str = ""
    """Report of its Node on missing ports; empty: none, or the Node was not asked."""


class _Claim(NamedTuple):
    direction: str
    pod: str
    control: TrafficControl

    @property
    def order(self) -> tuple[bool, bool]:
        """The smallest one counts on a Node."""
        return self.control.spec.action != "Redirect", self.direction != EGRESS


def steered(world: World, packet: Packet) -> tuple[SteeredPacket, ...]:
    """At the sender's Node, then at the receiver's."""
    at: dict[str, list[tuple[str, Pod]]] = {}
    for direction, end in ((EGRESS, packet.source), (INGRESS, packet.destination)):
        if (pod := _steerable(end)) is not None:
            at.setdefault(pod.spec.node_name, []).append((direction, pod))
    at_nodes = (_at_node(world, node, pods) for node, pods in at.items())
    return tuple(at_node for at_node in at_nodes if at_node is not None)


def _steerable(end: End) -> Pod | None:
    """Pods in their Node's network have no port of the switch."""
    return end.pod if end.pod is not None and not end.pod.spec.host_network else None


def _at_node(world: World, node: str, pods: list[tuple[str, Pod]]) -> SteeredPacket | None:
    claims, lost = list[_Claim](), list[str]()
    for direction, pod in pods:
        traffic_controls = list(_selecting(world, pod))
        lost += [
            f"{traffic_control.metadata.name}: {OLDER.format(traffic_controls[0].metadata.name)}"
            for traffic_control in traffic_controls[1:]
        ]
        if traffic_controls and traffic_controls[0].spec.direction in (direction, "Both"):
            claims.append(_Claim(direction, pod_name(pod), traffic_controls[0]))
    if not claims:
        return None
    first, *others = sorted(claims, key=lambda claim: claim.order)
    name, spec = first.control.metadata.name, first.control.spec
    names = {name}
    for other_claim in others:
        if other_claim.control.metadata.name not in names:
            lost.append(f"{other_claim.control.metadata.name}: {STRONGER.format(name)}")
    redirects = spec.action == "Redirect"
    returned = describe_port(spec.return_port) if redirects and spec.return_port is not None else ""
    description = (name, spec.action, describe_port(spec.target_port), returned)
    return SteeredPacket(node, first.direction, first.pod, *description, without_effect=tuple(lost))


def _selecting(world: World, pod: Pod) -> Iterator[TrafficControl]:
    """The oldest first."""
    labels = world.spaces.get(pod.metadata.namespace, {})
    rows = sorted(
        world.traffic_controls,
        key=lambda traffic_control: (
            traffic_control.metadata.creation_timestamp,
            traffic_control.metadata.name,
        ),
    )
    for row in rows:
        to = row.spec.applied_to
        if to.pod_selector is None and to.namespace_selector is None:
            continue
        if fits(to.namespace_selector, labels) and fits(to.pod_selector, pod.metadata.labels):
            yield row


def describe_port(port: TrafficControlPort) -> str:
    """Such as `internal port tap0` or `geneve tunnel to 192.0.2.7`."""
    if port.ovs_internal is not None:
        return f"internal port {port.ovs_internal.name}"
    if port.device is not None:
        return f"device {port.device.name}"
    for kind in TUNNELS:
        if (tunnel := getattr(port, kind)) is not None:
            return f"{kind} tunnel to {tunnel.remote_ip}"
    return "no port"
