"""/endpoint says of every Pod that no policy applies to it, and of others that there is none; metrics are joined."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from certificate_world import api_server

from antrea.controller.endpoint import endpoint
from antrea.controller.metrics import joined

NONE = "could not find any endpoints matching your selection\n"
POD: dict[str, dict[str, Any]] = {"/api/v1/namespaces/shop/pods/web-1": {}}


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        (
            {"pod": "web-1", "namespace": "shop"},
            (200, '{"endpoints":[{"namespace":"shop","name":"web-1"}]}\n'),
        ),
        ({"pod": "web-2", "namespace": "shop"}, (404, NONE)),
        ({"pod": "../pods/web-1", "namespace": "shop"}, (404, NONE)),
        ({"pod": "web-1"}, (404, NONE)),
        ({"namespace": "shop"}, (400, "pod must be provided\n")),
    ],
)
async def test_endpoint_answers_for_pods_that_there_are(query: dict[str, Any], answer: Any) -> None:
    async with api_server(POD) as (_, kube):
        app = web.Application()
        app.router.add_get("/endpoint", endpoint(kube))
        async with TestClient(TestServer(app)) as client:
            found = await client.get("/endpoint", params=query)
            assert (found.status, await found.text()) == answer


SERVING = """# HELP antrea_a first
# TYPE antrea_a gauge
antrea_a 1
# HELP process_open_fds Number
# TYPE process_open_fds gauge
process_open_fds 7.0
# HELP python_gc_objects_collected_total Objects
# TYPE python_gc_objects_collected_total counter
python_gc_objects_collected_total{generation="0"} 3.0
"""
COMPUTING = """# HELP process_open_fds Number
# TYPE process_open_fds gauge
process_open_fds 9.0
# HELP antrea_b second
# TYPE antrea_b counter
antrea_b{kind="x"} 2
"""


def test_metrics_of_two_processes_are_one_text_in_which_each_family_is_together() -> None:
    assert joined({"serving": SERVING, "computing": COMPUTING}) == (
        "# HELP antrea_a first\n"
        "# TYPE antrea_a gauge\n"
        "antrea_a 1\n"
        "# HELP process_open_fds Number\n"
        "# TYPE process_open_fds gauge\n"
        'process_open_fds{process="serving"} 7.0\n'
        'process_open_fds{process="computing"} 9.0\n'
        "# HELP python_gc_objects_collected_total Objects\n"
        "# TYPE python_gc_objects_collected_total counter\n"
        'python_gc_objects_collected_total{generation="0",process="serving"} 3.0\n'
        "# HELP antrea_b second\n"
        "# TYPE antrea_b counter\n"
        'antrea_b{kind="x"} 2\n'
    )
