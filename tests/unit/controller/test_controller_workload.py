"""Queues and durations of policies and groups, which the controller's metrics show under upstream's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis import core
from antrea.apis.crd.part import Metadata
from antrea.apis.networking import NetworkPolicy
from antrea.controller.compute.metrics import controller_metrics
from antrea.controller.compute.runtime import FEATURES
from antrea.engine import Engine, Facts
from antrea.features.grouping.row import namespace_row, pod_row
from antrea.features.network_policy.controller.kube_policy import policy_row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.engine.core.workload import Workload

KINDS = ("address_group", "applied_to_group", "network_policy")


def facts_and_engine() -> tuple[Facts, Engine]:
    facts = Facts()
    return facts, Engine(facts, [unit for feature in FEATURES for unit in feature.units])


def put(facts: Facts, name: str, pods: int, policies: int) -> None:
    facts.put(namespace_row(core.Namespace(metadata=core.ObjectMeta(name=name))))
    for number in range(pods):
        meta = core.ObjectMeta(name=f"pod-{number}", namespace=name, labels={"app": f"{number}"})
        status = core.PodStatus(pod_ips=(core.PodIP(ip=f"10.0.0.{number + 1}"),))
        row = pod_row(core.Pod(metadata=meta, spec=core.PodSpec(node_name="n1"), status=status))
        assert row is not None
        facts.put(row)
    for number in range(policies):
        policy = Metadata(name=f"policy-{number}", namespace=name, uid=f"{name}-{number}")
        facts.put(policy_row(NetworkPolicy(metadata=policy)))


def shown(workloads: Mapping[str, Workload], name: str) -> dict[str, float]:
    lines = [line.split() for line in controller_metrics({}, workloads).splitlines()]
    return {line[0]: float(line[1]) for line in lines if line[0].startswith(f"antrea_controller_{name}")}


def test_what_was_worked_out_is_in_the_durations_and_nothing_waits() -> None:
    facts, engine = facts_and_engine()
    put(facts, "a", pods=1, policies=1)
    engine.plan()
    before = engine.workloads()
    put(facts, "b", pods=7, policies=3)
    engine.plan()
    after = engine.workloads()
    for kind in KINDS:
        name = f"antrea_controller_{kind}_sync_duration_milliseconds"
        was, now = shown(before, f"{kind}_sync"), shown(after, f"{kind}_sync")
        # a policy in two steps; for groups the labels of each Pod, and the Pod
        assert now[f"{name}_count"] - was[f"{name}_count"] == {"network_policy": 6}.get(kind, 14), kind
        assert now[f"{name}_sum"] > was[f"{name}_sum"] > 0
        assert now[f'{name}_bucket{{le="+Inf"}}'] == now[f"{name}_count"]
        assert shown(after, f"length_{kind}_queue") == {f"antrea_controller_length_{kind}_queue": 0}


def test_metrics_are_complete_and_in_order_before_anything_was_worked_out() -> None:
    text = controller_metrics({}, {})
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert names == sorted(names)
    wanted = {f"antrea_controller_length_{kind}_queue" for kind in KINDS}
    wanted |= {f"antrea_controller_{kind}_sync_duration_milliseconds" for kind in KINDS}
    wanted |= {f"antrea_controller_{kind}_processed" for kind in KINDS}
    assert wanted <= set(names)
