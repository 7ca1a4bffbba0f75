"""A line of the flow log is CSV of what a record has, whether anything in it has to be quoted or not."""

from __future__ import annotations

import csv
import io

import pytest

from antrea.apis.flow import FlowRecord
from antrea.apis.shown import one_line
from antrea.flow_aggregator.log_line import log_line

SPECIAL = ("", *',"\\\n\r\t\0 \x1b\u2028é')
ACTIONS = {0: "", 1: "Allow", 2: "Drop", 3: "Reject"}
TYPES = {0: "", 1: "K8sNetworkPolicy", 2: "AntreaNetworkPolicy", 3: "AntreaClusterNetworkPolicy"}
PROTOCOLS = {1: "ICMP", 2: "IGMP", 6: "TCP"}


@pytest.mark.parametrize("pretty", [False, True])
@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("special", SPECIAL)
def test_a_line_of_the_log_is_csv_of_what_is_shown(special: str, place: int, pretty: bool) -> None:
    names = ["a"] * 4
    for text in (special, f"{special}a", f"a{special}b", f"{special}{special}"):
        for number in (0, 1, 3, 6, 9):
            names[place] = text
            is_shown(names, number, pretty=pretty)


def is_shown(names: list[str], number: int, *, pretty: bool) -> None:
    record = FlowRecord(
        source_pod_name=names[0], destination_service_port_name=names[1], egress_name=names[2],
        app_protocol_name=names[3], egress_network_policy_rule_action=number,
        egress_network_policy_type=number, protocol_identifier=number,
    )  # fmt: skip
    line = log_line(record, pretty=pretty, requests=True)
    [row] = csv.reader([line])
    assert [row[7], row[16], row[27], row[29]] == [one_line(name) for name in names]
    as_number = (str(number), str(number), str(number))
    worded = (
        PROTOCOLS.get(number, str(number)),
        ACTIONS.get(number, "Invalid"),
        TYPES.get(number, "Invalid"),
    )
    assert (row[6], row[25], row[26]) == (worded if pretty else as_number)
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(row)
    assert (line, len(row)) == (out.getvalue(), 32)
