"""What the controller computes: feeds write facts, the features' units make groups, the front is told."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from antrea.apis import system
from antrea.apis.core import ObjectReference
from antrea.apis.egress_address import EgressAddress
from antrea.apis.status import Status
from antrea.controller.abreast import Abreast
from antrea.controller.heard import Heard
from antrea.controller.leaders_sink import LeadersSink
from antrea.controller.policy_metrics import policy_metrics
from antrea.controller.publish import PublishSink
from antrea.controller.term import term
from antrea.engine import Engine
from antrea.errors import Unavailable
from antrea.features.egress import controller as egress
from antrea.features.event import Tell
from antrea.features.external_ip_pool import controller as external_ip_pool
from antrea.features.grouping import controller as grouping
from antrea.features.grouping.publication import ENTRIES, TOLD
from antrea.features.network_policy import controller as network_policy
from antrea.features.network_policy import native
from antrea.features.network_policy.realization import NodeReport, report_key
from antrea.outside.egress_address import EgressAddressSink
from antrea.outside.kube_feed import KindFeed
from antrea.outside.status import StatusSink
from antrea.outside.voice import Voice

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Iterable

    from antrea.controller.front_process import Publisher
    from antrea.controller.replica import Replica
    from antrea.engine import Facts
    from antrea.features.controller import ControllerFeature

QUIET_SECONDS = 3.0
FEATURES: tuple[ControllerFeature, ...] = (
    grouping.FEATURE,
    egress.FEATURE,
    external_ip_pool.FEATURE,
    network_policy.FEATURE,
    native.FEATURE,
)


def active(gates: Collection[str]) -> tuple[ControllerFeature, ...]:
    """The features that these gates leave on."""
    return tuple(feature for feature in FEATURES if not feature.gate or feature.gate in gates)


def published(features: Iterable[ControllerFeature]) -> frozenset[str]:
    """Plurals of what these features tell agents; all others stay empty."""
    return frozenset(plural for feature in features for plural in feature.publishes)


class Computation:
    """What runs for the features that are on."""

    def __init__(
        self, features: Collection[ControllerFeature], facts: Facts, ours: Replica, publisher: Publisher
    ) -> None:
        """`ours` has an API server. Raises Unavailable else."""
        kube = ours.kube
        if kube is None:
            raise Unavailable("an API server")
        self._kube, self._lead = kube, ours.lead
        self._watched = watched = [one for feature in features for one in feature.watched]
        kinds = tuple(one.fact for one in watched)
        self._sink = sink = PublishSink(publisher, self._left, published(features))
        self._facts = facts
        self._statuses = StatusSink(kube)
        statuses = LeadersSink(self._statuses, ours.lead)
        self._engine = Engine(
            facts,
            [unit for feature in features for unit in feature.units],
            {
                **dict.fromkeys(ENTRIES, sink),
                Status: statuses,
                EgressAddress: EgressAddressSink(kube, facts),
            },
            {Tell: self._tell},
            sweeps={TOLD: kinds},
        )
        statuses.follow(self._engine.resync)
        for off in (one.fact for feature in FEATURES if feature not in features for one in feature.watched):
            facts.synced(off)  # nothing of it counts, and that is known
        abreast = Abreast(kube)
        self._heard = Heard(facts, lambda: any(feed.trouble for feed in self._feeds.values()), abreast.of)
        self._feeds = {
            one.path: KindFeed(
                kube, one.path, one.kind, fact=one.fact, row=one.row, heard=self._heard.of(one.fact)
            )
            for one in watched
        }
        for one in watched:
            abreast.watch(one, self._feeds[one.path])

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._engine.run(), name="engine")
            for path, feed in self._feeds.items():
                tasks.create_task(feed.run(self._facts), name=f"feed of {path}")
            tasks.create_task(self._heard.run(), name="heard")
            tasks.create_task(self._lead.meanwhile(self._term), name="term")

    async def _tell(self, event: Tell) -> None:
        about = ObjectReference(event.kind, event.name, "", event.uid, event.api_version)
        voice = Voice(about, "antrea-controller")
        await voice.tell(self._kube, event.reason, event.message, warning=event.warning)

    def _term(self) -> Coroutine[Any, Any, None]:
        return term(self._kube, self._facts, self._watched)

    def counts(self) -> system.NetworkPolicyControllerInfo:
        """How much there is for policies now."""
        found = self._sink.counts()
        return system.NetworkPolicyControllerInfo(
            network_policy_num=found["networkpolicies"],
            address_group_num=found["addressgroups"],
            applied_to_group_num=found["appliedtogroups"],
        )

    def metrics(self) -> str:
        """What was computed since this process started, in Prometheus' format."""
        return policy_metrics(self._sink.processed + self._statuses.written)

    def _left(self, policy: str, nodes: Iterable[str]) -> None:
        """What these Nodes have reported of a policy is no longer true."""
        for node in nodes:
            self._facts.drop(NodeReport, report_key(policy, node))

    async def caught_up(self) -> None:
        """Returns when the front has been told of all that feeds have heard; gives up waiting for a pause in changes.

        Raises Unavailable while a feed is interrupted.
        """
        for path, feed in self._feeds.items():
            if feed.trouble:
                raise Unavailable(f"{path} is not watched now: {feed.trouble}")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(QUIET_SECONDS):
                await self._engine.quiet(reports=False)
