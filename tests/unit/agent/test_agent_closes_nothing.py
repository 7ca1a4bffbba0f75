"""With all built gates on, an object that selects no Pod of this Node closes none, whatever else is not known yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from all_gates import FEATURES, HERE, PIPELINE, PODS
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_world import ANY, applied, member, native, policy, port, rule

from antrea.apis import controlplane as cp
from antrea.engine import Engine, Facts
from antrea.facts.egress import Egress
from antrea.features.grouping.selector import NEVER
from antrea.features.network_policy.agent.received import SentAppliedGroup
from antrea.features.traffic_control.row import SteeredNamespace, SteeredPod, Steering
from antrea.host.nft import NftRule
from antrea.host.ovs_port import Port
from antrea.openflow.flow import Flow

if TYPE_CHECKING:
    from antrea.facts.fact import Fact

OTHER = (("app", "=", ("nobody",)),)
L7 = cp.L7Protocol(http=cp.HTTPProtocol(path="/public"))


def closing(*rows: Fact) -> set[str]:
    """All entries that drop something."""
    facts = Facts()
    for pool, low, high in (bounds for feature in FEATURES for bounds in feature.ranks):
        facts.ids.between(pool, low, high)
    for row in (*HERE, *rows):
        facts.put(row)
    engine = Engine(facts, [unit for feature in FEATURES for unit in feature.units])
    engine.plan()
    found = set[str]()
    for entry in engine.standing().values():
        if isinstance(entry, Flow) and (line := entry.named(PIPELINE)).endswith("actions=drop"):
            found.add(line)
        elif isinstance(entry, NftRule) and "drop" in entry.text:
            found.add(entry.text)
    return found


ALWAYS = closing()
MARKED = ("reg0=0x400/0x400", "ct_mark=0x80/0x80", "ct_mark=0xc0/0xc0")
"""What a rule has denied, and connections that the L7 engine judges."""


def steering(name: str, pods: Any, namespaces: Any, **more: Any) -> Steering:
    return Steering(name, f"u-{name}", "2027", pods, namespaces, "Both", True, Port(name="gone0"), **more)


LABELS = [SteeredPod("a", pod.pod.removeprefix("a/"), (("app", pod.name),)) for pod in PODS]
HOME = SteeredNamespace("a", (("team", "a"),))
STEERINGS: tuple[tuple[Fact, ...], ...] = (
    (steering("neither selector", None, None),),
    (steering("never met", (NEVER,), (NEVER,)), HOME),
    (steering("other Pods", OTHER, None), *LABELS),
    (steering("other Pods of all Namespaces", OTHER, ()), *LABELS),
    (steering("Pods of other Namespaces", (), OTHER), HOME),
)
"""TrafficControls that select no Pod here, each with no more labels than it takes to know that."""


def egress(name: str, ip: str) -> Egress:
    return Egress(name, f"u-{name}", ip, pool="" if ip else "p")


POLICIES: tuple[tuple[Fact, ...], ...] = (
    (policy("isolates", "empty", rule("In", ANY), rule("Out", ANY)),),
    (policy("isolates in a known group", "empty", rule("In", ANY)), SentAppliedGroup("empty")),
    (native("drops", "empty", rule("In", ANY, port(80), action="Drop"), rule("Out", ANY, action="Reject")),),
    (native("judges requests", "empty", rule("In", ANY, l7_protocols=(L7,), action="Allow")),),
    (native("is for a Pod elsewhere", "far", rule("In", ANY, action="Drop")), *applied("far", member("far", "10.10.1.9"))),
    (native("drops a name", "empty", rule("Out", cp.NetworkPolicyPeer(fqdns=("*.example.org",)), action="Drop")),),
)  # fmt: skip
EGRESSES: tuple[tuple[Fact, ...], ...] = tuple(
    (egress(f"of {ip or 'no address'}", ip),) for ip in ("203.0.113.1", "fd00:9::1", "")
)
IDLE = (*STEERINGS, *POLICIES, *EGRESSES)


def of_pods(lines: set[str]) -> list[str]:
    """Entries that drop what no rule, engine or other feature has marked for that before."""
    return sorted(line for line in lines if not any(mark in line for mark in MARKED))


@given(st.sets(st.sampled_from(range(len(IDLE))), max_size=6))
@settings(max_examples=60, deadline=None)
def test_objects_that_select_nothing_here_close_nothing(idle: set[int]) -> None:
    assert of_pods(closing(*(row for number in sorted(idle) for row in IDLE[number])) - ALWAYS) == []
