"""Which packets a Redirect closes while labels are unknown: all that may be redirected, and no others."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, Literal

from hypothesis import given, settings
from hypothesis import strategies as st
from policy_world import interface

from antrea.engine import Facts
from antrea.facts.ovs import OvsPort
from antrea.features.framework.diversion import ways
from antrea.features.traffic_control.agent import closed_of, steering_of
from antrea.features.traffic_control.port import PORT_TYPE
from antrea.features.traffic_control.row import SteeredNamespace, SteeredPod, Steering
from antrea.host.ovs_port import Port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.facts.group import Requirement

POD = interface("web", 5)
VALUES = ("x", "y", "z")
SELECTORS: tuple[tuple[Requirement, ...] | None, ...] = (
    None,
    (),
    (("label", "=", ("x",)),),
    (("label", "=", ("z",)),),
)
Direction = Literal["Ingress", "Egress", "Both"]


def control(number: int, *, pods: int, namespaces: int, redirects: bool, direction: Direction) -> Steering:
    """The TrafficControl with this age; its target is on the bridge if its number is even."""
    return Steering(
        f"t{number}", f"u{number}", f"202{number}", SELECTORS[pods], SELECTORS[namespaces], direction, redirects,
        Port(name=f"ids{number}"),
    )  # fmt: skip


def world(rows: list[Steering], label: str, home: str) -> Facts:
    """What the agent knows; an empty label is not known."""
    facts = Facts()
    namespace, _, name = POD.pod.partition("/")
    for row in rows:
        facts.put(row)
    for number in range(0, len(rows), 2):
        facts.put(OvsPort(f"ids{number}", PORT_TYPE, 40 + number, ""))
    if label:
        facts.put(SteeredPod(namespace, name, (("label", label),)))
    if home:
        facts.put(SteeredNamespace(namespace, (("label", home),)))
    return facts


def selects(row: Steering, label: str, home: str) -> bool:
    """By the documentation of TrafficControl, for labels that are known."""
    asked = [(row.pods, label), (row.namespaces, home)]
    return any(wanted is not None for wanted, _ in asked) and all(
        not wanted or value in wanted[0][2] for wanted, value in asked
    )


def possible(label: str, home: str) -> Iterator[tuple[str, str]]:
    """All labels that Pod and Namespace may have."""
    return product((label,) if label else VALUES, (home,) if home else VALUES)


ROW = st.fixed_dictionaries(
    {
        "pods": st.integers(0, 3),
        "namespaces": st.integers(0, 3),
        "redirects": st.booleans(),
        "direction": st.sampled_from(["Ingress", "Egress", "Both"]),
    }
)


@given(st.lists(ROW, max_size=3), st.sampled_from(["", *VALUES]), st.sampled_from(["", *VALUES]))
@settings(max_examples=400, deadline=None)
def test_what_may_be_redirected_is_closed_or_redirected_and_what_no_redirect_selects_is_open(
    made: list[dict[str, Any]], label: str, home: str
) -> None:
    rows = [control(number, **row) for number, row in enumerate(made)]
    facts = world(rows, label, home)
    closed = set(closed_of(facts, POD))
    counting = steering_of(facts, POD)
    may_select = set[str]()
    for labels in possible(label, home):
        selecting = [row for row in rows if selects(row, *labels)]
        may_select |= {row.name for row in selecting}
        if selecting and selecting[0].redirects and selecting[0] != counting:
            assert set(ways(POD, selecting[0].direction)) <= closed, "it is neither redirected nor closed"
    redirects = [row for row in rows if row.redirects and row.name in may_select]
    assert closed <= {way for row in redirects for way in ways(POD, row.direction)}
    if label and home and counting and counting.redirects and facts.get(OvsPort, counting.target.name):  # type: ignore[union-attr]
        assert not closed
