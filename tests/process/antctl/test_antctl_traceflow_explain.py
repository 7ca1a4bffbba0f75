"""What `antctl traceflow` adds of the evaluator, against a cluster on loopback."""

from __future__ import annotations

import asyncio
from typing import Any

from test_antctl_explain import Shop
from test_antctl_explain import shop as shop_fixture

from antrea.antctl.request import Server
from antrea.features.traceflow.antctl_part.prediction import add_explanation
from antrea.outside.kube.kubeconfig import kubeconfig

shop = shop_fixture


async def test_a_trace_is_compared_with_what_is_explained(shop: Shop) -> None:
    server = Server(kubeconfig(shop.kubeconfig), 60.0)

    async def told(port: int, action: str, table: str) -> tuple[dict[str, Any], str]:
        one: dict[str, Any] = {"component": "NetworkPolicy", "componentInfo": table, "action": action}
        header = {"ipHeader": {"protocol": 6}, "transportHeader": {"tcp": {"dstPort": port}}}
        ends = [{"namespace": "shop", "pod": name} for name in ("client", "web")]
        spec = {"source": ends[0], "destination": ends[1], "packet": header}
        trace = {"spec": spec, "status": {"results": [{"observations": [one]}]}}
        found = await asyncio.to_thread(add_explanation, server, trace)
        return found, one["explain"]

    shop.proxied(on=True)
    found, sentence = await told(80, "Forwarded", "IngressRule")
    assert (found["verdict"], found["agrees"]) == ("Allow", True)
    assert sentence == found["because"]
    found, sentence = await told(81, "Dropped", "IngressDefaultRule")
    assert (found["verdict"], found["agrees"]) == ("Drop", True)
    found, _ = await told(81, "Forwarded", "IngressRule")
    assert found["agrees"] is False
    del shop.lists["/api/v1/pods"]
    spec = {"source": {"pod": "a"}, "destination": {"pod": "b"}}
    refused = {"spec": spec, "status": {"results": [{"observations": []}]}}
    assert "pods" in (await asyncio.to_thread(add_explanation, server, refused))["unanswered"]
