"""Which Pods are in which group, step by step and against a plain reading of the selectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antrea.apis import core
from antrea.apis.crd.egress import Egress
from antrea.apis.crd.part import LabelSelector
from antrea.controller.compute.runtime import FEATURES, active, published
from antrea.engine import Engine, Facts
from antrea.facts.cluster import Namespace, Pod
from antrea.facts.egress import EgressRow
from antrea.features.egress.controller.feature import egress_row
from antrea.features.grouping.publication import GroupHead, Memberships
from antrea.features.grouping.row import namespace_row, pod_row
from antrea.features.grouping.selector import group_selector

if TYPE_CHECKING:
    from collections.abc import Mapping

Selector = dict[str, Any] | None


def pod(name: str, labels: Mapping[str, str], namespace: str = "ns", **more: Any) -> core.Pod:
    spec = {"nodeName": more.get("node", "n1"), "hostNetwork": more.get("host", False)}
    meta = {"name": name, "namespace": namespace, "labels": dict(labels)}
    status = {"phase": more.get("phase", "Running"), "podIPs": [{"ip": "10.0.0.1"}]}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, core.Pod)


def egress(name: str, pods: Selector = None, namespaces: Selector = None) -> EgressRow:
    applied = {"podSelector": pods, "namespaceSelector": namespaces}
    found = {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"appliedTo": {key: value for key, value in applied.items() if value is not None}},
    }
    return egress_row(msgspec.convert(found, Egress))


def labelled(name: str, labels: Mapping[str, str]) -> Namespace:
    meta = {"name": name, "labels": {"kubernetes.io/metadata.name": name, **labels}}
    return namespace_row(msgspec.convert({"metadata": meta}, core.Namespace))


class Controller:
    """The units of the controller over facts, and what agents have been told."""

    def __init__(self) -> None:
        self.facts = Facts()
        self.engine = Engine(self.facts, [unit for feature in FEATURES for unit in feature.units])
        self.told: dict[str, dict[str, str]] = {}
        self.cost = 0

    def put(self, *rows: Pod | Namespace | EgressRow | None) -> Controller:
        for row in rows:
            if row is not None:
                self.facts.put(row)
        return self.step()

    def drop(self, kind: type[Pod] | type[Namespace] | type[EgressRow], key: str) -> Controller:
        self.facts.drop(kind, key)
        return self.step()

    def step(self) -> Controller:
        plan = self.engine.plan()
        self.cost = len(plan.put) + len(plan.drop)
        for entry in plan.put:
            if isinstance(entry, GroupHead):
                self.told.setdefault(entry.name, {})
        for entry in plan.put:
            if isinstance(entry, Memberships):
                self._leave(entry.who)
                for one in entry.each():
                    self.told[one.name][one.who] = one.node
        for entry in plan.drop:
            if isinstance(entry, Memberships):
                self._leave(entry.who)
        for entry in plan.drop:
            if isinstance(entry, GroupHead):
                assert not self.told.pop(entry.name)
        return self

    def _leave(self, who: str) -> None:
        for members in self.told.values():
            members.pop(who, None)


WEB = {"matchLabels": {"app": "web"}}


def test_an_egress_has_the_pods_that_it_selects() -> None:
    world = Controller().put(labelled("ns", {}), egress("e", WEB), pod_row(pod("a", {"app": "web"})))
    world.put(pod_row(pod("b", {"app": "db"})), pod_row(pod("c", {"app": "web", "x": "y"}, node="n2")))
    assert world.told == {"e": {"ns/a": "n1", "ns/c": "n2"}}


def test_a_pod_that_is_nowhere_or_in_the_network_of_its_node_or_has_ended_does_not_count() -> None:
    labels = {"app": "web"}
    world = Controller().put(
        egress("e", WEB),
        pod_row(pod("nowhere", labels, node="")),
        pod_row(pod("host", labels, host=True)),
        pod_row(pod("ended", labels, phase="Succeeded")),
        pod_row(pod("failed", labels, phase="Failed")),
        pod_row(pod("waits", labels, phase="Pending")),
    )
    assert world.told == {"e": {"ns/waits": "n1"}}


def test_an_egress_without_selectors_has_nobody_and_one_with_empty_ones_everybody() -> None:
    world = Controller().put(egress("none"), egress("all", {}), egress("every", None, {}))
    world.put(pod_row(pod("a", {})), pod_row(pod("b", {}, "other")))
    everybody = {"ns/a": "n1", "other/b": "n1"}
    assert world.told == {"none": {}, "all": everybody, "every": everybody}


def test_a_namespace_that_gets_a_label_brings_its_pods() -> None:
    world = Controller().put(labelled("ns", {}), egress("e", None, {"matchLabels": {"team": "red"}}))
    world.put(pod_row(pod("a", {})))
    assert world.told == {"e": {}}
    assert world.put(labelled("ns", {"team": "red"})).told == {"e": {"ns/a": "n1"}}
    assert world.drop(Namespace, "ns").told == {"e": {}}


def test_what_goes_away_leaves_nothing() -> None:
    world = Controller().put(labelled("ns", {}), egress("e", WEB), pod_row(pod("a", {"app": "web"})))
    world.drop(Pod, "ns/a").drop(EgressRow, "e").drop(Namespace, "ns")
    assert world.told == {}
    assert world.facts.empty


def test_one_pod_more_of_a_deployment_costs_one_member_however_many_there_are() -> None:
    world = Controller().put(egress("e", WEB), *(pod_row(pod(f"p{n}", {"app": "web"})) for n in range(300)))
    world.put(pod_row(pod("new", {"app": "web"})))
    assert world.cost == 1


@pytest.mark.parametrize(
    ("pods", "namespaces", "name"),
    [
        (WEB, None, "podSelector=app=web"),
        ({}, {}, "namespaceSelector= And podSelector="),
        (
            {
                "matchLabels": {"b": "1"},
                "matchExpressions": [
                    {"key": "c", "operator": "In", "values": ["y", "x"]},
                    {"key": "a", "operator": "DoesNotExist"},
                    {"key": "d", "operator": "Exists"},
                    {"key": "e", "operator": "NotIn", "values": ["z"]},
                ],
            },
            None,
            "podSelector=!a,b=1,c in (x,y),d,e notin (z)",
        ),
    ],
)
def test_a_selector_has_one_form(pods: Selector, namespaces: Selector, name: str) -> None:
    given = [None if one is None else msgspec.convert(one, LabelSelector) for one in (pods, namespaces)]
    found = group_selector(pods=given[0], namespaces=given[1])
    assert found is not None
    assert found.name == name


def test_what_is_published_follows_the_gates() -> None:
    policies = {"addressgroups", "appliedtogroups", "networkpolicies"}
    assert published(active({"Egress"})) == {"egressgroups", *policies}
    assert published(active(())) == policies


KEYS, VALUES = ("a", "b"), ("1", "2")
LABELS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
EXPRESSION = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": sorted(values)},
        st.sampled_from(KEYS),
        st.sampled_from(("In", "NotIn")),
        st.sets(st.sampled_from((*VALUES, "3")), min_size=1),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator},
        st.sampled_from(KEYS),
        st.sampled_from(("Exists", "DoesNotExist")),
    ),
)
SELECTOR = st.none() | st.builds(
    lambda labels, expressions: {"matchLabels": labels, "matchExpressions": expressions},
    LABELS,
    st.lists(EXPRESSION, max_size=2),
)
NAMES, SPACES = ("p1", "p2", "p3"), ("s1", "s2")
STEP = st.one_of(
    st.tuples(st.just("pod"), st.sampled_from(NAMES), st.sampled_from(SPACES), st.none() | LABELS),
    st.tuples(st.just("namespace"), st.sampled_from(SPACES), st.just(""), st.none() | LABELS),
    st.tuples(st.just("egress"), st.sampled_from(("e1", "e2", "e3")), SELECTOR, SELECTOR),
    st.tuples(st.just("no egress"), st.sampled_from(("e1", "e2", "e3")), st.just(""), st.none()),
)


class Plain:
    """The same cluster, each question answered by looking at everything."""

    def __init__(self) -> None:
        self.pods: dict[tuple[str, str], dict[str, str]] = {}
        self.namespaces: dict[str, dict[str, str]] = {}
        self.egresses: dict[str, tuple[Selector, Selector]] = {}

    def told(self) -> dict[str, dict[str, str]]:
        return {
            name: {
                f"{space}/{pod}": "n1"
                for (space, pod), labels in self.pods.items()
                if self._member(space, labels, *selectors)
            }
            for name, selectors in self.egresses.items()
        }

    def _member(self, space: str, labels: dict[str, str], pods: Selector, spaces: Selector) -> bool:
        if pods is None and spaces is None:
            return False
        home = self.namespaces.get(space)
        empty = spaces is None or not (spaces["matchLabels"] or spaces["matchExpressions"])
        if not empty and (home is None or not _plainly(home, spaces)):
            return False
        return pods is None or _plainly(labels, pods)


def _plainly(labels: dict[str, str], selector: Selector) -> bool:
    assert selector is not None
    for key, value in selector["matchLabels"].items():
        if labels.get(key) != value:
            return False
    for one in selector["matchExpressions"]:
        value = labels.get(one["key"])
        good = {
            "In": value in one.get("values", ()),
            "NotIn": value not in one.get("values", ()),
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }
        if not good[one["operator"]]:
            return False
    return True


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, min_size=5, max_size=25))
def test_groups_are_what_a_plain_reading_says_after_every_step(steps: list[Any]) -> None:
    world, plain = Controller(), Plain()
    for what, name, other, value in steps:
        if what == "pod" and value is None:
            plain.pods.pop((other, name), None)
            world.drop(Pod, f"{other}/{name}")
        elif what == "pod":
            plain.pods[other, name] = value
            world.put(pod_row(pod(name, value, other)))
        elif what == "namespace" and value is None:
            plain.namespaces.pop(name, None)
            world.drop(Namespace, name)
        elif what == "namespace":
            row = labelled(name, value)
            plain.namespaces[name] = dict(row.labels)
            world.put(row)
        elif what == "egress":
            plain.egresses[name] = (other, value)
            world.put(egress(name, other, value))
        else:
            plain.egresses.pop(name, None)
            world.drop(EgressRow, name)
        assert world.told == plain.told()
