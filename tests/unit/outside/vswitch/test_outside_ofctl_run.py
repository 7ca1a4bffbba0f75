"""What the complaints of ovs-ofctl mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from antrea.errors import Refused
from antrea.openflow.flow import Flow
from antrea.openflow.pipeline import Pipeline
from antrea.openflow.tables import CLASSIFIER
from antrea.outside.vswitch.flow_sink import FlowSink
from antrea.outside.vswitch.ofctl import BROKEN, Ofctl, Refusal, refusal

if TYPE_CHECKING:
    from pathlib import Path

LINES = [
    "flow add cookie=0x1,table=1,priority=1,ip actions=drop",
    "flow add cookie=0x1,table=1,priority=2 actions=learn(table=9,priority=9,NXM_OF_IN_PORT[]),group:77",
    "group add_or_mod group_id=5,type=all,bucket=output:1",
]
COMMIT = """
Error OFPBFC_MSG_FAILED for: OFPT_BUNDLE_CONTROL (OF1.5) (xid=0xb):
 bundle_id=0 type=COMMIT_REQUEST flags=atomic ordered
ovs-ofctl: talking to unix:br-int.mgmt (Protocol error)"""
FLOW = "Error OFPBAC_BAD_OUT_GROUP for: OFPT_FLOW_MOD (OF1.5) (xid=0x%x): ADD table:1 priority=2 actions=group:77"
GROUP = "Error OFPGMFC_GROUP_EXISTS for: OFPT_GROUP_MOD (OF1.5) (xid=0x8):\n ADD group_id=5,type=all"


@pytest.mark.parametrize(
    ("complaint", "meaning"),
    [
        ("ovs-ofctl: -:2: unknown action frob\n", Refusal("unknown action frob", 1)),
        ("2026|1|x|WARN|y\novs-ofctl: -:3: no: why\n", Refusal("no: why", 2)),
        (FLOW % 7 + COMMIT, Refusal("OFPBAC_BAD_OUT_GROUP: ADD table:1 priority=2 actions=group:77", 1)),
        (GROUP + COMMIT, Refusal("OFPGMFC_GROUP_EXISTS: ADD group_id=5,type=all", 2)),
        (
            "Error OFPBMC_BAD_LEN for: (***only uses 64 bytes***)\n00000000  06",
            Refusal("OFPBMC_BAD_LEN", None),
        ),
    ],
)
def test_a_complaint_names_its_line(complaint: str, meaning: Refusal) -> None:
    assert refusal(complaint, LINES) == meaning


@pytest.mark.parametrize("number", [6, 8, 5, 99])
def test_a_line_that_says_something_else_is_not_blamed(number: int) -> None:
    found = refusal(FLOW % number + COMMIT, LINES)
    assert found is not None
    assert found.line is None


def test_without_the_commit_the_numbers_mean_nothing() -> None:
    found = refusal(FLOW % 7, LINES)
    assert found is not None
    assert found.line is None


@pytest.mark.parametrize(
    "complaint",
    [
        "ovs-ofctl: connecting to unix:br-int.mgmt (No such file or directory)",
        "ovs-ofctl: talking to unix:br-int.mgmt (Connection reset by peer)",
        "",
    ],
)
def test_a_switch_that_is_not_there_refuses_nothing(complaint: str) -> None:
    assert refusal(complaint, LINES) is None


async def test_a_line_that_is_more_than_one_is_refused_unsent_and_named(tmp_path: Path) -> None:
    lines = [LINES[0]] * 2500
    lines[1700] = f"{LINES[0]}\nflow delete"
    assert await Ofctl(tmp_path / "none").bundle(lines) == Refusal(BROKEN, 1700)


async def test_a_flow_with_a_line_break_is_refused_and_its_owner_held_back(tmp_path: Path) -> None:
    sink = FlowSink(Ofctl(tmp_path / "none"), Pipeline.realize([CLASSIFIER]), 1)
    good, bad = (Flow(CLASSIFIER.name, 200, match, (), 0) for match in (("ip",), ("ip\nflow delete",)))
    with pytest.raises(Refused, match=BROKEN) as refused:
        await sink.apply([good, bad], [])
    assert refused.value.entries == (bad,)
