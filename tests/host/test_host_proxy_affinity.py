"""Session affinity with packets: a client stays with an Endpoint while its own Service has it, whatever other Services have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from policy_node import OUTSIDE, WEB
from proxy_node import CLUSTER, EXTERNAL, NEAR, PROXY_ALL, SERVER, SERVICE, Node, endpoints

from antrea.facts.service import ServiceEndpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Namespaces

STICKY = msgspec.structs.replace(SERVICE, affinity_seconds=10800)
THEIRS = ("10.96.0.77", "fd00:96::77")
OTHER = msgspec.structs.replace(
    STICKY,
    namespace="stranger",
    ips=THEIRS,
    external_ips=(),
    load_balancer_ips=(),
    node_ports=(0, 0),
)
REFUSED = ("ECONNREFUSED",) * 4


@pytest.fixture
def node(netns: Namespaces) -> Iterator[Node]:
    with Node(netns).standing() as found:
        yield found


async def test_a_client_is_refused_once_its_endpoint_is_another_services_alone(node: Node) -> None:
    theirs = [
        msgspec.structs.replace(row, slice=f"stranger/web-{row.ip}", service=OTHER.key)
        for row in endpoints(WEB)
    ]
    for row in (STICKY, *endpoints(WEB), OTHER, *theirs):
        node.facts.put(row)
    async with node.agent(PROXY_ALL, "AntreaProxy") as engine:
        with node.serving(node.pods["web"], SERVER):
            asked = (("near", CLUSTER, NEAR * 2), ("outside", EXTERNAL, OUTSIDE * 2))
            for who, to, answer in asked:
                for _ in range(2):
                    assert await node.asks(who, to) == answer
            for row in endpoints(WEB):
                node.facts.put(msgspec.structs.replace(row, ready=False, serving=False))
            await engine.quiet()
            for who, to, _ in asked:
                await node.becomes(REFUSED, who, to)
            assert await node.asks("near", THEIRS) == NEAR * 2
            for row in endpoints(WEB):
                node.facts.drop(ServiceEndpoint, row.key)
            await engine.quiet()
            for who, to, _ in asked:
                assert await node.asks(who, to) == REFUSED
        assert not engine.errors.counts
