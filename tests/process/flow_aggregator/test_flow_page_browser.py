"""The web page in a real browser, with the real store: a user signs in, sees records, and no value of them becomes markup."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from browser import Page, browser
from clickhouse_engine import ROOT, engine_folder
from loopback import answering
from test_flow_aggregator_process import halves, running, sent, until
from test_flow_user_antctl import ClusterObjects

from antrea.apis.flow import FlowRecord
from image_build import cache

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.wide
SCRIPT = "<img src=x onerror=window.broken=1><script>window.broken=1</script>\"'`${broken=1}"
REVERSED = "db\u202e0"
HOSTILE: dict[str, Any] = {
    "source_ip": "2001:db8::6", "destination_ip": "2001:db8::7", "source_transport_port": 4001,
    "destination_transport_port": 81, "protocol_identifier": 6, "flow_type": 1, "flow_start_seconds": 101,
    "flow_end_seconds": 111, "source_pod_name": SCRIPT, "source_pod_namespace": "shop", "source_node_name": SCRIPT,
    "destination_pod_name": REVERSED, "destination_pod_namespace": "shop", "destination_node_name": "n1",
    "destination_service_port_name": SCRIPT, "ingress_network_policy_name": SCRIPT, "ingress_network_policy_type": 1,
    "ingress_network_policy_namespace": "shop", "ingress_network_policy_rule_action": 2, "egress_name": SCRIPT,
    "egress_node_name": "=1+1", "app_protocol_name": "http", "octet_delta_count": 5000, "octet_total_count": 5000, "tcp_state": SCRIPT,
}  # fmt: skip
REQUESTS = {
    "3": {"http_method": "GET", "hostname": SCRIPT, "url": f"/{SCRIPT}", "status": 404, "length": 1500},
    "4": SCRIPT,
}
HOSTILE_RECORD = FlowRecord(**HOSTILE, http_vals=json.dumps(REQUESTS))
TEXT = "document.body.innerText"
ROWS = "document.querySelectorAll('tbody tr').length"
NO_MARKUP = "window.broken === undefined && document.querySelectorAll('#app img, #app script, #app style').length === 0"

CONNECTION = "connection?srcip=2001:db8::6&dstip=2001:db8::7&port=81&protocol=6&source=4001&start=101"
INJECTED = (
    "const one = document.createElement('script'); one.append('window.broken = 1'); document.body.append(one)",
    "document.body.setAttribute('onclick', 'window.broken = 1'); document.body.click()",
    "document.getElementById('app').innerHTML = '<img src=x onerror=\"window.broken = 1\">'",
)
"""What a fault of the page would do with a value."""


VIEWS = (
    "flows",
    "nodes",
    "map?by=workload",
    "map?by=endpoint",
    "top?by=policy",
    "egress",
    "policies",
    CONNECTION,
)
LOCK = ROOT / "requirements/page-judge.txt"


def axe() -> str:
    """The source of axe, as requirements/page-judge.txt locks it, installed once on this machine."""

    def install(part: Path) -> None:
        words = ("install", "-q", "--no-deps", "--require-hashes", "--only-binary=:all:", "-r", str(LOCK))
        subprocess.run([sys.executable, "-m", "pip", *words, "--target", str(part)], check=True, timeout=600)

    folder = cache.made("page-judge", cache.digest(LOCK), install)
    return (folder / "axe_playwright_python/axe.min.js").read_text()


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(engine_folder()), *sys.path)))


@contextlib.asynccontextmanager
async def page_of(folder: Path, *more: FlowRecord) -> AsyncIterator[tuple[Page, str, int]]:
    """The page of an aggregator with a connection and `more` in its store, its URL, and the port that takes records."""
    store = {"enable": True, "directory": str(folder / "store"), "commitInterval": "1s"}
    async with answering(ClusterObjects().answer) as cluster:
        text = {
            "clusters": [{"name": "c", "cluster": {"server": cluster}}],
            "contexts": [{"name": "x", "context": {"cluster": "c"}}],
            "current-context": "x",
        }
        (folder / "kubeconfig").write_text(json.dumps(text))
        users = {"apiServer": {"authorizeUsers": True}}
        async with running(folder, store=store, **users) as aggregator:
            first, second = halves()
            both: dict[str, list[FlowRecord]] = {"n1": [first, *more], "n2": [second]}
            for node, records in both.items():
                await (await sent(aggregator.port, node, "tcp", *records)).close()
            url = f"https://127.0.0.1:{aggregator.api}"

            def stored() -> bool:
                return bool(aggregator.get("/recordmetrics")["numRecordsExported"] == 1 + len(more))

            await until((folder / "token").exists, "its token")
            async with browser(folder) as page:
                async with asyncio.timeout(60):
                    while not await asyncio.to_thread(stored):  # noqa: ASYNC110 (another process)
                        await asyncio.sleep(0.1)
                yield page, url, aggregator.port


async def sign_in(page: Page, url: str, token: str, namespaces: str = "") -> None:
    await page.send("Page.navigate", url=f"{url}/ui")
    await page.until("document.querySelector('form.sign-in input[name=token]')")
    await page.type("input[name=token]", token)
    if namespaces:
        await page.type("input[name=namespaces]", namespaces)
    await page.press("Enter", 13)


async def test_a_user_signs_in_and_sees_connections_of_which_nothing_is_executed(tmp_path: Path) -> None:
    async with page_of(tmp_path, HOSTILE_RECORD) as (page, url, _):
        await sign_in(page, url, "root")
        await page.until(f"{ROWS} === 2")
        shown = await page.value(TEXT)
        assert "shop/web" in shown
        assert SCRIPT in shown
        assert "\u202e" not in shown
        assert "shop/db\\u{202e}0" in shown
        (tmp_path / "flows.png").write_bytes(await page.picture())
        for view, there in (("map?by=workload", "svg.map circle"), ("top", "meter"), ("policies", "canvas")):
            await page.value(f"location.hash = '#/{view}'")
            await page.until(f"document.querySelector('{there}')")
            await page.until("!document.querySelector('[role=alert]')")
            assert await page.value(NO_MARKUP)
            (tmp_path / f"{view.partition('?')[0]}.png").write_bytes(await page.picture())
        await page.value("location.hash = '#/flows?action=denied'")
        await page.until(f"{ROWS} === 1 && document.querySelector('tr.denied time')")
        await page.value("document.querySelector('tr.denied a').focus()")
        await page.press("Enter", 13)
        await page.until("document.querySelector('dl.ends')")
        assert "[2001:db8::7]:81" in await page.value(TEXT)
        assert await page.value(NO_MARKUP)
        request = await page.value("[...document.querySelectorAll('tbody')].at(-1).innerText")
        assert request.split("\t")[:2] == ["3", "GET"]
        assert SCRIPT in request
        assert "404" in request
        (tmp_path / "connection.png").write_bytes(await page.picture())
        assert await page.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        await page.send(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}]
        )
        assert await page.value("getComputedStyle(document.body).backgroundColor") == "rgb(13, 17, 23)"
        (tmp_path / "dark.png").write_bytes(await page.picture())
        assert page.errors == []


@pytest.mark.parametrize(
    ("application", "request_of", "cells"),
    [
        ("tls", {"sni": SCRIPT, "version": "TLS 1.3"}, ["7", SCRIPT, "TLS 1.3"]),
        ("dns", {"rrname": "db.shop", "rrtype": "A", "rcode": "NOERROR", "answers": ["10.0.0.1", "10.0.0.2"]}, ["7", "db.shop", "A", "NOERROR", "10.0.0.1,10.0.0.2"]),
    ],
)  # fmt: skip
async def test_requests_of_other_protocols_are_shown(
    application: str, request_of: dict[str, Any], cells: list[str], tmp_path: Path
) -> None:
    more = FlowRecord(**HOSTILE | {"app_protocol_name": application}, http_vals=json.dumps({"7": request_of}))
    async with page_of(tmp_path, more) as (page, url, _):
        await sign_in(page, url, "root")
        await page.until(f"{ROWS} === 2")
        await page.value(f"location.hash = '#/{CONNECTION}'")
        await page.until("document.querySelectorAll('tbody').length === 2")
        assert (await page.value("[...document.querySelectorAll('tbody')].at(-1).innerText")).split(
            "\t"
        ) == cells
        assert await page.value(NO_MARKUP)


async def test_who_left_by_an_egress_ip_is_shown_and_leads_to_the_connections(tmp_path: Path) -> None:
    left = {"egress_name": "out", "egress_ip": "192.0.2.9", "egress_node_name": "n2", "flow_type": 3}
    more = FlowRecord(**HOSTILE | left | {"source_pod_name": "crawler"})
    async with page_of(tmp_path, more) as (page, url, _):
        await sign_in(page, url, "root")
        await page.until(f"{ROWS} === 2")
        await page.value("location.hash = '#/egress'")
        await page.until(f"{ROWS} === 1 && document.title.startsWith('Egress')")
        row = (await page.value("document.querySelector('tbody tr').innerText")).split("\t")
        assert row == ["out", "192.0.2.9", "n2", "shop/crawler", "5.0 kB", "1", "1"]
        (tmp_path / "egress.png").write_bytes(await page.picture())
        await page.value("document.querySelectorAll('tbody a')[1].click()")
        await page.until(f"location.hash === '#/flows?egress=out&pod=shop%2Fcrawler' && {ROWS} === 1")


async def test_a_script_in_the_page_would_not_run(tmp_path: Path) -> None:
    """The policy alone, as if the page had a fault."""
    async with page_of(tmp_path, HOSTILE_RECORD) as (page, url, _):
        await sign_in(page, url, "root")
        await page.until(f"{ROWS} === 2")
        for code in INJECTED:
            await page.value(f"{{ try {{ {code} }} catch {{}} }}")
        assert await page.value(NO_MARKUP)
        assert len(page.errors) >= len(INJECTED) - 1  # the last is an exception, which is caught
        assert all(json.loads(one)["source"] == "security" for one in page.errors), page.errors


async def test_who_may_see_one_namespace_names_it_and_a_wrong_token_is_told(tmp_path: Path) -> None:
    async with page_of(tmp_path, HOSTILE_RECORD) as (page, url, _):
        await sign_in(page, url, "mallory")
        await page.until("document.querySelector('form.sign-in [role=alert]')")
        assert "not, or no longer" in await page.value(TEXT)
        await page.value("document.querySelector('form.sign-in').reset()")
        await page.type("input[name=token]", "ann")
        await page.press("Enter", 13)
        await page.until("document.querySelector('main [role=alert]')")
        assert "namespaces=NAME" in await page.value(TEXT)
        await page.type("input[name=namespaces]", "shop")
        await page.press("Enter", 13)
        await page.until(f"{ROWS} === 2")
        assert await page.value("location.hash") == "#/flows?namespaces=shop"
        # the link alone, in the same tab, is enough
        await page.send("Page.reload")
        await page.until(f"{ROWS} === 2")
        await page.value("[...document.querySelectorAll('header button')].at(-1).click()")
        await page.until("document.querySelector('form.sign-in')")
        assert await page.value("sessionStorage.length") == 0
        await page.value("location.hash = ''")
        await sign_in(page, url, "ann", "db,shop")
        await page.until(f"{ROWS} === 2")
        assert await page.value("document.querySelector('input[name=namespaces]').value") == "db,shop"


async def test_every_view_is_accessible_in_light_and_dark(tmp_path: Path) -> None:
    judge = await asyncio.to_thread(axe)
    async with page_of(tmp_path, HOSTILE_RECORD) as (page, url, _):
        await sign_in(page, url, "mallory")
        await page.until("document.querySelector('form.sign-in [role=alert]')")
        found = {"sign-in": await findings(page, judge)}
        await page.value("document.querySelector('form.sign-in').reset()")
        await page.type("input[name=token]", "root")
        await page.press("Enter", 13)
        for scheme in ("light", "dark"):
            await page.send(
                "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
            )
            for view in VIEWS:
                await page.value(f"location.hash = '#/{view}'")
                await page.until(
                    f"{ROWS} > 0 && document.title.length && !document.querySelector('[role=status]')"
                )
                found[f"{view} {scheme}"] = await findings(page, judge)
        assert {view: rules for view, rules in found.items() if rules} == {}


async def test_live_shows_a_connection_as_it_comes_and_all_is_done_by_keyboard(tmp_path: Path) -> None:
    async with page_of(tmp_path, HOSTILE_RECORD) as (page, url, port):
        await sign_in(page, url, "root")
        await page.until(f"{ROWS} === 2")
        await page.press("Tab", 9)
        assert await page.value("document.activeElement.textContent") == "Skip to the content"
        await page.press("Enter", 13)
        assert await page.value("document.activeElement.id") == "main"
        for _ in range(40):
            if await page.value("document.activeElement.name") == "live":
                break
            await page.press("Tab", 9)
        await page.press(" ", 32)
        await page.until(
            "location.hash === '#/flows?live=1' && document.querySelector('[name=live]').checked"
        )
        await page.until(f"{ROWS} === 2")
        assert await page.value("document.activeElement.name") == "live"
        await page.type("[name=pod]", "half a na")
        later = FlowRecord(**HOSTILE | {"source_transport_port": 4002, "source_pod_name": "later"})
        await (await sent(port, "n1", "tcp", later)).close()
        await page.until(f"{ROWS} === 3 && {TEXT}.includes('shop/later')")
        assert await page.value("document.querySelector('[name=pod]').value") == "half a na"


def button(words: str) -> str:
    return f"[...document.querySelectorAll('main button')].find(one => one.textContent.startsWith('{words}'))"


async def test_a_connection_is_explained_and_policies_are_recommended_and_tried(tmp_path: Path) -> None:
    judge = await asyncio.to_thread(axe)
    async with page_of(tmp_path) as (page, url, _):
        await sign_in(page, url, "root")
        await page.until(f"{ROWS} === 1")
        await page.value("document.querySelector('tbody a').focus()")
        await page.press("Enter", 13)
        await page.until(button("Explain"))
        await page.value(f"{button('Explain')}.click()")
        await page.until("document.querySelector('.card')")
        assert "closed" in await page.value("document.querySelector('.card').innerText")
        assert "smallest change" in await page.value("document.querySelector('.card').innerText")
        found = {"explain": await findings(page, judge)}
        (tmp_path / "explain.png").write_bytes(await page.picture())
        await page.value("location.hash = '#/recommend?namespace=shop'")
        await page.until(button("Recommend"))
        await page.value(f"{button('Recommend')}.click()")
        await page.until("document.querySelector('textarea').value.includes('recommended-db')")
        await page.value(f"{button('What would')}.click()")
        await page.until(f"{TEXT}.includes('connections were judged')")
        (tmp_path / "recommend.png").write_bytes(await page.picture())
        found["recommend"] = await findings(page, judge)
        await page.value("location.hash = '#/nodes'")
        await page.until(f"{TEXT}.includes('nobody listens')")
        (tmp_path / "nodes.png").write_bytes(await page.picture())
        for width, scheme in ((1400, "dark"), (420, "light"), (420, "dark")):
            await page.send(
                "Emulation.setDeviceMetricsOverride",
                width=width,
                height=900,
                deviceScaleFactor=1,
                mobile=False,
            )
            await page.send(
                "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
            )
            for view in ("flows?live=1", "nodes", "map", "recommend?namespace=shop"):
                await page.value(f"location.hash = '#/{view}'")
                await page.until("document.querySelector('main table, main textarea')")
                name = view.partition("?")[0]
                (tmp_path / f"{name}-{width}-{scheme}.png").write_bytes(await page.picture())
                wide = await page.value("document.documentElement.scrollWidth - innerWidth")
                assert wide <= 0, f"{view} is {wide} pixels wider than {width}"
        assert found == {"explain": [], "recommend": []}
        assert page.errors == []


async def findings(page: Page, judge: str) -> list[str]:
    """Rules of axe that the page breaks, of every severity, each with the first element."""
    await page.value(f"{judge}; 1")
    await page.value("axe.run().then(found => { window.judged = found }); 1")
    await page.until("window.judged")
    shown = "one => [one.impact, one.id, one.nodes[0].html.slice(0, 200), one.nodes[0].failureSummary].join(' | ')"
    found: list[str] = await page.value(f"window.judged.violations.map({shown})")
    assert await page.value("window.judged.passes.length") > 10
    await page.value("window.judged = undefined")
    return found
