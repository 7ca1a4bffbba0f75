"""Traceflows get tags, and end: by their results, by their time, or since their status is not ours."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antrea.apis.crd.traceflow import NodeResult, Observation, Traceflow, TraceflowStatus
from antrea.features.traceflow.phase import REST, WAITING, Step, next_step
from antrea.features.traceflow.trace import TAGS, TraceRow, running_trace, trace_row

NOW = 1_800_000_000.0
CREATED = "2027-01-15T08:00:00Z"
POD = {"source": {"namespace": "a", "pod": "web"}, "destination": {"ip": "10.10.1.8"}}
SENT = Observation(component="SpoofGuard", action="Forwarded")
ARRIVED = Observation(component="Forwarding", action="Delivered")


def row(
    name: str = "x", *, created: str = CREATED, spec: dict[str, Any] | None = None, **status: Any
) -> TraceRow:
    found = msgspec.convert(
        {
            "metadata": {
                "name": name,
                "uid": f"uid-{name}",
                "resourceVersion": "7",
                "creationTimestamp": created,
            },
            "spec": spec or POD,
        },
        Traceflow,
    )
    return msgspec.structs.replace(trace_row(found), status=TraceflowStatus(**status))


def running(name: str = "x", tag: int = 7, *observed: Observation, **more: Any) -> TraceRow:
    results = (NodeResult("n1", observations=observed),) if observed else ()
    status: dict[str, Any] = {
        "phase": "Running",
        "start_time": CREATED,
        "dataplane_tag": tag,
        "results": results,
    }
    return row(name, **(status | more))


def told(step: Step) -> list[tuple[str, str, int, str]]:
    """Name, phase, tag and reason of each change."""
    return [
        (change.row.name, change.status.phase, change.status.dataplane_tag, change.status.reason)
        for change in step.changes
    ]


def test_a_new_one_gets_the_first_tag_and_the_time() -> None:
    step = next_step([row()], {}, NOW)
    assert told(step) == [("x", "Running", 7, "")]
    assert step.changes[0].status.start_time == CREATED


def test_tags_are_those_of_local_use_and_each_is_given_once() -> None:
    assert TAGS == (7, 11, 15, 19, 23, 27, 31, 35, 39, 43, 47, 51, 55, 59)
    step = next_step([running("a", 7), row("b"), row("c")], {}, NOW)
    assert told(step) == [("b", "Running", 11, ""), ("c", "Running", 15, "")]


def test_of_64_at_once_14_run_and_the_others_wait_in_order_of_age_and_say_so() -> None:
    rows = [row(f"t{number:02}", created=f"2027-01-15T08:00:{number % 60:02}Z") for number in range(60)]
    rows += [row(f"u{number}", created="2027-01-15T08:01:00Z") for number in range(4)]
    step = next_step(rows, {}, NOW)
    assert [name for name, phase, _, _ in told(step) if phase] == [f"t{number:02}" for number in range(14)]
    assert [why for _, phase, _, why in told(step) if not phase] == [WAITING] * 50
    waiting = [row(one.row.name, created=one.row.created, reason=WAITING) for one in step.changes[14:]]
    full = [running(f"r{tag}", tag) for tag in TAGS]
    assert told(next_step([*full, *waiting], {}, NOW)) == []
    freed = next_step([*full[1:], *waiting], {}, NOW)
    assert told(freed) == [("t14", "Running", 7, "")]


def test_a_tag_rests_before_the_next_trace_has_it_and_the_longest_unused_comes_first() -> None:
    used = dict.fromkeys(TAGS, NOW - 5) | {7: NOW - 0.25, 19: NOW - 9}
    assert told(next_step([row()], used, NOW)) == [("x", "Running", 19, "")]
    step = next_step([row()], dict.fromkeys(TAGS, NOW - 0.25), NOW)
    assert told(step) == [("x", "", 0, WAITING)]
    assert step.again == pytest.approx(REST - 0.25)


@pytest.mark.parametrize("end", ["Delivered", "Dropped", "Rejected", "ForwardedOutOfNetwork", "Redirected"])
def test_it_succeeds_when_both_ends_have_reported(end: str) -> None:
    last = Observation(component="Forwarding", action=end)
    assert told(next_step([running("x", 7, SENT)], {}, NOW)) == []
    assert told(next_step([running("x", 7, last)], {}, NOW)) == []
    assert told(next_step([running("x", 7, SENT, last)], {}, NOW)) == [("x", "Succeeded", 0, "")]


def test_a_packet_that_is_redirected_and_may_come_back_has_not_arrived() -> None:
    aside = Observation(component="TrafficControl", component_info="ips", action="Redirected")
    onward = Observation(component="Forwarding", action="Forwarded")
    assert told(next_step([running("x", 7, SENT, aside, onward)], {}, NOW)) == []
    assert told(next_step([running("x", 7, SENT, aside, onward, ARRIVED)], {}, NOW))[0][1] == "Succeeded"
    why = "Traceflow timeout: TrafficControl ips has redirected the packet, and it has not come back"
    late = next_step([running("x", 7, SENT, aside, onward)], {}, NOW + 20)
    assert told(late) == [("x", "Failed", 0, why)]


def test_the_receiver_alone_counts_where_no_source_pod_is_named_and_any_result_where_drops_are_asked_for() -> (
    None
):
    spec = {"destination": {"pod": "web"}, "liveTraffic": True}
    assert told(next_step([running("x", 7, ARRIVED, spec=spec)], {}, NOW))[0][1] == "Succeeded"
    spec = POD | {"liveTraffic": True, "droppedOnly": True}
    other = Observation(component="NetworkPolicy", action="Forwarded")
    assert told(next_step([running("x", 7, other, spec=spec)], {}, NOW))[0][1] == "Succeeded"


def test_it_fails_after_its_timeout_and_says_what_is_missing() -> None:
    step = next_step([running()], {}, NOW + 19)
    assert (told(step), step.again) == ([], 1.0)
    why = "Traceflow timeout: the Node of Pod a/web has not reported the packet"
    assert told(next_step([running()], {}, NOW + 20)) == [("x", "Failed", 0, why)]
    why = "Traceflow timeout: the packet has left its Node, and no other Node has reported it"
    assert told(next_step([running("x", 7, SENT)], {}, NOW + 20)) == [("x", "Failed", 0, why)]
    live = POD | {"liveTraffic": True, "timeout": 300}
    assert told(next_step([running(spec=live)], {}, NOW + 299)) == []
    assert told(next_step([running(spec=live)], {}, NOW + 300)) == [("x", "Failed", 0, "Traceflow timeout")]


def test_a_start_of_a_clock_that_was_set_back_by_an_hour_holds_no_tag_for_an_hour() -> None:
    why = "Traceflow timeout: the Node of Pod a/web has not reported the packet"
    assert told(next_step([running()], {}, NOW - 3600)) == [("x", "Failed", 0, why)]
    # the clock of another leader may be ahead
    assert told(next_step([running()], {}, NOW - 60)) == []


@pytest.mark.parametrize("tag", [0, 3, 8, 63, 64, -1])
def test_a_status_with_another_tag_than_ours_fails(tag: int) -> None:
    why = f"status.dataplaneTag {tag} is not a tag, or that of another Traceflow"
    assert told(next_step([running("x", tag)], {}, NOW)) == [("x", "Failed", 0, why)]


def test_of_two_with_one_tag_the_younger_fails() -> None:
    first, second = running("b", 7), running("a", 7)
    second = msgspec.structs.replace(second, created="2027-01-15T08:00:01Z")
    assert [one[:2] for one in told(next_step([second, first], {}, NOW))] == [("a", "Failed")]


def test_what_is_over_holds_no_tag() -> None:
    done = [row("a", phase="Succeeded", dataplane_tag=7), row("b", phase="Failed", dataplane_tag=7)]
    assert told(next_step([*done, row()], {}, NOW)) == [("x", "Running", 7, "")]


def test_agents_see_what_runs_alone() -> None:
    def object_of(**status: Any) -> Traceflow:
        return msgspec.convert(
            {"metadata": {"name": "x", "uid": "u"}, "spec": POD, "status": status}, Traceflow
        )

    found = running_trace(
        object_of(phase="Running", dataplaneTag=7, results=[{"node": "n1"}, {"node": "n2"}, {"node": "n1"}])
    )
    assert found is not None
    assert (found.tag, found.pod, found.reported, found.timeout) == (7, "a/web", ("n1", "n2"), 20)
    for status in (
        {},
        {"phase": "Running"},
        {"phase": "Running", "dataplaneTag": 8},
        {"phase": "Failed", "dataplaneTag": 7},
    ):
        assert running_trace(object_of(**status)) is None
