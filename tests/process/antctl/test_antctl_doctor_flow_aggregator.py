"""The doctor of the cluster names destinations of the flow aggregator that take no records, and what was lost."""

from __future__ import annotations

from antrea.antctl.doctor.flow_aggregator import lost


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
