"""Followers read the newest records from their own places, with the filters and the rights of queries."""

from __future__ import annotations

from typing import Any

import pytest

from antrea.apis.flow import FlowRecord
from antrea.errors import Invalid
from antrea.flow_aggregator.live import KEPT, MAX_ROWS, LiveRecords, matcher

EVERY = matcher({}, None)


def record(number: int = 0, **more: Any) -> FlowRecord:
    ends: dict[str, Any] = {
        "source_ip": "10.1.0.5", "destination_ip": "2001:db8::7", "source_transport_port": number,
        "destination_transport_port": 80, "destination_service_port": 8080, "protocol_identifier": 6,
        "source_pod_namespace": "shop", "source_pod_name": "web", "destination_pod_namespace": "db",
        "destination_pod_name": "pg", "ingress_network_policy_namespace": "db", "ingress_network_policy_name": "in",
        "ingress_network_policy_rule_action": 2, "egress_network_policy_rule_action": 1, "egress_name": "out",
    }  # fmt: skip
    return FlowRecord(**{**ends, **more})


def numbers(found: list[FlowRecord]) -> list[int]:
    return [one.source_transport_port for one in found]


def test_a_follower_gets_what_came_since_its_last_event_and_no_half_if_it_may_not_see_all() -> None:
    live = LiveRecords()
    live.add(record(1))
    place = 1
    live.add(record(2))
    live.add(record(3), is_half=True)
    assert [numbers(live.after(place, EVERY, halves=halves)[0]) for halves in (True, False)] == [[2, 3], [2]]
    assert numbers(live.after(0, EVERY, halves=True)[0]) == [1, 2, 3]


def test_who_is_too_far_behind_is_told_how_many_are_missing() -> None:
    live = LiveRecords()
    for number in range(KEPT + 7):
        live.add(record(number))
    rows, missed = live.after(0, EVERY, halves=True)
    assert numbers(rows) == list(range(KEPT + 7 - MAX_ROWS, KEPT + 7))
    assert missed == KEPT + 7 - MAX_ROWS


def test_an_event_of_another_run_or_no_event_begins_with_the_newest() -> None:
    live, other = LiveRecords(), LiveRecords()
    assert live.place_of("") == 0
    for number in range(MAX_ROWS + 7):
        live.add(record(number))
    run = live._event([], 0).split(b"id: ")[1].split(b"-")[0].decode()
    assert live.place_of(f"{run}-0") == 0
    assert live.place_of(f"{run}-99999") == MAX_ROWS + 7
    for event in ("", "x", f"{run}-", f"{run}-{'9' * 40}", f"{run}-١", f"{other._run}-0"):
        assert live.place_of(event) == 7, event


@pytest.mark.parametrize(
    ("asked", "passes"),
    [
        ({}, True),
        ({"namespace": "db"}, True), ({"namespace": "other"}, False),
        ({"pod": "web"}, True), ({"pod": "db/pg"}, True), ({"pod": "shop/pg"}, False), ({"pod": "pg", "namespace": "shop"}, False),
        ({"srcip": "10.1.0.5"}, True), ({"srcip": "2001:db8::7"}, False), ({"dstip": "2001:db8:0::7"}, True),
        ({"port": "80"}, True), ({"port": "8080"}, True), ({"port": "81"}, False),
        ({"protocol": "tcp"}, True), ({"protocol": "17"}, False),
        ({"action": "denied"}, True), ({"action": "Drop"}, True), ({"action": "reject"}, False), ({"action": "allow"}, True),
        ({"policy": "in"}, True), ({"policy": "db/in"}, True), ({"policy": "shop/in"}, False), ({"policy": "/in"}, False),
        ({"egress": "out"}, True), ({"egress": "in"}, False),
        ({"pod": "web", "port": "81"}, False),
    ],
)  # fmt: skip
def test_filters_are_those_of_queries(asked: dict[str, str], passes: bool) -> None:
    assert matcher(asked, None)(record()) is passes


@pytest.mark.parametrize(
    ("namespaces", "more", "passes"),
    [
        (["shop", "db"], {}, True),
        (["shop"], {}, False),
        (["db"], {}, False),
        (["shop"], {"destination_pod_namespace": ""}, True),
        (["shop"], {"destination_pod_namespace": "shop"}, True),
        (["shop"], {"source_pod_namespace": "", "destination_pod_namespace": ""}, False),
        ([], {}, False),
    ],
)
def test_a_user_sees_what_is_between_own_namespaces_or_outside_of_the_cluster(
    namespaces: list[str], more: dict[str, Any], passes: bool
) -> None:
    assert matcher({}, namespaces)(record(**more)) is passes


@pytest.mark.parametrize(
    "asked", [{"since": "1h"}, {"limit": "5"}, {"port": "x"}, {"action": "x"}, {"srcip": "x"}]
)
def test_what_is_no_filter_of_a_stream_is_refused(asked: dict[str, str]) -> None:
    with pytest.raises(Invalid, match=next(iter(asked))):
        matcher(asked, None)
