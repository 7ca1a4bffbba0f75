"""Status of BGPPolicies: how many Nodes follow each."""

from __future__ import annotations

from typing import Any

import msgspec

from antrea.apis.core import Node
from antrea.apis.crd.bgp import BGPPolicy
from antrea.apis.status import Status
from antrea.engine import Engine, Facts
from antrea.features.bgp_policy.controller import FEATURES
from antrea.features.bgp_policy.followed import node_labels
from antrea.features.bgp_policy.policy import PATH, policy_row

FEATURE, *_ = FEATURES


def stored(name: str, day: int, **labels: str) -> BGPPolicy:
    found = {
        "metadata": {"name": name, "uid": name, "creationTimestamp": f"2026-01-0{day}T00:00:00Z"},
        "spec": {"nodeSelector": {"matchLabels": labels}, "localASN": 64512},
    }
    return msgspec.convert(found, BGPPolicy)


def node(name: str, **labels: str) -> Any:
    return node_labels(msgspec.convert({"metadata": {"name": name, "labels": labels}}, Node))


def conditions(
    facts: Facts, engine: Engine, known: dict[str, tuple[str, str, str]]
) -> dict[str, tuple[str, str, str]]:
    """Status, reason and message of the condition of each policy, by its name."""
    for entry in engine.plan().put:
        assert isinstance(entry, Status)
        (condition,) = entry.conditions
        known[entry.path.removeprefix(f"{PATH}/")] = (condition.status, condition.reason, condition.message)
    assert not engine.errors.standing
    return known


def test_a_policy_says_which_nodes_follow_another_one() -> None:
    facts = Facts()
    engine = Engine(facts, FEATURE.units)
    known: dict[str, tuple[str, str, str]] = {}
    for row in (
        policy_row(stored("old", 1, rack="1")),
        policy_row(stored("all", 2)),
        policy_row(stored("none", 3, rack="9")),
    ):
        facts.put(row)
    assert conditions(facts, engine, known) == {}
    for number in range(8):
        facts.put(node(f"n{number}", rack="1" if number else "2"))
    assert conditions(facts, engine, known) == {
        "old": ("True", "Followed", "7 Nodes follow it"),
        "all": (
            "True",
            "PartlyFollowed",
            (
                "7 of 8 selected Nodes follow an older policy: n1 follows old, n2 follows old, n3 follows old, n4 follows old,"
                " n5 follows old and 2 more"
            ),
        ),
        "none": ("False", "NoNodes", "spec.nodeSelector selects no Node"),
    }
    facts.put(node("n0", rack="1"))
    assert conditions(facts, engine, known)["all"][:2] == ("False", "OlderPolicy")
    facts.drop(type(policy_row(stored("old", 1))), "old")
    assert conditions(facts, engine, known)["all"] == ("True", "Followed", "8 Nodes follow it")
