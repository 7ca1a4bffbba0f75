"""Every view of the web page with records as a cluster has them, in wide and narrow windows, light and dark: pictures to look at.

Nothing is wider than its window, no table of a wide one is cut, and axe finds nothing in any of them.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from test_flow_page_browser import ROWS, _engine, axe, findings, page_of, sign_in

from antrea.apis.flow import FlowRecord, FlowType, RuleAction

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from browser import Page

__all__ = ["_engine"]
pytestmark = [pytest.mark.wide, pytest.mark.timeout(600)]
NOW = int(time.time())
PODS = {
    "web-7d9c6f5b8-x2kqz": ("shop", "10.1.0.11", "node-1"), "web-7d9c6f5b8-mm4zt": ("shop", "10.1.0.12", "node-2"),
    "cart-6bcf8d7c99-8q5vp": ("shop", "10.1.0.21", "node-1"), "orders-db-0": ("shop", "10.1.1.31", "node-2"),
    "ledger-5f7b9c7d4-zz9pl": ("payments", "10.1.2.41", "node-3"), "fraud-detector-84c5d6fbb-h7wxv": ("payments", "fd00:1:2::42", "node-3"),
    "prometheus-k8s-0": ("monitoring", "10.1.1.51", "node-2"), "coredns-76f75df574-4xkfz": ("kube-system", "10.1.0.2", "node-1"),
    "nightly-crawler-28911360-lq7bn": ("analytics-and-reporting", "10.1.2.61", "node-3"),
}  # fmt: skip
LINKS = (
    ("web-7d9c6f5b8-x2kqz", "cart-6bcf8d7c99-8q5vp", 8080, "shop/cart:http", 0),
    ("web-7d9c6f5b8-mm4zt", "cart-6bcf8d7c99-8q5vp", 8080, "shop/cart:http", 0),
    ("cart-6bcf8d7c99-8q5vp", "orders-db-0", 5432, "shop/orders-db:sql", 0),
    ("cart-6bcf8d7c99-8q5vp", "ledger-5f7b9c7d4-zz9pl", 8443, "payments/ledger:https", 0),
    ("ledger-5f7b9c7d4-zz9pl", "orders-db-0", 5432, "", RuleAction.REJECT),
    ("nightly-crawler-28911360-lq7bn", "orders-db-0", 5432, "", RuleAction.DROP),
    ("prometheus-k8s-0", "cart-6bcf8d7c99-8q5vp", 9090, "", 0),
    ("prometheus-k8s-0", "ledger-5f7b9c7d4-zz9pl", 9090, "", RuleAction.DROP),
    ("web-7d9c6f5b8-x2kqz", "coredns-76f75df574-4xkfz", 53, "kube-system/kube-dns:dns", 0),
)
REQUESTS = {
    str(at): {
        "hostname": "cart.shop.svc.cluster.local", "url": url, "http_user_agent": "Mozilla/5.0 (X11; Linux x86_64) Firefox/133.0",
        "http_content_type": "application/json", "http_method": method, "protocol": "HTTP/1.1", "status": status, "length": 400 * at,
    }
    for at, (method, url, status) in enumerate(
        [("GET", "/items?page=2&sort=price", 200), ("POST", "/cart/4711/items", 201), ("GET", f"/search?q={'very-long-' * 30}", 500)]
    )
}  # fmt: skip
OUT = (("nightly-crawler-28911360-lq7bn", "crawlers", "192.0.2.9"), ("ledger-5f7b9c7d4-zz9pl", "billing", "192.0.2.20"), ("fraud-detector-84c5d6fbb-h7wxv", "billing-v6", "2001:db8:77:12ab:34cd:56ef:789a:20"))  # fmt: skip
CONNECTION = f"connection?srcip=10.1.0.11&dstip=10.1.0.21&port=8080&protocol=6&source=40000&start={NOW - 500}"
MARK = "document.querySelectorAll('main table, main textarea').forEach(one => { one.dataset.before = 1 })"
FRESH = "[...document.querySelectorAll('main table, main textarea')].some(one => !one.dataset.before)"
"""Whether there is a table of the view that was asked for, and not only one of the view before."""
WHOLE = 1400
"""Pixels of a window in which tables are whole; in narrower ones they scroll."""
CUT = "Math.max(0, ...[...document.querySelectorAll('main .scroll')].map(one => one.scrollWidth - one.clientWidth))"
VIEWS = (
    "egress", "map?by=namespace", "map?by=workload", "map?by=service", "top?by=source", "top?by=policy", "flows",
    "policies", "recommend?namespace=shop", "nodes", CONNECTION,
)  # fmt: skip


def end(side: str, pod: str) -> dict[str, Any]:
    namespace, ip, node = PODS[pod]
    return {
        f"{side}_pod_name": pod,
        f"{side}_pod_namespace": namespace,
        f"{side}_ip": ip,
        f"{side}_node_name": node,
    }


def records() -> Iterator[FlowRecord]:
    for turn in range(4):
        for at, (source, target, port, service, action) in enumerate(LINKS):
            octets = 10 ** (2 + (at + turn) % 6) + 7 * at
            yield FlowRecord(
                **end("source", source), **end("destination", target), source_transport_port=40_000 + 10 * turn + at,
                destination_transport_port=port, protocol_identifier=17 if port == 53 else 6, flow_type=int(FlowType.INTRA_NODE),
                destination_service_port_name=service, destination_service_port=port if service else 0,
                destination_cluster_ip="10.96.0.9" if service else "",
                flow_start_seconds=NOW - 500, flow_end_seconds=NOW - 30 * at - 200 * turn,
                packet_total_count=9, octet_total_count=octets, octet_delta_count=octets, reverse_octet_total_count=3 * octets,
                reverse_octet_delta_count=3 * octets, tcp_state="" if port == 53 else "ESTABLISHED",
                ingress_network_policy_name="only-from-web-and-monitoring", ingress_network_policy_namespace=PODS[target][0],
                ingress_network_policy_type=2 if action else 1, ingress_network_policy_rule_name="allow-sql" if port == 5432 else "",
                ingress_network_policy_rule_action=int(action or RuleAction.ALLOW),
                app_protocol_name="http" if at == 0 else "", http_vals=json.dumps(REQUESTS) if at == 0 else "",
            )  # fmt: skip
    for at, (source, name, ip) in enumerate(OUT):
        yield FlowRecord(
            **end("source", source), destination_ip="2001:db8::1:7" if ":" in ip else f"198.51.100.{at}", source_transport_port=41_000,
            destination_transport_port=443, protocol_identifier=6, flow_type=int(FlowType.TO_EXTERNAL), egress_name=name, egress_ip=ip,
            egress_node_name=f"node-{at + 1}", flow_start_seconds=NOW - 300, flow_end_seconds=NOW - at,
            octet_total_count=7_000_000, octet_delta_count=7_000_000, tcp_state="ESTABLISHED",
        )  # fmt: skip


async def shape(page: Page, width: int, height: int, scheme: str) -> None:
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    await page.send("Emulation.setDeviceMetricsOverride", **metrics)
    await page.send(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 800, 400])
async def test_every_view_fits_its_window_and_is_accessible(width: int, scheme: str, tmp_path: Path) -> None:
    judge, found = axe(), {}
    async with page_of(tmp_path, *records()) as (page, url, _):
        await shape(page, width, 900, scheme)
        await sign_in(page, url, "root")
        await page.until(f"{ROWS} > 30")
        for view in VIEWS:
            await page.value(f"{MARK}; location.hash = '#/{view}'")
            await page.until(FRESH)
            await page.until("!document.querySelector('main [role=status]:not(.bar)')")
            name = view.replace("?", "-").partition("&")[0].replace("=", "-").replace(":", "")
            tall = await page.value("Math.min(document.documentElement.scrollHeight, 2400)")
            await shape(page, width, tall, scheme)
            (tmp_path / f"{name}-{width}-{scheme}.png").write_bytes(await page.picture())
            wider = await page.value("document.documentElement.scrollWidth - innerWidth")
            cut = await page.value(CUT) if width >= WHOLE else 0
            found[view] = [
                *([f"{wider} pixels too wide"] if wider > 0 else []),
                *([f"{cut} pixels of a table are cut"] if cut > 0 else []),
                *await findings(page, judge),
            ]
            await shape(page, width, 900, scheme)
        assert {view: why for view, why in found.items() if why} == {}
        assert page.errors == []
