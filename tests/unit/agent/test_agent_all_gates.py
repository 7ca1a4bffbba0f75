"""With all built gates on: every kind of row that units read or sweeps wait for has exactly one producer."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import antrea
from antrea.agent.feature_set import FEATURES, active, first_lists, sweeps
from antrea.agent.role import KubernetesNode
from antrea.controller.compute import runtime
from antrea.features.framework.gate import GATES
from antrea.features.framework.plug import merged
from antrea.features.framework.watch_plan import watch_plan
from antrea.features.l7_flow_export.workload import WORKLOADS
from antrea.features.node_port_local.row import WATCHED as PORT_LOCAL
from antrea.features.registry.webhooks import WATCHED as READ_BY_WEBHOOKS
from antrea.openflow.fields import PacketIn
from antrea.outside.vswitch.packet_channel import Packets

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.features.framework.agent_feature import AgentFeature
    from antrea.features.framework.watch_plan import Watch

BUILT = frozenset(gate.name for gate in GATES if gate.built)
ALL_ON = active(BUILT)


PRODUCT = Path(antrea.__path__[0])


def made_in(*patterns: str) -> frozenset[str]:
    """Names that code in these files calls or hands to a call: of kinds of rows that it makes, or says it has listed."""
    names = set[str]()
    for path in (path for pattern in patterns for path in PRODUCT.glob(pattern)):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                names |= {one.id for one in (node.func, *node.args) if isinstance(one, ast.Name)}
                names |= {one.id for arg in node.args for one in ast.walk(arg) if isinstance(one, ast.Name)}
    return frozenset(names)


BY_HAND = made_in(
    "agent/**/*.py", "outside/**/*.py", "features/*/agent_part.py", "features/*/agent_part/*.py"
)


def plan_of(features: Iterable[AgentFeature]) -> tuple[Watch, ...]:
    declared = (one for feature in features for one in feature.watched)
    return watch_plan((*KubernetesNode.watched, *declared, *PORT_LOCAL), "n1")


def test_no_two_watches_of_an_agent_with_all_gates_have_the_same_path_and_selector() -> None:
    plan = plan_of(ALL_ON)
    assert len({watch.path for watch in plan}) == len(plan)
    by_path = {watch.name: {kind.__name__ for kind in watch.rows} for watch in plan}
    assert by_path["/api/v1/namespaces"] == {"SteeredNamespace", "RequestedNamespace"}
    assert by_path["/api/v1/pods?spec.nodeName=n1"] == {
        "LocalPod",
        "SteeredPod",
        "RequestedPod",
        "PortLocalPod",
    }
    assert by_path["/api/v1/services"] == {"Service", "PortLocalService"}


def test_the_plan_of_each_pair_of_gates_and_of_the_controller_and_its_webhooks_has_no_contradiction() -> None:
    plan_of(FEATURES)
    for one in BUILT:
        for other in BUILT:
            plan_of(active({one, other}))
            features = runtime.active({one, other})
            watch_plan(watched for feature in features for watched in feature.watched)
    controller = watch_plan(one for feature in runtime.active(BUILT) for one in feature.watched)
    assert len({watch.name for watch in controller}) == len(controller)
    assert not {kind for watch in controller for kind in watch.rows} & set(WORKLOADS)
    watch_plan(READ_BY_WEBHOOKS)


def test_no_two_features_declare_a_pool_of_numbers_or_the_answer_to_a_query() -> None:
    pools = [pool for feature in ALL_ON for pool, *_ in (*feature.limits, *feature.ranks)]
    assert len(set(pools)) == len(pools)
    with pytest.raises(ValueError, match="pool marks: two parts have it"):
        merged("pool", [{"marks": 1}, {"marks": 2}])
    handlers = Packets(Path("br-int.mgmt"), 500)
    handlers.deliver(PacketIn.NETWORK_POLICY, print)
    with pytest.raises(ValueError, match="NETWORK_POLICY: two parts take them"):
        handlers.deliver(PacketIn.NETWORK_POLICY, print)


def test_every_kind_that_something_waits_for_or_reads_has_exactly_one_producer() -> None:
    watches = {kind for watch in plan_of(ALL_ON) for kind in watch.rows}
    sent = {kind for feature in ALL_ON for one in feature.watches for kind in one.facts}
    derived = {kind for feature in ALL_ON for unit in feature.units for kind in unit.yields}
    needed = {kind for kinds in sweeps(ALL_ON).values() for kind in kinds}
    needed |= set(first_lists(ALL_ON, 2)) | {unit.over for feature in ALL_ON for unit in feature.units}
    producers = {
        kind.__name__: [
            name
            for name, has in (
                ("watch", kind in watches),
                ("antrea-controller", kind in sent),
                ("units", kind in derived),
                ("feed", kind not in watches | sent | derived and kind.__name__ in BY_HAND),
            )
            if has
        ]
        for kind in needed | watches | sent
    }
    assert {name: found for name, found in producers.items() if len(found) != 1} == {}
