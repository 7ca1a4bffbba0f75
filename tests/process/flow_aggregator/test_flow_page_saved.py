"""Each table of the web page as CSV and as JSON: all rows and columns of it, and no value that a spreadsheet would compute."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from test_flow_page_browser import (
    CONNECTION,
    HOSTILE,
    REVERSED,
    ROWS,
    SCRIPT,
    _engine,
    button,
    page_of,
    sign_in,
)

from antrea.apis.flow import FlowRecord

if TYPE_CHECKING:
    from pathlib import Path

    from browser import Page

__all__ = ["_engine"]
pytestmark = pytest.mark.wide
FORMULA = "=HYPERLINK(A1)"
NUMBER = re.compile(r"-?[0-9.]+")
VIEWS = {
    "flows": ["flows"],
    "map?by=endpoint": ["map"],
    "top?by=policy": ["top"],
    "egress": ["egress"],
    "policies": ["policies"],
    "nodes": ["nodes"],
    CONNECTION: ["connection", "requests-http", "requests-grpc"],
    CONNECTION.replace("source=4001", "source=4002"): ["connection", "requests-dns"],
    CONNECTION.replace("source=4001", "source=4003"): ["connection", "requests-tls"],
}
"""Views with their tables, in their order."""
REQUESTS = {
    "3": {"http_method": "GET", "hostname": "a", "url": FORMULA, "status": 404, "length": 1500},
    "5": {"hostname": "a", "url": f"/{SCRIPT}", "status": 200, "http_user_agent": "+1", "length": 0},
    "7": {"hostname": "a", "url": "/a.B/C", "status": 200, "grpc_status": 5, "length": 0},
}
LOOK_UP = {"7": {"rrname": "-1", "rrtype": "TXT", "rcode": "NOERROR", "answers": [FORMULA, "b"]}}
OF_A_FORMULA = {"ingress_network_policy_name": FORMULA, "ingress_network_policy_namespace": "", "egress_ip": FORMULA, "tcp_state": FORMULA}  # fmt: skip


def records() -> list[FlowRecord]:
    """Connections with requests of each kind."""
    each: list[tuple[str, dict[str, Any]]] = [("http", REQUESTS), ("dns", LOOK_UP), ("tls", {"0": {"sni": "@SUM(A1)", "version": "TLS 1.3"}})]  # fmt: skip
    return [
        FlowRecord(
            **HOSTILE | OF_A_FORMULA | {"source_transport_port": 4001 + at, "app_protocol_name": name},
            http_vals=json.dumps(requests),
        )
        for at, (name, requests) in enumerate(each)
    ]


async def saved(
    page: Page, folder: Path, names: list[str]
) -> dict[str, tuple[list[dict[str, str]], list[dict[str, Any]]]]:
    """Rows of the CSV and of the JSON of each table that is shown."""
    await page.until(f"document.querySelectorAll('main section table').length === {len(names)}")
    found = {}
    for at, name in enumerate(names):
        for number, kind in enumerate(("csv", "json")):
            path = folder / f"{name}.{kind}"
            path.unlink(missing_ok=True)
            button = (
                f"document.querySelectorAll('main section')[{at}].querySelectorAll('.bar button')[{number}]"
            )
            for _ in range(10):  # a busy browser loses a download
                await page.value(f"{button}.click()")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(6):
                        while not path.exists():  # noqa: ASYNC110 (of the browser)
                            await asyncio.sleep(0.05)
                        break
        with (folder / f"{name}.csv").open(newline="") as text:
            found[name] = [*csv.DictReader(text)], json.loads((folder / f"{name}.json").read_text())
    return found


def computed(rows: list[dict[str, str]]) -> list[str]:
    """Cells and names of columns that a spreadsheet would compute."""
    cells = [text for row in rows for text in (*row.keys(), *row.values())]
    return [text for text in cells if text[:1] in tuple("=+-@\t\r\n") and text and not NUMBER.fullmatch(text)]


async def test_each_table_is_saved_whole_and_no_value_is_a_formula(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    async with page_of(tmp_path, *records()) as (page, url, _):
        await page.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
        await sign_in(page, url, "root")
        await page.until(f"{ROWS} === 4")
        for view, names in VIEWS.items():
            await page.value(f"location.hash = '#/{view}'")
            for name, (rows, exact) in (await saved(page, folder, names)).items():
                assert len(rows) == len(exact) > 0, name
                assert [*rows[0]] == [*dict.fromkeys(key for row in exact for key in row)], name
                assert computed(rows) == [], name
                check(name, rows, exact)
        assert page.errors == []


async def test_what_is_recommended_and_what_would_change_is_saved(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    async with page_of(tmp_path) as (page, url, _):
        await page.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
        await sign_in(page, url, "root")
        await page.until(f"{ROWS} === 1")
        await page.value("location.hash = '#/recommend?namespace=shop'")
        await page.until(button("Recommend"))
        await page.value(f"{button('Recommend')}.click()")
        await page.until("document.querySelector('textarea').value.includes('recommended-db')")
        await page.value(f"{button('What would')}.click()")
        for name, (rows, exact) in (await saved(page, folder, ["recommended", "replayed"])).items():
            assert len(rows) == len(exact) > 0, name
            assert computed(rows) == [], name
            names = {"recommended": "recommended-db", "replayed": "workload/shop/web"}
            assert names[name] in [*rows[0].values()], name
        assert page.errors == []


def check(name: str, rows: list[dict[str, str]], exact: list[dict[str, Any]]) -> None:
    """Values of some tables; those of JSON are as they are."""
    if name == "flows":
        by_port = {(row["sourcePodName"], row["sourceTransportPort"]): row for row in rows}
        assert by_port.keys() == {("web", "4000"), *((SCRIPT, str(port)) for port in (4001, 4002, 4003))}
        row = by_port[SCRIPT, "4001"]
        assert (row["destinationPodName"], row["egressNodeName"], row["egressIP"]) == (
            REVERSED,
            "'=1+1",
            f"'{FORMULA}",
        )
        assert {one["egressIP"] for one in exact} == {"", FORMULA}
        assert {one["octetTotalCount"] for one in exact} == {0, 5000}
    if name == "requests-http":
        assert [(row["number"], row["url"], row["http_user_agent"]) for row in rows] == [("3", f"'{FORMULA}", ""), ("5", f"/{SCRIPT}", "'+1")]  # fmt: skip
    if name == "requests-dns":
        assert [(row["rrname"], row["answers"]) for row in rows] == [("'-1", f"'{FORMULA}; b")]
        assert exact[0]["answers"] == [FORMULA, "b"]
    if name == "policies":
        assert {(row["name"], row["denied"]) for row in rows} >= {(f"'{FORMULA}", "3")}
