"""Verdict on a packet, the rule that decides it, and why others do not.

A packet is judged where it leaves a Pod (egress), then where it enters one (ingress). In each direction the rules of
Antrea's own policies and of policy.networking.k8s.io come first, by tier, priority of the policy, number of the rule, then the older policy, then the
smaller UID; Pass leaves the packet to Kubernetes NetworkPolicies, of which any may allow it; a Pod that one of them
isolates drops the rest; rules of the baseline tier come last, and what no rule matches is allowed.

Rules on Services (`toServices`) are asked before all others, of the packet to the Service. If none of them drops it,
kube-proxy makes a packet to a Pod of it, which all other rules judge. Where AntreaProxy is on, it chooses the Endpoint before
any rule is asked: then these rules have no place of their own, and all judge the packet to the Endpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from antrea.explain.address import internal_ips
from antrea.explain.admin import admin_rules
from antrea.explain.node import as_received, kept, node_rules
from antrea.explain.packet import End, family, pod_name
from antrea.explain.path import needs_tunnel
from antrea.explain.policy import Silent, kube_policies, native_rules, node_port_rules, unheld_rules
from antrea.explain.rule import BASELINE, EGRESS, INGRESS, RuleRef
from antrea.explain.service import is_direct, is_served_outside, service_entered, why_unserved

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from antrea.apis.core import Pod
    from antrea.explain.packet import Packet
    from antrea.explain.policy import Isolating
    from antrea.explain.rule import Weighed
    from antrea.explain.world import Member, World

Verdict = Literal["Allow", "Drop", "Reject"]
Reason = Literal["rule", "isolation", "nothing", "exempt", "guard", "no Endpoint", "no port"]
DECIDED = ("rule", "guard")
"""Reasons that are worth more than that nothing matches."""
ISOLATED = "the Pod is isolated by Kubernetes NetworkPolicies before the baseline tier is asked"
AFTER_BASELINE = "its action Pass leaves the packet to what comes after the baseline tier, and nothing does"
NODE_PORTS = "NodePorts of Service"
AT_NODE_PORT = "it lets the packet in by the NodePort, and the Node of the Endpoint judges it after that"
TRANSLATED_BEFORE = "it does not hold at an address that another program than AntreaProxy translates"
"""Note on a rule on a Node."""
AFTER_PROXY = "it is asked of what kube-proxy makes of the packet: name a Pod behind the Service"


class Printed(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Is printed as JSON."""


class LosingRule(Printed, frozen=True):
    """A rule that matches the packet and does not decide it, or one for the Pod without effect, and why."""

    rule: RuleRef
    why: str


class Half(Printed, frozen=True, kw_only=True, omit_defaults=False):
    """One direction."""

    direction: str
    pod: str
    """namespace/name of the Pod that is judged; empty if there is none."""
    verdict: Verdict
    reason: Reason
    """Cause of the verdict: a rule, the isolation of the Pod, nothing, an exemption from all policies, traffic that a Node keeps open, or a Service without
    an Endpoint or without this port."""
    sentence: str
    rule: RuleRef | None = None
    isolated_by: tuple[RuleRef, ...] = ()
    """Kubernetes NetworkPolicies that isolate the Pod in this direction, by one rule each."""
    lost: tuple[LosingRule, ...] = ()
    silent: tuple[LosingRule, ...] = ()


class Judged(Printed, frozen=True):
    """Both directions; the first that does not allow the packet decides."""

    egress: Half
    ingress: Half

    @property
    def decisive(self) -> Half:
        """The half that ends the packet's way, the last one if none does."""
        if self.egress.verdict != "Allow" or self.ingress.reason == "exempt":
            return self.egress
        if self.ingress.verdict != "Allow" or self.ingress.reason in DECIDED:
            return self.ingress
        return self.egress if self.egress.reason in DECIDED else self.ingress

    @property
    def verdict(self) -> Verdict:
        return self.decisive.verdict


def judged(world: World, packet: Packet) -> Judged:
    """The packet in both directions."""
    return Judged(half(world, packet, EGRESS), half(world, packet, INGRESS))


def half(world: World, packet: Packet, direction: str) -> Half:
    """One direction of the packet."""
    if packet.node_port and direction == INGRESS:
        return _node_port_half(world, packet)
    end = packet.source if direction == EGRESS else packet.destination
    if world.node_policies and end.host:
        return _node_half(world, packet, direction)
    if world.node_policies and direction == INGRESS and (name := service_entered(world, packet)):
        return _service_half(world, packet, name)
    whole, world = world, world.near(packet)
    if (machine := world.machine(end)) is not None:
        seen = as_received(whole, packet, direction)
        return _machine_half(whole.near(seen), seen, direction, machine)
    if direction == INGRESS and (why := why_unserved(world, packet)):
        return Half(direction=direction, pod="", verdict="Reject", reason="no port", sentence=why)
    if exempt := _exemption(packet, direction):
        name = pod_name(end.pod) if end.pod else ""
        elsewhere = () if end.pod else unheld_rules(world, packet, direction)
        silent = tuple(LosingRule(rule.ref, rule.why) for rule in elsewhere)
        return Half(
            direction=direction, pod=name, verdict="Allow", reason="exempt", sentence=exempt, silent=silent
        )
    assert end.pod is not None  # noqa: S101 (an exemption otherwise)
    return _pod_half(world, packet, direction, end.pod)


def _pod_half(world: World, packet: Packet, direction: str, pod: Pod, others: Sequence[Weighed] = ()) -> Half:
    """Return the half of a Pod; `others` are rules that are evaluated among its own."""
    member = world.member(pod)
    native = [
        *native_rules(world, packet, member, direction),
        *admin_rules(world, packet, member, direction),
    ]
    weighed = [*others, *(rule for rule in native if not isinstance(rule, Silent))]
    silent = tuple(
        LosingRule(rule.ref, text)
        for rule in native
        for text in ((rule.why,) if isinstance(rule, Silent) else rule.unbuilt)
    )
    kube = list(kube_policies(world, packet, member, direction))
    silent += tuple(
        LosingRule(rule.ref, text) for policy in kube for rule in policy.rules for text in rule.unbuilt
    )
    made = _Making(direction, f"{member.namespace}/{member.name}", tuple(policy.ref for policy in kube))
    pod_half = (
        _decided(weighed, kube, made)
        if world.proxy is not None
        else _before_kube_proxy(packet, weighed, kube, made)
    )
    return msgspec.structs.replace(pod_half, silent=silent)


def _node_port_half(world: World, packet: Packet) -> Half:
    """Return the half of a NodePort: judged there, and at the Endpoint if that is on another Node.

    A packet that reaches an Endpoint elsewhere unchanged is judged on its Node alone.
    """
    pod, by_service = packet.destination.pod, list(node_port_rules(world, packet))
    silent = tuple(LosingRule(rule.ref, text) for rule in by_service for text in rule.unbuilt)
    if pod is not None and (pod.spec.node_name == packet.node_port or _goes_as_it_came(world, packet)):
        there = _pod_half(world.near(packet), packet, INGRESS, pod, by_service)
        return msgspec.structs.replace(there, silent=(*silent, *there.silent))
    made = _Making(INGRESS, f"{NODE_PORTS} {packet.service}", ())
    first = msgspec.structs.replace(_decided(by_service, (), made), pod="")
    then = half(world, _sent_on(world, packet), INGRESS) if first.verdict == "Allow" else None
    if then is None or (then.verdict == "Allow" and then.reason != "rule"):
        return msgspec.structs.replace(first, silent=(*silent, *(then.silent if then else ())))
    passed = (LosingRule(first.rule, AT_NODE_PORT),) if first.rule is not None else ()
    return msgspec.structs.replace(
        then, silent=(*silent, *then.silent), lost=(*first.lost, *passed, *then.lost)
    )


def _sent_on(world: World, packet: Packet) -> Packet:
    """Return the packet as an Endpoint elsewhere receives it: from a host outside, with an address of the Node that it was sent to, or unchanged."""
    asked_node, source = packet.node_port, packet.source
    v, there = family(source.ip), packet.destination.pod
    tunnels = bool(there) and needs_tunnel(world, asked_node, there.spec.node_name if there else "", v)
    if source.pod is None:
        node_ips = (
            node_ip for node_ip in sorted(internal_ips(world.nodes[asked_node])) if family(node_ip) == v
        )
        gateway = world.gateway(asked_node, v) if tunnels else ""
        source = End(gateway or next(node_ips, source.ip), host=asked_node)
    return msgspec.structs.replace(packet, source=source, node_port="")


def _goes_as_it_came(world: World, packet: Packet) -> bool:
    """Whether a Pod elsewhere gets what came in by a NodePort as it is, to answer the client."""
    source, pod = packet.source, packet.destination.pod
    if source.pod is not None or pod is None or world.proxy is None:
        return False
    # without tunnels no Node is sent what has an address of its own as its source
    if source.host and not world.proxy.tunnels:
        return False
    return is_direct(world, packet.service, packet.node_port, pod.spec.node_name, family(source.ip))


def _node_half(world: World, packet: Packet, direction: str) -> Half:
    """Return the half of a Node, to which no policies of Kubernetes apply."""
    node = packet.source.host if direction == EGRESS else packet.destination.host
    if why := kept(packet):
        return Half(direction=direction, pod="", verdict="Allow", reason="exempt", sentence=why)
    seen = as_received(world, packet, direction)
    rules = list(node_rules(world.near(seen), seen, node, direction))
    silent = [LosingRule(rule.ref, rule.why) for rule in rules if isinstance(rule, Silent)]
    weighed = [rule for rule in rules if not isinstance(rule, Silent)]
    silent += [LosingRule(rule.ref, text) for rule in weighed for text in rule.unbuilt]
    made = _Making(direction, f"Node {node}", ())
    decided = _decided(weighed, (), made)
    service, proxy = packet.destination.service, world.proxy
    if direction == EGRESS and service and decided.rule is None and not (proxy and proxy.all_addresses):
        decided = made.translated(service, decided.lost)
    if name := world.guard.kept(seen, node, egress=direction == EGRESS):
        decided = _guarded(decided, node, name)
    return msgspec.structs.replace(decided, pod="", silent=tuple(silent))


def _service_half(world: World, packet: Packet, name: str) -> Half:
    """Return the half of the Nodes at an address of a Service; a host outside may send the packet to any of them."""
    half_by_node: dict[str, Half] = {}
    silent: dict[RuleRef, str] = {}
    served = is_served_outside(world, packet.destination.ip)
    for node in sorted(world.nodes):
        rows = list(node_rules(world.near(packet, node), packet, node, INGRESS))
        silent |= {row.ref: row.why for row in rows if isinstance(row, Silent)}
        weighed = [row for row in rows if not isinstance(row, Silent)]
        silent |= {rule.ref: text for rule in weighed for text in rule.unbuilt}
        if not served:
            silent |= {rule.ref: TRANSLATED_BEFORE for rule in weighed if rule.matches}
        half_by_node[node] = _decided(weighed, (), _Making(INGRESS, f"Node {node}", ()))
    lines = tuple(LosingRule(ref, why) for ref, why in silent.items())
    if not served:
        text = (
            f"Service {name} is not served by AntreaProxy at {packet.destination.ip}: kube-proxy, or another program, translates"
            " the packet before policies on Nodes are asked, unless its mode is ipvs; policies of the Endpoint judge it."
        )
        return Half(
            direction=INGRESS, pod="", verdict="Allow", reason="no Endpoint", sentence=text, silent=lines
        )
    return msgspec.structs.replace(_of_nodes(half_by_node, name), pod="", silent=lines)


def _of_nodes(half_by_node: dict[str, Half], name: str) -> Half:
    """Return the half of the first Node that refuses the packet, or of the first Node if none does."""
    refused = [node for node, half in half_by_node.items() if half.verdict != "Allow"]
    if not refused:
        text = f"No policy on Nodes refuses the packet at Service {name}; policies of the Endpoint judge it after that."
        first = next(iter(half_by_node.values()), None)
        if first is not None and first.reason == "rule":
            return msgspec.structs.replace(first, sentence=f"{first.sentence} {text}")
        return Half(direction=INGRESS, pod="", verdict="Allow", reason="nothing", sentence=text)
    half = half_by_node[refused[0]]
    if len(refused) == len(half_by_node):
        return half
    others = ", ".join(node for node in half_by_node if node not in refused)
    text = f"If Node {refused[0]} gets the packet: {half.sentence} Let through by Node {others}."
    return msgspec.structs.replace(half, sentence=text)


def _guarded(decided: Half, node: str, name: str) -> Half:
    """Allowed whatever the policies decide; the sentence has their verdict where they would refuse the packet."""
    text = f"Node {node} keeps {name} whatever policies say."
    lost = decided.lost
    if decided.rule is not None:
        why = f"the Node lets {name} through before any policy is asked, so as not to be locked out"
        lost = (LosingRule(decided.rule, why), *lost)
    if decided.verdict != "Allow":
        text = f"{text} Else: {decided.sentence}"
    return msgspec.structs.replace(
        decided, verdict="Allow", reason="guard", sentence=text, rule=None, lost=lost
    )


def _machine_half(world: World, packet: Packet, direction: str, member: Member) -> Half:
    """Return the half of a machine outside the cluster, to which no policies of Kubernetes apply."""
    native = list(native_rules(world, packet, member, direction))
    silent = [LosingRule(rule.ref, rule.why) for rule in native if isinstance(rule, Silent)]
    weighed = [rule for rule in native if not isinstance(rule, Silent)]
    silent += [LosingRule(rule.ref, text) for rule in weighed for text in rule.unbuilt]
    made = _Making(direction, f"ExternalEntity {member.namespace}/{member.name}", ())
    return msgspec.structs.replace(_decided(weighed, (), made), pod="", silent=tuple(silent))


def _before_kube_proxy(
    packet: Packet, weighed: Sequence[Weighed], kube: Sequence[Isolating], made: _Making
) -> Half:
    """Rules on Services first, then all others, unless the packet has yet to be translated."""
    others = [rule for rule in weighed if not rule.services]
    decided, skipped = _by_service([rule for rule in weighed if rule.services], made)
    later = [LosingRule(other.ref, AFTER_PROXY) for other in others if other.matches]
    if decided is not None:
        return msgspec.structs.replace(decided, lost=(*decided.lost, *later))
    if made.direction == EGRESS and packet.destination.service:
        return made.translated(packet.destination.service, [*skipped, *later])
    decided = _decided(others, kube, made)
    return msgspec.structs.replace(decided, lost=(*skipped, *decided.lost))


def _by_service(weighed: Sequence[Weighed], made: _Making) -> tuple[Half | None, list[LosingRule]]:
    """The half that one of these rules decides; if none does, the rules."""
    early, late = _matching(weighed)
    if early and early[0].action != "Pass":
        return made.by_rule(early[0], [*_later(early[0], early[1:]), *_after_antrea(early[0], late)]), []
    skipped = list(_passed(early[0], early[1:])) if early else []
    if late and not made.isolating:
        return made.by_rule(late[0], [*skipped, *_later(late[0], late[1:])]), []
    return None, [*skipped, *(LosingRule(ref, ISOLATED) for ref in late)]


def _exemption(packet: Packet, direction: str) -> str:
    source, destination = packet.source, packet.destination
    if source.pod is not None and source.pod == destination.pod:
        if not packet.service:
            return "A packet of a Pod to itself does not leave it."
        if direction == INGRESS:
            return f"A Pod reaches itself through Service {packet.service} whatever its ingress rules say."
    end = source if direction == EGRESS else destination
    side = "source" if direction == EGRESS else "destination"
    if end.pod is None:
        what = f"belongs to Node {end.host}" if end.host else "is not a Pod of this cluster"
        if end.service:
            what = f"is Service {end.service}"
        return f"The {side} {end.ip} {what}: no policy is for it."
    if direction == INGRESS and source.host and source.host == end.pod.spec.node_name:
        return f"Processes of Node {source.host} reach its own Pods whatever policies say."
    return ""


def _matching(weighed: Sequence[Weighed]) -> tuple[list[RuleRef], list[RuleRef]]:
    """In their order: those before the rules of Kubernetes, and those of the baseline."""
    matching = sorted((rule.ref for rule in weighed if rule.matches), key=lambda ref: ref.order)
    return (
        [ref for ref in matching if ref.tier_priority not in BASELINE],
        [ref for ref in matching if ref.tier_priority in BASELINE],
    )


def _decided(weighed: Sequence[Weighed], kube: Sequence[Isolating], made: _Making) -> Half:
    """The rule that decides, by the order of all that match."""
    early, late = _matching(weighed)
    allowing = sorted(
        (rule.ref for policy in kube for rule in policy.rules if rule.matches),
        key=lambda ref: (ref.policy, ref.index),
    )
    first = early[0] if early else None
    passed = first if first is not None and first.action == "Pass" else None
    rest = early[1:]
    if first is not None and passed is None:
        lost = [*_later(first, rest), *_after_antrea(first, allowing), *_after_antrea(first, late)]
        return made.by_rule(first, lost)
    skipped = list(_passed(passed, rest))
    if allowing:
        also = [
            LosingRule(ref, "it allows the packet as well: rules of Kubernetes have no order")
            for ref in allowing[1:]
        ]
        why = "a rule of a Kubernetes NetworkPolicy allows the packet before the baseline tier is asked"
        return made.by_rule(allowing[0], [*skipped, *also, *(LosingRule(ref, why) for ref in late)])
    if made.isolating:
        return made.isolated([*skipped, *(LosingRule(ref, ISOLATED) for ref in late)])
    if late and late[0].action == "Pass":
        return made.open([*skipped, LosingRule(late[0], AFTER_BASELINE), *_passed_by(late[0], late[1:])])
    if late:
        return made.by_rule(late[0], [*skipped, *_later(late[0], late[1:])])
    return made.open(skipped)


class _Making(msgspec.Struct, frozen=True):
    """Halves of one Pod and direction."""

    direction: str
    pod: str
    isolating: tuple[RuleRef, ...]

    def by_rule(self, ref: RuleRef, lost: Sequence[LosingRule]) -> Half:
        verdict: Verdict = "Reject" if ref.action == "Reject" else "Drop" if ref.action == "Drop" else "Allow"
        verbs = {"Allow": "allows", "Drop": "drops", "Reject": "rejects"}[verdict]
        where = f" in tier {ref.tier} ({ref.tier_priority}), priority {ref.priority:g}" if ref.tier else ""
        title = ref.title[0].upper() + ref.title[1:]
        return self._half(verdict, "rule", f"{title}{where} {verbs} the packet.", lost, ref)

    def isolated(self, lost: Sequence[LosingRule]) -> Half:
        names = ", ".join(dict.fromkeys(f"{ref.namespace}/{ref.policy}" for ref in self.isolating))
        text = f"Pod {self.pod} is isolated for {self.direction.lower()} by NetworkPolicy {names}, and no rule allows it."
        return self._half("Drop", "isolation", text, lost)

    def translated(self, service: str, lost: Sequence[LosingRule]) -> Half:
        text = f"No rule on Services refuses it; kube-proxy makes a packet to a Pod of Service {service}, which all others judge."
        return self._half("Allow", "nothing", text, lost)

    def open(self, lost: Sequence[LosingRule]) -> Half:
        passed = any(losing.why == AFTER_BASELINE for losing in lost)
        last = "the rule of the baseline tier that matches passes the packet" if passed else "no rule matches"
        text = f"No policy isolates Pod {self.pod} for {self.direction.lower()}, and {last}."
        if self.pod.startswith(NODE_PORTS):
            text = f"No rule for {self.pod} matches."
        elif self.pod.startswith("Node "):
            text = f"No rule on {self.pod} matches for {self.direction.lower()}."
        return self._half("Allow", "nothing", text, lost)

    def _half(
        self,
        verdict: Verdict,
        reason: Reason,
        text: str,
        lost: Sequence[LosingRule],
        ref: RuleRef | None = None,
    ) -> Half:
        return Half(
            direction=self.direction,
            pod=self.pod,
            verdict=verdict,
            reason=reason,
            sentence=text,
            rule=ref,
            isolated_by=self.isolating,
            lost=tuple(lost),
        )


def _later(winner: RuleRef, others: Sequence[RuleRef]) -> Iterator[LosingRule]:
    for ref in others:
        yield LosingRule(ref, _why_later(winner, ref))


def _why_later(winner: RuleRef, ref: RuleRef) -> str:
    if ref.tier_priority != winner.tier_priority:
        return f"its tier {ref.tier} ({ref.tier_priority}) comes after tier {winner.tier} ({winner.tier_priority})"
    if ref.priority != winner.priority:
        return f"its policy's priority {ref.priority:g} comes after {winner.priority:g}"
    if ref.of_policy == winner.of_policy:
        return f"it comes after rule {winner.short} of the same policy"
    if ref.index != winner.index:
        return f"at equal priority of the policies, rule {ref.index} comes after rule {winner.index}"
    if ref.created != winner.created:
        return f"at equal priority, its policy is younger: {ref.created} comes after {winner.created}"
    return "at equal priority and age, the UID of its policy is greater"


def _after_antrea(winner: RuleRef, others: Sequence[RuleRef]) -> Iterator[LosingRule]:
    for ref in others:
        what = "the baseline tier" if ref.tier else "Kubernetes NetworkPolicies"
        yield LosingRule(
            ref, f"{what} come{'s' if ref.tier else ''} after tier {winner.tier} ({winner.tier_priority})"
        )


def _passed(passed: RuleRef | None, rest: Sequence[RuleRef]) -> Iterator[LosingRule]:
    if passed is not None:
        yield LosingRule(
            passed, "its action Pass leaves the packet to Kubernetes NetworkPolicies and the baseline tier"
        )
        yield from _passed_by(passed, rest)


def _passed_by(passed: RuleRef, rest: Sequence[RuleRef]) -> Iterator[LosingRule]:
    for ref in rest:
        yield LosingRule(ref, f"{passed.title} passed the packet by, before it")
