"""What a selector is called tells it apart from all others, whatever their authors wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_world import Told, node, pod, row, space

from antrea.apis.crd.part import LabelSelector
from antrea.features.grouping.selector import account_selector, group_selector
from antrea.features.network_policy.controller.antrea_peer import by_selector, by_service

if TYPE_CHECKING:
    from antrea.facts.group import GroupSelector

PROD = {"matchLabels": {"env": "prod"}}
Selector = dict[str, Any]


def there(key: str, *values: str) -> Selector:
    return {"matchExpressions": [{"key": key, "operator": "Exists", "values": list(values)}]}


IMITATIONS = {
    "a key that reads as a label": (PROD, there("env=prod")),
    "a value that reads as a condition": (
        {"matchLabels": {"a": "b", "c": "d"}},
        {"matchLabels": {"a": "b,c=d"}},
    ),
    "values that count for nothing": (there("env"), there("env", "prod")),
    "no value, and the empty one": (
        {"matchExpressions": [{"key": "env", "operator": "In", "values": [""]}]},
        {"matchExpressions": [{"key": "env", "operator": "In"}]},
    ),
}


@pytest.mark.parametrize(("honest", "imitation"), IMITATIONS.values(), ids=IMITATIONS)
def test_an_editor_of_a_namespace_does_not_disable_a_policy_of_the_cluster(
    honest: Selector, imitation: Selector
) -> None:
    """Both objects are there when the controller starts, so that nothing older stands in for either."""
    labels = {"env": "prod", "a": "b", "c": "d"}
    spaces = space("prod", **labels), space("other", env="", a="x")
    world = *spaces, node("n1", "192.168.0.1"), pod("p", "prod"), pod("q", "other", "n2")
    told = Told().put(
        *world,
        row("ClusterNetworkPolicy", "guard", spec=_spec([{"namespaceSelector": honest}], {})),
    )
    before = told.nodes()["uid-guard"]
    assert before
    again = Told().put(
        *world,
        row("NetworkPolicy", "attack", "other", spec=_spec([{"podSelector": {}}], imitation)),
        row("ClusterNetworkPolicy", "guard", spec=_spec([{"namespaceSelector": honest}], {})),
    )
    assert again.nodes()["uid-guard"] == before


def _spec(applied: list[Selector], peer: Selector) -> Selector:
    rule = {"action": "Drop", "name": "no", "from": [{"namespaceSelector": peer}]}
    return {"priority": 5, "appliedTo": applied, "ingress": [rule]}


ODD = st.text(alphabet="ab=,!() And./\n", max_size=8)
WORDS = st.one_of(st.sampled_from(["env", "a", "a/b", "env=prod", "env in (a)", "!env", ""]), ODD)
VALUES = st.one_of(st.sampled_from(["prod", "", "a", "b", "a,b"]), ODD)
SELECTORS = st.builds(
    lambda labels, others: msgspec.convert(
        {"matchLabels": labels, "matchExpressions": others}, LabelSelector
    ),
    st.dictionaries(WORDS, VALUES, max_size=2),
    st.lists(
        st.fixed_dictionaries(
            {
                "key": WORDS,
                "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
                "values": st.lists(VALUES, max_size=2),
            }
        ),
        max_size=2,
    ),
)
NAMES = st.sampled_from(["", "ns", "b", "ns And podSelector=a", "x=y", "a/b"])


@st.composite
def groups(draw: st.DrawFn) -> GroupSelector | None:
    """One of any kind: of Pods, of entities, of Nodes, of a ServiceAccount."""
    kind = draw(st.sampled_from(["pods", "entities", "nodes", "account"]))
    if kind == "account":
        return account_selector(draw(NAMES) or "ns", draw(st.one_of(NAMES, WORDS)))
    one = {kind: draw(st.none() | SELECTORS)}
    return group_selector(draw(NAMES), namespaces=draw(st.none() | SELECTORS), **one)


@settings(max_examples=300, deadline=None)
@given(groups(), groups())
def test_selectors_of_the_same_name_are_the_same(
    one: GroupSelector | None, other: GroupSelector | None
) -> None:
    if one is not None and other is not None:
        assert (one.name == other.name) == (one == other)


def test_services_are_not_called_as_selectors_are() -> None:
    honest = by_selector("appliedtogroups", group_selector("shop", LabelSelector(match_labels={"a/b": "c"})))
    assert by_service("namespace=shop And podSelector=a", "b=c").name != honest.name
