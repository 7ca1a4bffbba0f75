"""What a query of the store of records becomes: bounded, with each value as a parameter; bad ones are named."""

from __future__ import annotations

import pytest

from antrea.errors import Invalid
from antrea.flow_aggregator.query import QUERIES
from antrea.outside.clickhouse.store import parameter_text

HOSTILE = "x' OR 1=1 --"


@pytest.mark.parametrize("name", QUERIES)
def test_every_query_is_bounded_and_reads_only(name: str) -> None:
    sql, values, _ = QUERIES[name]({}, None)
    assert "timeInserted >= now() - {since:UInt32}" in sql
    assert values["since"] == 3600
    assert " LIMIT " in sql
    for setting in ("max_execution_time = 5", "max_memory_usage", "max_result_bytes", "readonly = 1"):
        assert setting in sql


@pytest.mark.parametrize("name", QUERIES)
def test_who_sees_some_namespaces_is_asked_for_both_ends(name: str) -> None:
    sql, values, _ = QUERIES[name]({}, ["shop", HOSTILE])
    for end in ("source", "destination"):
        assert f"({end}PodNamespace = '' OR has({{seen:Array(String)}}, {end}PodNamespace))" in sql
    assert values["seen"] == ["shop", HOSTILE]
    assert HOSTILE not in sql


@pytest.mark.parametrize("key", ["namespace", "pod", "policy", "egress"])
@pytest.mark.parametrize("name", QUERIES)
def test_text_of_the_asker_is_no_text_of_the_statement(name: str, key: str) -> None:
    sql, values, _ = QUERIES[name]({key: HOSTILE}, None)
    assert HOSTILE not in sql
    assert HOSTILE in values.values()


@pytest.mark.parametrize(
    ("asked", "key", "why"),
    [
        ({"Since": "1h"}, "Since", "is not a parameter of flows"),
        ({"since": "yesterday"}, "since", "duration"),
        ({"since": "0"}, "since", "between 1s and 744h"),
        ({"since": "9" * 300 + "h"}, "since", "duration"),
        ({"since": "2027-13-01T00:00:00Z"}, "since", "not a time"),
        ({"until": "9999-01-01T00:00:00Z"}, "until", "2106"),
        ({"srcip": HOSTILE}, "srcip", "not an IP address"),
        ({"dstip": "10.0.0.1/8"}, "dstip", "not an IP address"),
        ({"port": "65536"}, "port", "1 to 65535"),
        ({"port": "²"}, "port", "1 to 65535"),
        ({"protocol": "256"}, "protocol", "up to 255"),
        ({"protocol": "00255"}, "protocol", "up to 255"),
        ({"action": "pass"}, "action", "allow, drop, reject, denied"),
        ({"pod": "a\nb"}, "pod", "printable"),
        ({"policy": "p" * 254}, "policy", "253"),
        ({"namespace": "n" * 254}, "namespace", "253"),
        ({"limit": "1001"}, "limit", "1 to 1000"),
        ({"limit": "-1"}, "limit", "1 to 1000"),
    ],
)
def test_a_bad_value_is_named(asked: dict[str, str], key: str, why: str) -> None:
    with pytest.raises(Invalid, match=why) as refused:
        QUERIES["flows"](asked, None)
    assert refused.value.path == key


def test_values_are_written_as_clickhouse_reads_them() -> None:
    assert parameter_text(5) == "5"
    assert parameter_text("a\\b\tc\n'") == "a\\\\b\\tc\\n'"
    assert parameter_text(["a'b", "c\\"]) == r"['a\'b','c\\']"
    assert parameter_text([]) == "[]"


def test_addresses_are_compared_in_their_one_form() -> None:
    assert QUERIES["flows"]({"srcip": "2001:DB8:0::5"}, None).values["srcip"] == "2001:db8::5"


def test_more_records_than_the_limit_are_not_told_but_said() -> None:
    query = QUERIES["flows"]({"limit": "1"}, None)
    row = list(range(query.sql.partition(" FROM ")[0].count(",") + 1))
    assert query.values["limit"] == 2
    assert query.shape([row, row])["truncated"] is True
    assert query.shape([row]) == {"rows": [query.shape([row])["rows"][0]], "truncated": False}
