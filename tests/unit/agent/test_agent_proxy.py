"""Effects of Services: Events and conditions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from agent_context import agent_context

from antrea.apis.crd.info import AgentCondition
from antrea.engine import Facts
from antrea.facts.node import Transport
from antrea.facts.unrealized import Unrealized
from antrea.features.proxy.agent_part.part import ProxyPart
from antrea.features.proxy.direct_path import HOP_UNITS
from antrea.features.proxy.dsr_no_tunnel import PathRefused

if TYPE_CHECKING:
    from antrea.apis.core import ObjectReference


class Api:
    """Stands where kube-apiserver stands: it takes an Event."""

    def __init__(self) -> None:
        self.event = asyncio.get_running_loop().create_future()

    async def create_event(self, about: ObjectReference, reason: str, message: str, **_: Any) -> None:
        self.event.set_result((about.kind, about.name, reason, message))


async def test_that_nft_refuses_the_rules_of_direct_return_is_an_event_of_the_node_and_a_condition() -> None:
    facts, api = Facts(), Api()
    part = ProxyPart(agent_context(facts, kube=api))
    await part.acts()[PathRefused](PathRefused("hops", (False,), message="nft refuses"))
    async with asyncio.timeout(5):
        assert await api.event == ("Node", "n1", "LoadBalancerModeUnavailable", "nft refuses")
    check = part.conditions()["LoadBalancerModeUnavailable"]
    for one in part.conditions():  # the CRD has them
        msgspec.convert({"type": one, "status": "True", "lastHeartbeatTime": ""}, AgentCondition)
    assert check() == ""
    facts.put(Transport("eth0", "eth0", "", 1500, ()))
    facts.replace(
        Unrealized, [Unrealized(unit.name, "self", "NftHops True: no such file") for unit in HOP_UNITS]
    )
    assert check() == (
        "nft refuses the rules of IPv4 and IPv6 that pass packets on to other Nodes (no such file): packets to Endpoints "
        "there are served in mode nat instead of dsr; the rules need kernel module nft_dup_ipv4 and nft_dup_ipv6 and interface eth0"
    )
