"""Every annotation of ours: with its gate off, with a value that means nothing, on another kind, misspelt."""

from __future__ import annotations

import re
from itertools import product

import pytest

from antrea.apis import annotation as names
from antrea.features.framework.gate import GATES, EnabledGates
from antrea.features.framework.idle_request import (
    GATE_OFF,
    NOT_BUILT,
    NOT_UNDERSTOOD,
    AnnotationRule,
    Finding,
    ProgramGates,
    annotation_findings,
    object_finding,
)
from antrea.features.registry.annotations import ANNOTATIONS, BY_NAME, WRITTEN

BUILT = {gate.name: gate.built for gate in GATES}
ALL_ON = ProgramGates(*(EnabledGates(program, frozenset(BUILT)) for program in ("agent", "controller")))
ALL_OFF = ProgramGates(EnabledGates("agent", frozenset()), EnabledGates("controller", frozenset()))
GOOD = {
    names.L7_EXPORT: "both",
    names.LOAD_BALANCER_MODE: "dsr",
    names.CONSISTENT_CHOICE: "true",
    names.ALLOW_SHARED_IP: "true",
    names.FAILBACK_FOR_SERVICE: "never",
    names.PORT_LOCAL_ENABLED: "true",
    names.FAILBACK: "when-idle",
    names.LOST_CONNECTIONS: "reset",
    names.SURVIVE: "ports",
    names.MAX_EGRESS_IPS: "12",
    names.KEEP_SSH: "22,2222",
    names.ENABLE_LOGGING: "true",
    names.ON_DENY: "flush",
    names.ENFORCEMENT: "audit",
    names.CONFIRM_WITHIN: "60s",
    names.CONFIRMED: "3",
    names.LATENCY_THRESHOLD: "5ms",
    names.BGP_ROUTER_ID: "192.0.2.1",
    names.ACCEPT_ANY_HOST_KEY: "true",
}
"""A value that asks for something, of each that has values of its own."""


def findings(rule: AnnotationRule, value: str, gates: ProgramGates, kind: str = "") -> list[Finding]:
    return list(annotation_findings(kind or rule.kinds[0], {rule.name: value}, BY_NAME, gates))


def test_each_annotation_of_ours_has_a_rule() -> None:
    ours = {
        value
        for value in vars(names).values()
        if isinstance(value, str)
        and re.fullmatch(r"([a-z0-9]+\.)?antrea\.io(/[a-zA-Z0-9-]+)?|nodeportlocal.antrea.io", value)
    }
    assert ours - set(BY_NAME) == set(WRITTEN)
    assert {rule.name for rule in ANNOTATIONS if rule.expected} == set(GOOD)


@pytest.mark.parametrize("rule", ANNOTATIONS, ids=lambda rule: rule.name)
def test_annotation_whose_gate_is_off_is_reported(rule: AnnotationRule) -> None:
    value = GOOD.get(rule.name, "x")
    for kind in rule.kinds:
        on, off = findings(rule, value, ALL_ON, kind), findings(rule, value, ALL_OFF, kind)
        if not rule.gate:
            assert (on, off) == ([], [])
            continue
        ((reason, text),) = off
        assert (reason, rule.gate in text) == (GATE_OFF if BUILT[rule.gate] else NOT_BUILT, True)
        assert on == ([] if BUILT[rule.gate] else off)
    # nothing is known of the gates yet
    assert findings(rule, value, ProgramGates()) == findings(rule, value, ALL_ON)


@pytest.mark.parametrize("rule", [rule for rule in ANNOTATIONS if rule.expected], ids=lambda rule: rule.name)
def test_annotation_with_a_misspelt_value_is_reported(rule: AnnotationRule) -> None:
    value = GOOD[rule.name]
    for kind, wrong in product(rule.kinds, (f"{value}x", value[1:] + "\n?")):
        found = findings(rule, wrong, ALL_ON, kind)
        if rule.reports(kind):
            assert found == []
        else:
            ((reason, text),) = found
            assert (reason, rule.expected in text, "\n" in text) == (NOT_UNDERSTOOD, True, False)


@pytest.mark.parametrize("rule", ANNOTATIONS, ids=lambda rule: rule.name)
def test_annotation_on_another_kind_or_misspelt_is_reported(rule: AnnotationRule) -> None:
    ((reason, text),) = findings(rule, "x", ALL_ON, "Deployment.apps")
    assert (reason, "has no effect on a Deployment: it is for " in text) == (NOT_UNDERSTOOD, True)
    wrong = rule.name[:-2] + rule.name[-1]
    (found,) = annotation_findings(rule.kinds[0], {wrong: "x"}, BY_NAME, ALL_ON)
    assert found.text == f"annotation {wrong} is not known: did you mean {rule.name}?"


def test_annotations_of_others_are_none_of_ours() -> None:
    others = {
        "example.com/load-balancer-mode": "x",
        "antrea.io.example.com/on-deny": "x",
        "theia.antrea.io/jobs": "x",
    }
    assert list(annotation_findings("Service", others, BY_NAME, ALL_OFF)) == []


def test_what_is_shown_of_unknown_annotations_is_bounded() -> None:
    many = {f"antrea.io/on-den{number}": "x" for number in range(1000)}
    assert len(list(annotation_findings("Service", many, BY_NAME, ALL_OFF))) == 8
    (one,) = annotation_findings("Service", {names.LOAD_BALANCER_MODE: "x" * 100_000}, BY_NAME, ALL_OFF)
    assert len(one.text) < 300


def test_objects_of_a_feature_that_is_off_or_not_built_are_reported() -> None:
    off = object_finding("TrafficControl", ALL_OFF)
    assert off == (
        GATE_OFF,
        "the feature gate TrafficControl is off in antrea-agent.conf: nothing acts on this object",
    )
    assert object_finding("TrafficControl", ALL_ON) is None
    unbuilt = object_finding("AntreaNodeConfig", ALL_ON)
    assert unbuilt == (
        NOT_BUILT,
        "the feature AntreaNodeConfig is not built yet: nothing acts on this object",
    )


HOSTILE = (
    "9" * 262_144, "1," * 131_072, "true," * 50_000, "1h" * 100_000, "\ud800" * 1000, "²", "٣", "\x1b[2J\n" * 100,
)  # fmt: skip
"""Values that a tenant or a Node may write: an object has 256 KiB of annotations."""


@pytest.mark.parametrize("rule", ANNOTATIONS, ids=lambda rule: rule.name)
def test_a_hostile_value_means_nothing_and_is_shown_in_one_short_line(rule: AnnotationRule) -> None:
    for value in HOSTILE:
        for finding in findings(rule, value, ALL_ON):
            assert len(finding.text) < 600
            assert finding.text.isprintable()
        if rule.name in GOOD and not rule.reports(rule.kinds[0]):
            assert findings(rule, value, ALL_ON), value[:20]
