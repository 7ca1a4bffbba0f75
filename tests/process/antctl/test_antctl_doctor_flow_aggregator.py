"""The doctor of the cluster names a refused configuration, destinations that take no records, and what was lost."""

from __future__ import annotations

from typing import Any

from antrea.antctl.doctor.flow_aggregator import conditions, lost, unanswered


def row(name: str, trouble: str = "", dropped: int = 0, removed: int = 0) -> dict[str, object]:
    return {"name": name, "trouble": trouble, "exported": 9, "dropped": dropped, "removed": removed}


def test_doctor_has_nothing_to_say_of_destinations_that_take_records() -> None:
    assert not [*lost("flow-aggregator-0", [row("store"), row("flowLogger")])]


def test_doctor_names_what_fails_was_dropped_and_was_removed() -> None:
    found = [*lost("p", [row("clickHouse", "away\n", 3), row("s3Uploader", "", 4), row("store", "", 0, 5)])]
    assert [one.finding for one in found] == [
        "clickHouse of Pod flow-aggregator/p takes no records: away\\n; 3 records were dropped since it started",
        "s3Uploader of Pod flow-aggregator/p: 4 records were dropped since it started, for which its buffer had no room",
        "store of Pod flow-aggregator/p: 5 records were removed before their time, for store.maxSize or a full disk",
    ]
    assert {(one.severity, one.check, one.repair) for one in found} == {
        ("warning", "flow-aggregator", "kubectl -n flow-aggregator logs p")
    }


def test_doctor_names_a_configuration_that_is_refused_and_how_to_change_it() -> None:
    rows = [
        {"type": "ConfigRejected", "message": "mode: 'Both'\n"},
        {"type": "RecordsNotTaken", "message": "records are not taken yet over tls: secrets is forbidden"},
        {"type": "Later", "message": "of another version"},
    ]
    assert [(one.severity, one.finding, one.repair) for one in conditions("p", rows)] == [
        (
            "error",
            "Pod flow-aggregator/p refuses its configuration, and the last good configuration stays in effect: mode: 'Both'\\n",
            "kubectl -n flow-aggregator edit configmap flow-aggregator-configmap",
        ),
        (
            "error",
            "Pod flow-aggregator/p takes no records: records are not taken yet over tls: secrets is forbidden",
            "kubectl -n flow-aggregator logs p",
        ),
    ]
    assert not [*conditions("p", [])]


def test_doctor_names_why_a_pod_ends_at_start() -> None:
    ended = {"exitCode": 1, "message": "I1127 starting\nantrea-flow-aggregator: mode: 'Both' is none\n"}
    state: dict[str, Any] = {
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": ended},
    }
    pod: dict[str, Any] = {"metadata": {"name": "p"}, "status": {"containerStatuses": [state]}}
    found = unanswered(pod, "container not found")
    assert (found.severity, found.finding) == (
        "error", "Pod flow-aggregator/p ends at start: antrea-flow-aggregator: mode: 'Both' is none",
    )  # fmt: skip
    others: tuple[dict[str, Any], ...] = ({"running": {}}, {"waiting": {"reason": "ContainerCreating"}})
    for now in others:
        once = {
            "state": now,
            "lastState": {"terminated": {**ended, "exitCode": 1 if "running" in now else 0}},
        }
        found = unanswered({**pod, "status": {"containerStatuses": [once]}}, "container not found")
        assert (found.severity, found.finding) == (
            "error", "Pod flow-aggregator/p cannot be asked: container not found",
        )  # fmt: skip
