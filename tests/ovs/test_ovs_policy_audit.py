"""Audited policies on a real switch: packets are treated as if they were absent, and judged as if they were enforced.

Random clusters, of which a part is audited, are traced as they are and with all of it enforced, and compared with the
explanation, which knows what is audited by itself.
"""

from __future__ import annotations

import copy
import random
import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import pytest
from policy_cluster import Question, cluster, question
from policy_services import served, service_question
from policy_switch import (
    LOCAL,
    Agent,
    Switch,
    choice,
    entered,
    entry,
    expected,
    is_passed_on,
    packet_of,
    ports,
    world_of,
)

from antrea.apis.annotation import AUDIT, AUDITED_RULES, ENFORCE, ENFORCEMENT
from antrea.explain.service import balanced, translated
from antrea.explain.verdict import AT_NODE_PORT, judged
from antrea.features.network_policy.agent.priority import IN, OUT
from antrea.features.network_policy.agent.verdict import AUDITED_METRIC, PASSED_METRIC
from antrea.openflow.audit_trace import audited_part

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ovs_bridge import OvsBridge
    from policy_cluster import Cluster, Object

    from antrea.explain.packet import Packet
    from antrea.explain.verdict import Half, Judged
    from antrea.explain.world import Proxy, World

PACKETS = 30
FIRST = 4_000_000
"""The first seed of the wide test."""
ADMIN_KINDS = ("admin_policies", "baseline_policies", "tiered_policies")
KINDS = ("kube_policies", "cluster_policies", "policies", *ADMIN_KINDS)
STEP = re.compile(r"^ *(\d+)\. .*\bpriority (\d+),", re.MULTILINE)


@pytest.fixture(scope="module")
def switch(ovs: OvsBridge) -> Iterator[Switch]:
    ovs.add_ports(ports())
    found = Switch(ovs.process.directory)
    yield found
    found.close()


def rules(policy: Object) -> list[Object]:
    spec = policy["spec"]
    return [*(spec.get("ingress") or ()), *(spec.get("egress") or ())]


def mark(rnd: random.Random, objects: Cluster, *, services: bool) -> None:
    """Audit a part of the policies: by a Namespace, whole, or single rules; `services` says whether rules on these can be."""
    for space in objects["namespaces"]:
        if rnd.random() < 0.3:
            space["metadata"].setdefault("annotations", {})[ENFORCEMENT] = AUDIT
    for kind in KINDS:
        for policy in objects[kind]:
            notes = policy["metadata"].setdefault("annotations", {})
            by_service = kind != "kube_policies" and any(one.get("toServices") for one in rules(policy))
            if by_service and not services:
                notes[ENFORCEMENT] = ENFORCE
            elif rnd.random() < 0.5:
                notes[ENFORCEMENT] = rnd.choice((AUDIT, AUDIT, ENFORCE))
            elif kind != "kube_policies":
                for number, rule in enumerate(rules(policy)):
                    rule["name"] = f"r{number}"
                notes[AUDITED_RULES] = ",".join(one["name"] for one in rules(policy) if rnd.random() < 0.5)


def enforced(objects: Cluster) -> Cluster:
    """The same, of which nothing is audited; without rules for Services that were: these are neither enforced nor audited."""
    found = copy.deepcopy(objects)
    for policy in found["cluster_policies"]:
        spec = policy["spec"]
        spec["ingress"] = [rule for rule in spec.get("ingress", ()) if not is_unjudged(policy, rule)]
    for one in (one for kind in (*KINDS, "namespaces") for one in found[kind]):
        one["metadata"].pop("annotations", None)
    return found


def is_unjudged(policy: Object, rule: Object) -> bool:
    """Whether it is a rule for the NodePorts of Services alone, and audited."""
    notes = policy["metadata"].get("annotations", {})
    applied = rule.get("appliedTo") or policy["spec"].get("appliedTo", ())
    audited = notes.get(ENFORCEMENT) == AUDIT or rule.get("name", "-") in notes.get(AUDITED_RULES, "").split(
        ","
    )
    return audited and bool(applied) and all("service" in one for one in applied)


class Enforced(NamedTuple):
    """One cluster as objects and as its agent has them."""

    world: World
    agent: Agent

    @classmethod
    def of(cls, objects: Cluster, proxy: Proxy | None) -> Enforced:
        world = world_of(objects, proxy)
        return cls(world, Agent(world))

    def traces(self, switch: Switch, entries: list[str]) -> list[str]:
        switch.install(self.agent.entries, self.agent.served.pipeline)
        return [switch.trace(one) for one in entries]


def denials(agent: Agent, trace: str) -> dict[str, bool]:
    """Of each direction in which a copy was judged, whether it was denied."""
    tables = agent.served.pipeline.ids
    copies = audited_part(trace).split(f"resubmit(,{tables[OUT.antrea.name]})")
    found = {}
    for here, direction in ((OUT, "Egress"), (IN, "Ingress")):
        if f"resubmit(,{tables[here.antrea.name]})" not in audited_part(trace):
            continue
        steps = STEP.findall("\n".join(copies))
        priorities = [int(priority) for table, priority in steps if int(table) == tables[here.metric.name]]
        found[direction] = any(one in (AUDITED_METRIC, PASSED_METRIC) for one in priorities)
    return found


def has_no_effects(trace: str) -> bool:
    """Whether copies only go to the agent's log: no connection is committed, nobody is answered, nothing leaves."""
    copies = audited_part(trace)
    told = set(re.findall(r"userdata=([0-9a-f.]+)", copies))
    return "ct(" not in copies and "output" not in copies and told <= {"01.01"}


def wanted_denials(world: World, enforced: World, packet: Packet) -> dict[str, bool]:
    """Of each direction on this Node that lets the packet pass: whether it would not, with all enforced."""
    now, then = judged(world, packet), judged(enforced, packet)
    if packet.node_port:
        is_denied = [denied_here(one.ingress, packet) for one in (now, then)]
        return {} if is_denied[0] else {"Ingress": is_denied[1]}
    found = {}
    if packet.source.name in LOCAL and now.egress.reason != "exempt":
        if now.egress.verdict != "Allow":
            return {}
        found["Egress"] = then.egress.verdict != "Allow"
    if packet.destination.name in LOCAL and now.ingress.reason != "exempt" and now.ingress.verdict == "Allow":
        found["Ingress"] = then.ingress.verdict != "Allow"
    return found


def denied_here(half: Half, packet: Packet) -> bool:
    """Whether this Node does not let on what comes to its NodePort: by rules for the Service, or for a Pod of its own."""
    return half.verdict != "Allow" and (packet.destination.name in LOCAL or not half.pod)


def at_endpoint(world: World, packet: Packet, trace: str) -> Packet | None:
    """What policies judge: with AntreaProxy, the packet to the Endpoint that it has chosen; None if there is none.

    None, too, if another Node gets it as it came, and judges it alone.
    """
    if (balance := balanced(world, packet)) is None:
        return packet
    _, chosen = choice(trace)
    if chosen is None or is_passed_on(trace):
        return None
    return translated(world, packet, balance.name, chosen, node_port=balance.node_port)


@pytest.fixture(scope="module")
def seen() -> Counter[tuple[str, bool]]:
    """Copies that were judged, by direction and by whether they were denied."""
    return Counter()


def drawn(seed: int, *, proxied: bool) -> tuple[Cluster, Proxy | None, list[Question]]:
    """A cluster of which a part is audited, and packets in it."""
    rnd = random.Random(seed)
    objects = cluster(rnd)
    proxy = served(rnd, objects) if proxied else None
    mark(rnd, objects, services=proxied)
    return (
        objects,
        proxy,
        [service_question(rnd, objects) if proxied else question(rnd) for _ in range(PACKETS)],
    )


def entries_of(own: Enforced, asked: list[Question]) -> tuple[list[Packet], list[str]]:
    """Packets for the explanation and for a trace."""
    packets = [packet_of(own.world, one) for one in asked]
    came = (entered(own.agent.facts, packet) for packet in packets)
    return packets, [entry(packet, one.source_port or 1) for packet, one in zip(came, asked, strict=True)]


def check_absent(switch: Switch, seen: Counter[tuple[str, bool]], seed: int, *, proxied: bool) -> None:
    """One cluster as it is, and with all of it enforced."""
    objects, proxy, asked = drawn(seed, proxied=proxied)
    own, all_enforced = Enforced.of(objects, proxy), Enforced.of(enforced(objects), proxy)
    packets, entries = entries_of(own, asked)
    audited, after = own.traces(switch, entries), all_enforced.traces(switch, entries)
    for sent, trace, later in zip(packets, audited, after, strict=True):
        packet = at_endpoint(own.world, sent, trace)
        if packet is None:
            continue
        assert own.agent.decided(trace) == expected(judged(own.world, packet), packet), packet
        assert has_no_effects(trace), packet
        wanted = wanted_denials(own.world, all_enforced.world, packet)
        found = denials(own.agent, trace)
        assert {way: wanted[way] for way in found} == found, packet
        assert not any(denied for way, denied in wanted.items() if way not in found), packet
        seen.update(found.items())
        if packet.node_port:
            seen.update((f"{way} at NodePorts", denied) for way, denied in found.items())
        passes = judged(own.world, packet).verdict == "Allow"
        if passes and found and not any(found.values()) and set(found) == set(wanted):
            assert own.agent.decided(trace).port == all_enforced.agent.decided(later).port, packet


@pytest.mark.parametrize("proxied", [False, True])
@pytest.mark.parametrize("seed", [*range(8), 39, 43, FIRST + 18, FIRST + 233])
def test_audited_policies_are_absent_and_their_copies_are_judged_as_by_enforced_ones(
    switch: Switch, seen: Counter[tuple[str, bool]], seed: int, proxied: bool
) -> None:
    check_absent(switch, seen, seed, proxied=proxied)


def test_copies_were_denied_and_let_pass_in_both_directions(seen: Counter[tuple[str, bool]]) -> None:
    assert all(seen[way, denied] >= 5 for way in ("Egress", "Ingress") for denied in (True, False)), seen


@pytest.mark.parametrize("seed", range(8))
def test_a_policy_that_is_changed_over_to_enforce_moves_no_verdict_of_others(
    switch: Switch, seed: int
) -> None:
    """The switch has both: packets go otherwise than before where a rule of this policy decides, or passes on, alone."""
    moved = check_change_over(switch, seed, proxied=bool(seed % 2))
    assert moved["stays"], "no packet is left to others"


@pytest.mark.wide
@pytest.mark.timeout(7200)
def test_four_hundred_clusters_of_which_a_part_is_audited(switch: Switch) -> None:
    moved: Counter[str] = Counter()
    seen: Counter[tuple[str, bool]] = Counter()
    for seed in range(FIRST, FIRST + 400):
        check_absent(switch, seen, seed, proxied=bool(seed % 2))
        moved.update(check_change_over(switch, seed, proxied=bool(seed % 2)))
    assert moved["moves"] >= 200, moved
    assert moved["stays"] >= 5000, moved
    assert all(seen[way, denied] >= 200 for way in ("Egress", "Ingress") for denied in (True, False)), seen
    assert all(seen["Ingress at NodePorts", denied] >= 20 for denied in (True, False)), seen


def check_change_over(switch: Switch, seed: int, *, proxied: bool) -> Counter[str]:
    """One cluster before and after one of its audited policies is enforced: how many packets that moves."""
    objects, proxy, asked = drawn(seed, proxied=proxied)
    before = Enforced.of(objects, proxy)
    changed = change_over(random.Random(seed), objects)
    after = Enforced.of(objects, proxy)
    packets, entries = entries_of(before, asked)
    found: Counter[str] = Counter()
    for sent, old, new in zip(
        packets, before.traces(switch, entries), after.traces(switch, entries), strict=True
    ):
        # with AntreaProxy, the same Endpoint before and after
        assert choice(old)[1] == choice(new)[1], sent
        packet = at_endpoint(before.world, sent, old)
        if packet is None:
            continue
        was, now = before.agent.decided(old), after.agent.decided(new)
        by = judged(after.world, packet)
        assert was == expected(judged(before.world, packet), packet), packet
        assert now == expected(by, packet), packet
        assert was == now or changed & takes_part(by), packet
        found["stays" if was == now else "moves"] += 1
    return found


def change_over(rnd: random.Random, objects: Cluster) -> set[str]:
    """Enforce one policy of which anything is audited, in place; its UID, none if there is no such policy."""
    spaces = {
        one["metadata"]["name"]
        for one in objects["namespaces"]
        if ENFORCEMENT in one["metadata"].get("annotations", {})
    }
    audited = [
        policy
        for policy in (one for kind in KINDS for one in objects[kind])
        if (notes := policy["metadata"]["annotations"]).get(ENFORCEMENT) == AUDIT
        or notes.get(AUDITED_RULES)
        or (ENFORCEMENT not in notes and policy["metadata"].get("namespace") in spaces)
    ]
    if not audited:
        return set()
    one = rnd.choice(audited)
    one["metadata"]["annotations"] = {ENFORCEMENT: ENFORCE}
    return {one["metadata"]["uid"]}


def takes_part(found: Judged) -> set[str]:
    """UIDs of policies that decide on a packet: by a rule, by isolation of its Pod, or by leaving it to others."""
    halves = (found.egress, found.ingress)
    rules = [one for half in halves for one in (half.rule, *half.isolated_by) if one is not None]
    before = (one for half in halves for one in half.lost)
    passed = [one.rule for one in before if one.rule.action == "Pass" or one.why == AT_NODE_PORT]
    assert all(one.uid for one in (*rules, *passed))
    return {one.uid for one in (*rules, *passed)}


ALLOW = {"action": "Allow"}
PASSED: dict[str, tuple[str, Object]] = {
    "isolation": ("emergency", ALLOW),
    "a rule that drops": ("application", {"action": "Drop", "enableLogging": True}),
    "a rule that rejects": ("application", {"action": "Reject"}),
    "a rule of the baseline": ("baseline", {"action": "Reject"}),
}


@pytest.mark.parametrize("late", PASSED)
@pytest.mark.parametrize("way", ["ingress", "egress"])
def test_what_an_audited_rule_passes_on_is_denied_by_enforced_ones_in_copies_alone(
    switch: Switch, way: str, late: str
) -> None:
    objects = cluster(random.Random(1)) | {kind: [] for kind in (*KINDS, "services")}
    tier, last = PASSED[late]

    def policy(name: str, tier: str, priority: int, rule: Object, notes: dict[str, str]) -> Object:
        meta = {"name": name, "uid": name, "annotations": notes, "creationTimestamp": "2026-01-01T00:00:00Z"}
        applied: list[Object] = [{"namespaceSelector": {}}]
        return {
            "metadata": meta,
            "spec": {"tier": tier, "priority": priority, "appliedTo": applied, way: [rule]},
        }

    audit = {ENFORCEMENT: AUDIT}
    objects["cluster_policies"] = [
        policy("first", "emergency", 1, {"action": "Pass"}, audit),
        policy("allows", "emergency", 2, {"action": "Allow"}, {}),
    ]
    if late == "isolation":
        meta = {"name": "k", "namespace": "a", "uid": "k"}
        spec = {"podSelector": {}, "policyTypes": [way.capitalize()]}
        objects["kube_policies"] = [{"metadata": meta, "spec": spec}]
    else:
        objects["cluster_policies"].append(policy("late", tier, 5, last, {}))
    own = Enforced.of(objects, None)
    packet = packet_of(own.world, Question("a/p11", "a/p12", 4, "TCP", 80, 1024, None))
    (trace,) = own.traces(switch, [entry(packet, 1)])
    wanted = wanted_denials(own.world, own.world.all_enforced(), packet)
    assert own.agent.decided(trace).port == LOCAL["a/p12"].ofport
    assert wanted == {"Ingress": False, "Egress": False} | {way.capitalize(): late in DENIED_LATE}
    assert denials(own.agent, trace) == {way.capitalize(): late in DENIED_LATE}
    assert has_no_effects(trace)


DENIED_LATE = ("isolation", "a rule of the baseline")
"""What is asked after Pass."""
