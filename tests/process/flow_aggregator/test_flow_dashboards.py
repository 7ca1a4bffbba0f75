"""The Grafana dashboards of the chart: each panel's statement is one of ClickHouse's, over the columns that the aggregator writes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clickhouse_engine import engine_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

FOLDER = Path(__file__).parents[3] / "build/charts/antrea/dashboards"
RUN = """
import asyncio, json, sys
from pathlib import Path
from antrea.apis.flow import FlowRecord
from antrea.flow_aggregator.clickhouse_output import ClickHouseOutput
from antrea.outside.clickhouse.embedded import EmbeddedClickHouse

async def main():
    store = EmbeddedClickHouse(Path(sys.argv[1]))
    record = FlowRecord(
        flow_end_seconds=1000, source_ip="10.1.0.5", source_pod_name="web", source_pod_namespace="shop",
        source_transport_port=1, destination_ip="192.0.2.7", destination_transport_port=80, octet_delta_count=5,
        destination_service_port_name="shop/db:sql", egress_name="out", egress_ip="192.0.2.9",
        egress_network_policy_name="p", egress_network_policy_namespace="shop", egress_network_policy_rule_action=2,
        app_protocol_name="http", http_vals="{}",
    )
    outside = FlowRecord(
        flow_end_seconds=1000, source_ip="192.0.2.8", source_transport_port=2, destination_ip="10.1.0.5",
        destination_pod_name="web", destination_pod_namespace="shop", destination_transport_port=80,
        ingress_network_policy_name="everywhere", ingress_network_policy_rule_action=3,
        app_protocol_name="http", http_vals="{}",
    )
    await ClickHouseOutput(store, "0").write([outside] if sys.argv[3] else [record, record])
    asked = json.loads(sys.argv[2])
    print(json.dumps([json.loads(await store.run(sql + " FORMAT JSON"))["data"] for sql in asked]))
    await store.close()

asyncio.run(main())
"""
MACROS = {
    r"\$__timeFilter\((\w+)\)": r"\1 >= toDateTime(0) AND \1 <= toDateTime(2000)",
    r"\$__timeInterval\((\w+)\)": r"toStartOfInterval(toDateTime(\1), INTERVAL 60 second)",
}
"""Of the ClickHouse data source, as it replaces them."""


def panels() -> Iterator[tuple[str, str]]:
    for path in sorted(FOLDER.glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                yield panel["title"], target["rawSql"]


def expanded(sql: str) -> str:
    for macro, text in MACROS.items():
        sql = re.sub(macro, text, sql)
    return sql


def shown(folder: Path, monkeypatch: pytest.MonkeyPatch, *, outside: bool) -> dict[str, Any]:
    """Rows of each panel: of a Pod's connection in two records, or of one that a host outside makes."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(engine_folder()), *sys.path)))
    asked = dict(panels())
    assert len(asked) == 7
    statements = json.dumps([expanded(sql) for sql in asked.values()])
    words = [sys.executable, "-c", RUN, str(folder / "store"), statements, "yes" if outside else ""]
    answers = json.loads(subprocess.check_output(words, text=True, timeout=120))
    return dict(zip(asked, answers, strict=True))


def test_a_panel_names_a_host_outside_by_its_address_and_a_cluster_policy_by_its_name_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = shown(tmp_path, monkeypatch, outside=True)
    (request,) = found["HTTP requests"]
    assert (request["source"], request["destination"]) == ("192.0.2.8", "shop/web")
    assert found["Policies"] == [{"policy": "everywhere", "action": "Reject", "connections": 1}]
    assert found["Denied connections by policy"][0]["policy"] == "everywhere"


def test_each_panel_shows_a_connection_and_counts_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = shown(tmp_path, monkeypatch, outside=False)
    assert {title: len(rows) for title, rows in found.items()} == {
        **dict.fromkeys(found, 1),
        "HTTP requests": 2,
    }
    assert found["Who talks to whom"][0] == {
        "source": "shop/web", "destination": "192.0.2.7", "port": 80, "connections": 1, "octets": 10,
    }  # fmt: skip
    assert found["Policies"][0] == {"policy": "shop/p", "action": "Drop", "connections": 1}
    assert found["Denied connections by policy"][0]["policy"] == "shop/p"
    assert found["Denied connections by policy"][0]["denied"] == 1


def test_a_dashboard_takes_its_data_source_from_its_user() -> None:
    for path in FOLDER.glob("*.json"):
        board = json.loads(path.read_text())
        sources = {target["datasource"]["uid"] for panel in board["panels"] for target in panel["targets"]}
        assert sources == {"${datasource}"}
        assert [one["type"] for one in board["templating"]["list"]] == ["datasource"]
