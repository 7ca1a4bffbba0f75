"""The controller's answers as antctl prints them, compared with what upstream v2.3.2 printed of the same answers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from antrea.antctl.commands import DATA_COMMANDS
from antrea.antctl.output import render
from antrea.errors import Invalid

if TYPE_CHECKING:
    from antrea.features.framework.command import DataCommand

GOLDEN = Path(__file__).parents[2] / "golden" / "antctl"


def recorded(name: str) -> str:
    return "".join(
        line
        for line in (GOLDEN / name).read_text().splitlines(keepends=True)
        if not line.startswith(("# $", "# <", "# exit"))
    )


def command(name: str) -> DataCommand:
    return next(row for row in DATA_COMMANDS if row.name == name)


def printed(name: str, answer: Any, form: str = "table", **options: str) -> str:
    row = command(name)
    shaped = row.shape(answer, {k.replace("_", "-"): v for k, v in options.items()}) if row.shape else answer
    if form == "table" and row.text:
        return row.text(shaped)
    return render(shaped, form, row.columns, ordered=row.ordered)


def test_antctl_policies_are_printed_as_upstream_does_in_both_orders() -> None:
    answer = {"items": json.loads(recorded("get-networkpolicy.json"))}
    assert printed("networkpolicy", answer) == recorded("get-networkpolicy.table")
    by_priority = printed("networkpolicy", answer, sort_by="effectivePriority")
    assert by_priority == recorded("get-networkpolicy.sort.table")
    one = answer["items"][0]
    assert json.loads(printed("networkpolicy", one, "json")) == one


def test_antctl_sorts_by_any_field_and_names_one_that_is_not_there() -> None:
    rows = [
        {"metadata": {"name": name}, "sourceRef": {"name": "x"}, "priority": p}
        for name, p in (("b", 10.0), ("a", 9.0))
    ]
    assert [
        r["metadata"]["name"]
        for r in json.loads(printed("networkpolicy", {"items": rows}, "json", sort_by="{.priority}"))
    ] == ["a", "b"]
    for field, says in (
        (".metadata.uid", "couldn't find any field with path '.metadata.uid'"),
        (".metadata", "neither text nor a number"),
    ):
        with pytest.raises(Invalid, match=re.escape(says)):
            printed("networkpolicy", {"items": rows}, sort_by=field)


def test_antctl_address_groups_are_printed_as_upstream_does_but_count_what_is_hidden() -> None:
    row = command("addressgroup")
    table = render(json.loads(recorded("get-addressgroup.json")), "table", row.columns, ordered=True)
    # upstream says 2 where three addresses are not shown
    assert table == recorded("get-addressgroup.table").replace(
        "10.244.0.4 + 2 more...", "10.244.0.4 + 3 more..."
    )


def test_antctl_members_show_their_addresses_as_text() -> None:
    group = {
        "metadata": {"name": "g"},
        "groupMembers": [
            {"pod": {"name": "web-1", "namespace": "shop"}, "ips": ["AAAAAAAAAAAAAP//CvQAAg=="], "ports": [{"port": 80}]},
            {"node": {"name": "n1"}, "ips": ["rB4ACw==", "/QAAAAAAAAAAAAAAAAAAAQ=="]},
            {"service": {"name": "dns", "namespace": "kube-system"}},
        ],
    }  # fmt: skip
    pod = {"pod": {"name": "web-1", "namespace": "shop"}, "ip": "10.244.0.2", "ports": [{"port": 80}]}
    node = {"node": {"name": "n1"}, "ip": "172.30.0.11, fd00::1"}
    service = {"service": {"name": "dns", "namespace": "kube-system"}}
    assert json.loads(printed("addressgroup", {"items": [group]}, "json")) == [
        {"name": "g", "pods": [pod, service], "nodes": [node]}
    ]
    # upstream's antctl panics on a group that has a Node or a Service
    assert printed("appliedtogroup", {"items": [group]}) == (
        "NAME PODS                         \ng    kube-system/dns,n1,shop/web-1\n"
    )
    assert printed("appliedtogroup", {"items": []}) == "\n"


def test_antctl_latencies_are_a_row_for_each_address_and_say_which_never_answered() -> None:
    asked, answered = "2026-11-27T00:00:10Z", "2026-11-27T00:00:11Z"
    four = {
        "targetIP": "10.10.1.1",
        "lastSendTime": asked,
        "lastRecvTime": answered,
        "lastMeasuredRTTNanoseconds": 711402,
    }
    six = {
        "targetIP": "fd74:1::1",
        "lastSendTime": asked,
        "lastRecvTime": None,
        "lastMeasuredRTTNanoseconds": 0,
    }
    node = {
        "metadata": {"name": "node-1"},
        "peerNodeLatencyStats": [{"nodeName": "node-2", "targetIPLatencyStats": [four, six]}],
    }
    assert [line.split() for line in printed("nodelatencystats", {"items": [node]}).splitlines()] == [
        ["FROM", "TO", "ADDRESS", "RTT", "SENT", "ANSWERED"],
        ["node-1", "node-2", "10.10.1.1", "0.711ms", asked, answered],
        ["node-1", "node-2", "fd74:1::1", "<NONE>", asked, "<NONE>"],
    ]
    assert printed("nodelatencystats", node) == printed("nodelatencystats", {"items": [node]})
    assert printed("nodelatencystats", {"metadata": {"name": "alone"}}) == "\n"


def test_antctl_controller_info_is_printed_without_what_every_object_has() -> None:
    info = json.loads(recorded("get-controllerinfo.json"))
    head = {"kind": "AntreaControllerInfo", "apiVersion": "v1", "metadata": {"name": "x"}}
    answer = {**head, **info, "apiPort": 10349}
    assert json.loads(printed("controllerinfo", answer, "json")) == info
    assert printed("controllerinfo", answer) == recorded("get-controllerinfo.table")


@pytest.mark.parametrize("case", ["api1-cache1", "missing"])
def test_antctl_an_evaluation_is_printed_as_upstream_does(case: str) -> None:
    answer = json.loads(recorded(f"query-networkpolicyevaluation.{case}.json"))
    assert printed("networkpolicyevaluation", answer) == recorded(
        f"query-networkpolicyevaluation.{case}.table"
    )


def test_antctl_an_evaluation_needs_two_pods() -> None:
    body = command("networkpolicyevaluation").body
    assert body is not None
    assert body({"source": "shop/web-1", "destination": "db-1"})["request"] == {
        "source": {"pod": {"namespace": "shop", "name": "web-1"}},
        "destination": {"pod": {"namespace": "default", "name": "db-1"}},
    }
    for options in ({"source": "a/b"}, {"source": "a/b/c", "destination": "d"}):
        with pytest.raises(Invalid, match="must be given as <Namespace>/<name>"):
            body(options)


def test_antctl_an_endpoint_is_printed_in_upstreams_sections() -> None:
    answer = json.loads(recorded("query-endpoint.db-1.json"))
    assert printed("endpoint", answer) == recorded("query-endpoint.db-1.table")
    bare = {"endpoints": [{"namespace": "shop", "name": "x", "policies": None}]}
    assert printed("endpoint", bare) == (
        "Endpoint shop/x\nApplied Policies on Endpoint: None\n\n"
        "Egress Rules Referencing Endpoint as Destination: None\n\n"
        "Ingress Rules Referencing Endpoint as Source: None\n\n"
    )
