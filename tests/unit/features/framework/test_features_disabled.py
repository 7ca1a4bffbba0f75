"""A kind that nothing acts on does not look as if something did: each kind of crd.antrea.io, with the gates of its feature off."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antrea.apis.status import Status
from antrea.controller.compute.runtime import DISABLED, FEATURES, active
from antrea.engine import Engine, Facts
from antrea.errors import Invalid
from antrea.facts.fact import each
from antrea.features.framework.admission import Warn, gate_steps
from antrea.features.framework.gate import GATES
from antrea.features.registry.crds import CRDS
from antrea.features.registry.webhooks import WEBHOOKS
from antrea.features.traceflow.disabled import Outcome, StoredTraceflow, disabled_traceflow

ALL = frozenset(gate.name for gate in GATES)
BUILT = {gate.name for gate in GATES if gate.built}
OURS = {gate.name for gate in GATES if gate.built and "controller" in gate.components}
"""Built gates of which the controller knows whether they are on: those of agents alone may be in antrea-agent.conf alone."""
GATED = [crd for crd in CRDS if crd.gates]
NOT_BUILT = [crd for crd in GATED if crd.gates[-1] not in BUILT]


def said(plural: str, gates: frozenset[str]) -> list[str]:
    """What kubectl prints when an object is created: warnings, or why it is refused."""
    found: list[str] = []
    for webhook in WEBHOOKS:
        if webhook.resource == plural and webhook.group == "crd.antrea.io":
            try:
                found += [step.text for step in gate_steps(webhook, gates) if isinstance(step, Warn)]
            except Invalid as error:
                found.append(error.why)
    return found


@pytest.mark.parametrize("plural", [crd.plural for crd in NOT_BUILT if set(crd.gates).isdisjoint(BUILT)])
def test_who_creates_an_object_of_what_is_not_built_is_told(plural: str) -> None:
    assert any("is not built yet" in text for text in said(plural, ALL))


@pytest.mark.parametrize("plural", [crd.plural for crd in GATED if not OURS.isdisjoint(crd.gates[-1:])])
def test_who_creates_an_object_of_a_feature_that_is_off_is_told(plural: str) -> None:
    (crd,) = (one for one in GATED if one.plural == plural)
    assert any(gate in text for text in said(plural, ALL.difference(crd.gates)) for gate in crd.gates)


def collections(gates: frozenset[str]) -> set[str]:
    """Plurals of crd.antrea.io that the controller watches with these gates."""
    paths = (one.path for feature in active(gates) for one in feature.watched)
    return {path.rpartition("/")[2] for path in paths if path.startswith("/apis/crd.antrea.io/")}


@pytest.mark.parametrize("plural", [crd.plural for crd in GATED if any(v.status for v in crd.versions)])
def test_a_status_that_we_write_is_corrected_while_its_gate_is_off(plural: str) -> None:
    (crd,) = (one for one in GATED if one.plural == plural)
    # what the gate of agents alone turns on may be watched for another reason: captures that no Node makes
    assert plural in collections(ALL.difference(crd.gates)) or OURS.isdisjoint(crd.gates)


def test_what_stands_in_for_a_feature_does_not_run_beside_it() -> None:
    assert active(ALL) == FEATURES
    assert active(frozenset())[-len(DISABLED) :] == DISABLED


def statuses(path: str, **meta: Any) -> list[Status]:
    """What is written of an object of this collection with all gates off."""
    facts = Facts()
    features = active(frozenset())
    for watched in (one for feature in features for one in feature.watched):
        if watched.path == path:
            for row in each(watched.row(msgspec.convert({"metadata": meta}, watched.kind))):
                facts.put(row)
    plan = Engine(facts, [unit for feature in features for unit in feature.units]).plan()
    return [entry for entry in plan.put if isinstance(entry, Status)]


CRD = "/apis/crd.antrea.io/v1beta1"


@pytest.mark.parametrize(
    ("plural", "kind", "space"),
    [("clusternetworkpolicies", "ClusterNetworkPolicy", ""), ("networkpolicies", "NetworkPolicy", "shop")],
)
def test_a_policy_whose_gate_is_off_is_realized_nowhere(plural: str, kind: str, space: str) -> None:
    (status,) = statuses(f"{CRD}/{plural}", name="web", namespace=space, generation=3)
    assert status.path == f"{CRD}/{f'namespaces/{space}/' if space else ''}{plural}/web"
    assert (status.kind, dict(status.fields)) == (
        kind,
        {"phase": "Failed", "observedGeneration": 3, "currentNodesRealized": 0, "desiredNodesRealized": 0},
    )
    assert [(one.type, one.status, one.reason) for one in status.conditions] == [
        ("Realizable", "False", "FeatureGateDisabled"), ("RealizationFailure", "", ""),
    ]  # fmt: skip
    assert "feature gate AntreaPolicy is off" in status.conditions[0].message


@pytest.mark.parametrize(("plural", "space"), [("clustergroups", ""), ("groups", "shop")])
def test_members_of_a_group_whose_gate_is_off_are_not_computed(plural: str, space: str) -> None:
    (status,) = statuses(f"{CRD}/{plural}", name="web", namespace=space, generation=1)
    assert [(one.type, one.status) for one in status.conditions] == [("GroupMembersComputed", "False")]


def test_an_egress_whose_gate_is_off_has_no_node() -> None:
    (status,) = statuses(f"{CRD}/egresses", name="web", generation=1)
    assert dict(status.fields) == {"egressIP": "", "egressNode": ""}
    assert [(one.type, one.status) for one in status.conditions] == [
        ("IPAllocated", "False"), ("IPAssigned", "False"),
    ]  # fmt: skip


def test_a_pool_whose_gate_is_off_gives_no_address() -> None:
    (status,) = statuses(f"{CRD}/externalippools", name="web", generation=1)
    assert dict(status.fields) == {"usage.total": 0, "usage.used": 0}


def test_a_traceflow_whose_gate_is_off_fails_unless_it_is_over() -> None:
    (status,) = statuses(f"{CRD}/traceflows", name="web", generation=1)
    why = "the feature gate Traceflow is off in antrea-controller.conf"
    assert dict(status.fields) == {"phase": "Failed", "reason": why, "dataplaneTag": 0}
    over = [Outcome("Succeeded"), Outcome("Failed", "timeout")]
    assert [disabled_traceflow(StoredTraceflow(status=one)) for one in over] == [None, None]


def test_each_kind_of_row_is_of_one_feature_alone_whichever_gates_are_off() -> None:
    for gates in (ALL, ALL - {"AntreaPolicy"}):
        kinds = [(one.path, one.fact) for feature in active(gates) for one in feature.watched]
        assert len(kinds) == len({fact for _, fact in kinds})
