"""Reports of Nodes to the controller: posted after a change and to another connection, and forgotten when they stay away."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, cast

import msgspec

from antrea.apis.crd.bgp import BGPPolicy
from antrea.engine import Facts
from antrea.errors import Unavailable
from antrea.features.bgp_policy.advertised import NodeAdvertisement, NodeSpeaker, ReportsComplete
from antrea.features.bgp_policy.advertisement import AdvertisedPrefix
from antrea.features.bgp_policy.agent_part.control import FrrControl
from antrea.features.bgp_policy.agent_part.summary_report import SummaryReport
from antrea.features.bgp_policy.controller_part import BgpControllerPart
from antrea.features.bgp_policy.policy import EffectivePolicy, policy_row
from antrea.features.bgp_policy.route_type import SERVICE_TYPES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from antrea.features.framework.controller_part import ControllerContext
    from antrea.outside.kube.client import Kube

SPEC = {"nodeSelector": {}, "localASN": 64512}
POLICY = msgspec.convert({"metadata": {"name": "p", "uid": "p"}, "spec": SPEC}, BGPPolicy)
PREFIX = AdvertisedPrefix("203.0.113.5/32", SERVICE_TYPES["LoadBalancerIP"], "default/web")


class Controller:
    """The end of a connection, which keeps what is posted."""

    def __init__(self) -> None:
        self.posted: list[dict[str, Any]] = []
        self.fails = False

    async def create(self, path: str, body: dict[str, Any]) -> None:
        assert path == "/apis/controlplane.antrea.io/v1beta2/nodebgpsummaries"
        if self.fails:
            raise Unavailable("no answer")
        self.posted.append(body)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110 (facts have no event for it)
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def running(work: Any) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_node_posts_what_changed_and_again_to_another_controller(tmp_path: Path) -> None:
    facts, control, first, second = Facts(), FrrControl(tmp_path), Controller(), Controller()
    connected: list[Controller | None] = [None]
    report = SummaryReport(facts, "n1", control, lambda: cast("Kube | None", connected[0]), pause=0.01)
    control.advertised = frozenset({PREFIX.prefix})
    async with running(report.run()):
        facts.put(PREFIX)
        connected[0] = first
        await asyncio.sleep(0.1)
        assert first.posted == []  # no policy selects the Node
        first.fails = True
        facts.put(EffectivePolicy(policy_row(POLICY)))
        await asyncio.sleep(0.1)
        first.fails = False
        await until(lambda: len(first.posted) == 1)
        assert first.posted[0]["objects"] == (
            {"kind": "Service", "namespace": "default", "name": "web", "ipFamilies": ("IPv4",)},
        )
        connected[0] = second
        await until(lambda: second.posted == first.posted)
        facts.drop(AdvertisedPrefix, PREFIX.key)
        await until(lambda: len(second.posted) == 2)
        assert not second.posted[1].get("objects")
        facts.drop(EffectivePolicy, "self")
        await asyncio.sleep(0.1)
        assert len(second.posted) == 2


async def test_a_node_without_reports_is_forgotten() -> None:
    facts = Facts()
    context = cast("ControllerContext", type("Context", (), {"facts": facts}))
    facts.put(NodeSpeaker("n1", (), 1))
    facts.put(NodeAdvertisement("n1", "Service/default/web", ("IPv4",)))
    facts.put(NodeSpeaker("n2", (), 1))

    async def reports() -> None:
        for serial in range(2, 10_000):
            facts.put(NodeSpeaker("n2", (), serial))
            await asyncio.sleep(0.01)

    async with running(BgpControllerPart(context, silence=1.0, look=0.02).run()), running(reports()):
        await until(lambda: facts.get(NodeSpeaker, "n1") is None)
        assert facts.all(NodeAdvertisement) == []
        assert facts.get(NodeSpeaker, "n2") is not None
        await until(lambda: facts.get(ReportsComplete) is not None)
