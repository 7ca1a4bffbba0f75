"""Findings that the agent of a Node prints, which may be any text of a Node that somebody else has."""

from __future__ import annotations

import json

import pytest

from antrea.antctl.doctor.state import MAX_FINDINGS, Finding, findings_of
from antrea.errors import Invalid

ROW = {"node": "n1", "severity": "warning", "check": "cni", "finding": "found", "repair": "do"}


@pytest.mark.parametrize(
    "text", ["", "[5]", "[null]", "[[]]", "{}", "[" * 100_000, json.dumps([ROW | {"severity": {}}])]
)
def test_an_answer_of_another_form_ends_no_doctor(text: str) -> None:
    with pytest.raises(Invalid):
        findings_of(text, "n1")


def test_findings_of_an_agent_are_about_its_node_or_the_cluster() -> None:
    rows = [ROW | {"node": "other", "peer": "n2"}, ROW | {"node": ""}, {"severity": "fatal", "node": "n1"}]
    assert findings_of(json.dumps(rows), "n1") == [
        Finding("n1", "warning", "cni", "found", "do", "n2"),
        Finding("", "warning", "cni", "found", "do"),
        Finding("n1", "error", "", "", ""),
    ]
    assert len(findings_of(json.dumps([ROW] * 1000), "n1")) == MAX_FINDINGS
