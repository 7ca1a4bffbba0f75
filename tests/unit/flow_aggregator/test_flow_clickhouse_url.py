"""URLs of ClickHouse: those of its native protocol, which upstream's configuration has by default, mean the HTTP interface beside it."""

from __future__ import annotations

import pytest

from antrea.config.flow_aggregator import ClickHouse, FlowAggregatorConfig
from antrea.errors import Invalid
from antrea.flow_aggregator.clickhouse_output import server_of
from antrea.flow_aggregator.clickhouse_url import http_url
from antrea.flow_aggregator.configuration import accept

HOST = "clickhouse-clickhouse.flow-visibility.svc"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (f"tcp://{HOST}:9000", f"http://{HOST}:8123"),
        (f"tls://{HOST}:9440", f"https://{HOST}:8443"),
        ("tcp://10.0.0.9", "http://10.0.0.9:8123"),
        ("tcp://[2001:db8::9]:9000", "http://[2001:db8::9]:8123"),
        (f"https://{HOST}:1234/x", f"https://{HOST}:1234/x"),
    ],
)
def test_a_server_is_asked_over_http(given: str, meant: str) -> None:
    assert http_url(given) == meant
    config = ClickHouse(enable=True, database_url=given)
    accept(FlowAggregatorConfig(click_house=config))
    assert server_of(config).url == meant


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("tcp://clickhouse:19000", "another port than 9000: name the server's HTTP interface"),
        ("tls://clickhouse:9000", "another port than 9440"),
        ("udp://clickhouse:9000", "is not http"),
        ("tcp://", "is not http"),
        ("tcp://clickhouse:x", "Port could not be cast"),
    ],
)
def test_what_names_no_http_interface_is_refused_where_it_is_used_alone(given: str, why: str) -> None:
    accept(FlowAggregatorConfig(click_house=ClickHouse(database_url=given)))
    with pytest.raises(Invalid, match=rf"clickHouse\.databaseURL: .*{why}"):
        accept(FlowAggregatorConfig(click_house=ClickHouse(enable=True, database_url=given)))
