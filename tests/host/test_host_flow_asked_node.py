"""A connection from outside to a Pod of another Node is exported by the Node that was asked, with the source that the Pod sees: real packets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from flow_node import BOTH_ENDS, KINDS, REMOTE, FlowNode, said, until
from policy_node import NODES, OUTSIDE
from proxy_node import EXTERNAL, GATEWAYS, LONG, PROXY_ALL, SERVICE, endpoints

from antrea.apis.flow import FlowRecord, FlowType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Namespaces


@pytest.fixture
def node(netns: Namespaces) -> Iterator[FlowNode]:
    with FlowNode(netns).standing() as found:
        yield found


async def test_the_node_that_was_asked_exports_the_client_and_the_source_that_the_pod_sees(
    node: FlowNode,
) -> None:
    peer = node.plug_pod_of_peer()
    for row in (SERVICE, *endpoints(REMOTE, "n2")):
        node.facts.put(row)
    async with node.exporting(PROXY_ALL) as got:
        with node.serving(peer, BOTH_ENDS):
            for places, port, service_ips in ((NODES, 30080, ("", "")), (EXTERNAL, 80, EXTERNAL)):
                for family, ip in enumerate(places):
                    for kind, protocol in KINDS.items():
                        answer = await node.ask("outside", ip, kind, port, LONG)
                        gateway, _, seen = answer.partition(" ")
                        assert gateway == GATEWAYS[family], (ip, kind)
                        name = f"shop/web:{'tcp' if protocol == 6 else 'udp'}"
                        expected = (OUTSIDE[family], REMOTE[family], 8080, name, port, service_ips[family])
                        found = await until_of(got, protocol, gateway, int(seen))
                        assert said(found[0]) == expected
                        assert not found[0].destination_pod_name


async def until_of(got: list[FlowRecord], protocol: int, ip: str, port: int) -> list[FlowRecord]:
    await until(lambda: by_source(got, protocol, ip, port))
    return by_source(got, protocol, ip, port)


def by_source(got: list[FlowRecord], protocol: int, ip: str, port: int) -> list[FlowRecord]:
    """Those of connections from outside whose Pod sees this source."""
    wanted = (FlowType.FROM_EXTERNAL, protocol, ip, port)
    return [
        one
        for one in got
        if (one.flow_type, one.protocol_identifier, one.proxy_snat_ip, one.proxy_snat_port) == wanted
    ]
