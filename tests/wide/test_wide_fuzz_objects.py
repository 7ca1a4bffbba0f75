"""Objects that users write, and what the controller sends, through all units: an odd one is refused, or its own trouble, and goes without a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from fuzzing import value_of

from antrea.apis import controlplane as cp
from antrea.controller.compute.runtime import FEATURES
from antrea.engine import Engine, Facts
from antrea.facts.fact import each
from antrea.features.network_policy.agent.received import SentAddressMember, SentAppliedMember, SentPolicy
from tests.unit.features.policy_world import NODE, PIPELINE, engine_of, interface

if TYPE_CHECKING:
    from random import Random

    from fuzzing import Fuzz

    from antrea.facts.fact import Fact

pytestmark = [pytest.mark.wide, pytest.mark.timeout(7200)]
NAMES, SPACES = ("a", "b", "c"), ("s1", "s2")
NAMESPACED = {"pods", "services", "groups", "networkpolicies", "externalentities"}


def object_of(rnd: Random, kind: type[Any], path: str) -> Any:
    """As kube-apiserver may give it; None if it cannot be read, which a feed names and passes over."""
    found = value_of(rnd, kind, odd=0.01)
    if not isinstance(found, dict):
        return None
    meta: dict[str, Any] = given if isinstance(given := found.get("metadata"), dict) else {}
    name, space = rnd.choice(NAMES), rnd.choice(SPACES) if path.rpartition("/")[2] in NAMESPACED else ""
    # kube-apiserver itself holds names and labels, of a Pod also those that it refers to, to their syntax
    if isinstance(spec := found.get("spec"), dict):
        spec |= {key: rnd.choice(NAMES) for key in ("serviceAccountName", "nodeName") if key in spec}
    labels = {
        key: rnd.choice(("", "1", "x-y.z")) for key in rnd.sample(("a", "b", "x.io/c"), rnd.randrange(3))
    }
    found["metadata"] = {
        **meta,
        "labels": labels,
        "name": name,
        "namespace": space,
        "uid": f"{path}-{space}-{name}",
        "resourceVersion": "1",
    }
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError:
        return None


def test_wide_fuzz_objects_of_users_in_the_controller(fuzz: Fuzz) -> None:
    watched = [one for feature in FEATURES for one in feature.watched]
    facts = Facts()
    engine = Engine(facts, [unit for feature in FEATURES for unit in feature.units])
    read = refused = raised = 0
    for rnd in fuzz:
        rows: list[Fact] = []
        for one in rnd.choices(watched, k=rnd.randrange(1, 7)):
            found = object_of(rnd, one.kind, one.path)
            if found is None:
                refused += 1
                continue
            try:
                rows += each(one.row(found) or ())
            except ValueError:
                # its feed names it in a condition, and goes on without it
                raised += 1
            read += 1
        for row in rows:
            facts.put(row)
        engine.plan()
        assert engine.errors.standing == {}, rows
        for row in {(type(row), row.key): row for row in rows}.values():
            facts.drop(type(row), row.key)
        engine.plan()
        assert engine.errors.standing == {}, rows
        assert not engine.standing()
    print(f"{read} read, {refused} refused by their types, {raised} raised")
    assert min(read, refused) > 0


def test_wide_fuzz_objects_of_the_controller_in_the_agent(fuzz: Fuzz) -> None:
    pods = [interface(name, number) for number, name in enumerate(NAMES, 3)]
    _, idle = engine_of(NODE, *pods)
    idle.plan()
    always = set(idle.standing())
    facts, engine = engine_of(NODE, *pods)
    engine.plan()
    read = 0
    for rnd in fuzz:
        rows: list[Fact] = []
        for _ in range(rnd.randrange(1, 5)):
            kind = rnd.choice((cp.NetworkPolicy, cp.GroupMember, cp.GroupMember))
            found = object_of(rnd, kind, "networkpolicies") if kind is cp.NetworkPolicy else member_of(rnd)
            if found is None:
                continue
            read += 1
            if isinstance(found, cp.NetworkPolicy):
                groups = tuple(rnd.sample(("g", "h"), 1))
                rows.append(SentPolicy(msgspec.structs.replace(found, applied_to_groups=groups)))
            else:
                sent = rnd.choice((SentAddressMember, SentAppliedMember))
                rows.append(sent(rnd.choice(("g", "h")), found))
        for row in rows:
            facts.put(row)
        engine.plan()
        assert engine.errors.standing == {}, rows
        for entry in engine.standing().values():
            if hasattr(entry, "named"):
                entry.named(PIPELINE)
        for row in {(type(row), row.key): row for row in rows}.values():
            facts.drop(type(row), row.key)
        engine.plan()
        assert set(engine.standing()) == always
    print(f"{read} read")
    assert read


def member_of(rnd: Random) -> Any:
    try:
        found = msgspec.convert(value_of(rnd, cp.GroupMember, odd=0.01), cp.GroupMember)
    except msgspec.ValidationError:
        return None
    pod = cp.PodReference(name=rnd.choice(NAMES), namespace="a")
    return msgspec.structs.replace(found, pod=pod) if rnd.random() < 0.7 else found
