"""Objects that users write, and what the controller sends, through all units: an odd one is refused, or its own trouble, and goes without a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from fuzzing import deep, hostile, value_of

from antrea.apis import controlplane as cp
from antrea.apis import core
from antrea.apis.annotation import L7_EXPORT, PORT_LOCAL, PORT_LOCAL_ENABLED
from antrea.config.agent import AgentConfig
from antrea.config.agent_sections import NodePortLocal
from antrea.controller.compute.runtime import FEATURES
from antrea.engine import Engine, Facts
from antrea.errors import Unavailable
from antrea.facts.fact import each
from antrea.features.framework.conversion_annotation import ANNOTATION
from antrea.features.network_policy.agent.received import SentAddressMember, SentAppliedMember, SentPolicy
from antrea.features.node_port_local.agent import FEATURE as PORT_LOCAL_FEATURE
from antrea.features.node_port_local.row import PortsDecided, port_local_pod, port_local_service
from antrea.outside.kube.answer import Put, change_of
from tests.unit.features.policy_world import NODE, PIPELINE, engine_of, interface

if TYPE_CHECKING:
    from random import Random

    from fuzzing import Fuzz

    from antrea.facts.fact import Fact

pytestmark = [pytest.mark.wide, pytest.mark.timeout(7200)]
ANNOTATIONS = (PORT_LOCAL, ANNOTATION, L7_EXPORT, PORT_LOCAL_ENABLED)
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
    if annotations := rnd.sample(ANNOTATIONS, rnd.randrange(2)):
        values = (deep(rnd), f'[{{"x":{deep(rnd)}}}]', f'{{"x":{deep(rnd)}}}', "\ud7ff")
        found["metadata"]["annotations"] = {one: rnd.choice(values) for one in annotations}
    try:
        change, _ = change_of(b'{"type":"ADDED","object":' + hostile(rnd, found) + b"}", kind, path)
    except Unavailable:
        return None
    return change.object if isinstance(change, Put) else None


def test_wide_fuzz_annotations_of_tenants_in_the_agent(fuzz: Fuzz) -> None:
    facts = Facts()
    known: tuple[Fact, ...] = (AgentConfig(node_port_local=NodePortLocal(enable=True)), NODE, PortsDecided())
    for one in known:
        facts.put(one)
    engine = Engine(facts, PORT_LOCAL_FEATURE.units)
    engine.plan()
    always, read = set(engine.standing()), 0
    for rnd in fuzz:
        pod, service = (
            object_of(rnd, core.Pod, "/api/v1/pods"),
            object_of(rnd, core.Service, "/api/v1/services"),
        )
        rows = [
            *each((port_local_pod(pod) if pod else None) or ()),
            *each((port_local_service(service) if service else None) or ()),
        ]
        read += len(rows)
        for row in rows:
            facts.put(row)
        engine.plan()
        assert engine.errors.standing == {}, rows
        for row in rows:
            facts.drop(type(row), row.key)
        engine.plan()
        assert set(engine.standing()) == always
    assert read


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
