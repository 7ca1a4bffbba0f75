"""The compute side of the controller: feeds write facts, units derive policies and groups, and these are published."""

from __future__ import annotations

import asyncio
import contextlib
import os
from functools import partial
from typing import TYPE_CHECKING, Any

from antrea.apis import system
from antrea.apis.core import ObjectReference
from antrea.apis.status import Status
from antrea.controller.compute.metrics import controller_metrics
from antrea.controller.compute.pod_progress import PodProgressPublisher
from antrea.controller.compute.publish_sink import PublishSink
from antrea.controller.compute.watch_barrier import WatchBarrier
from antrea.controller.leader.fencing import lead_after_fencing
from antrea.controller.managed.idle_requests import IdleRequestEvents, stored_collections
from antrea.engine import Engine
from antrea.errors import Unavailable
from antrea.features import FEATURES as FOLDERS
from antrea.features.framework.controller_feature import ControllerFeature
from antrea.features.framework.event import RecordEvent
from antrea.features.framework.gate import is_opened
from antrea.features.framework.plug import declared, merged
from antrea.features.framework.watch_plan import watch_plan
from antrea.features.grouping.publication import ENTRIES, PUBLISHED
from antrea.outside.isolation import Isolation, failures
from antrea.outside.kube.environment import own_config_map
from antrea.outside.kube.event_recorder import EventRecorder
from antrea.outside.kube.leader_only_sink import LeaderOnlySink
from antrea.outside.kube.odd_object import odd_object_metrics
from antrea.outside.kube.resource_feed import ResourceFeed
from antrea.outside.kube.status_sink import StatusSink

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping

    from antrea.controller.apiserver.process import Publisher
    from antrea.controller.leader.replica import Replica
    from antrea.engine import Facts, Sink
    from antrea.features.framework.controller_part import ControllerPart
    from antrea.features.framework.watch_plan import Watch
    from antrea.outside.kube.client import Kube

QUIET_SECONDS = 3.0
FAILURES = failures("controller")
BY_FOLDER = declared(FOLDERS, "controller", ControllerFeature)
"""Controller features by folder of antrea/features."""
FEATURES: tuple[ControllerFeature, ...] = tuple(
    feature for declared_features in BY_FOLDER.values() for feature in declared_features
)


DISABLED: tuple[ControllerFeature, ...] = tuple(
    feature
    for declared_features in declared(FOLDERS, "disabled", ControllerFeature).values()
    for feature in declared_features
)
"""Features that run in place of one whose gate is off, so that no status keeps what that one wrote."""


def active(gates: Collection[str]) -> tuple[ControllerFeature, ...]:
    """The features that these gates leave on, and what takes the place of the others."""
    on = tuple(feature for feature in FEATURES if is_opened(feature.gate, gates))
    return (*on, *(feature for feature in DISABLED if not is_opened(feature.gate, gates)))


def folders_on(gates: Collection[str]) -> frozenset[str]:
    """Names of the folders of which these gates leave anything on."""
    return frozenset(
        name
        for name, features in BY_FOLDER.items()
        if any(is_opened(feature.gate, gates) for feature in features)
    )


def published(features: Iterable[ControllerFeature]) -> frozenset[str]:
    """Plurals of the kinds that these features publish to agents; all others stay empty."""
    return frozenset(plural for feature in features for plural in feature.publishes)


def _idle_requests(kube: Kube, watched: Iterable[Watch]) -> IdleRequestEvents:
    """Events on what nothing acts on; of kinds that are not `watched` it reads the objects itself."""
    stored = stored_collections(each.path for each in watched)
    return IdleRequestEvents(kube, os.environ.get("POD_NAMESPACE", ""), own_config_map(), stored)


class Computation:
    """Computation of the enabled features."""

    def __init__(
        self,
        features: Collection[ControllerFeature],
        facts: Facts,
        ours: Replica,
        publisher: Publisher,
        parts: Collection[ControllerPart] = (),
        isolation: Isolation | None = None,
    ) -> None:
        """`ours` has an API server, and `isolation` runs what fails alone. Raises Unavailable without an API server."""
        kube = ours.kube
        if kube is None:
            raise Unavailable("no API server is configured")
        self._kube, self._lead, self._parts = kube, ours.lead, parts
        self._watched = watched = [watched_kind for feature in features for watched_kind in feature.watched]
        self._sink = sink = PublishSink(publisher, self._left, published(features))
        self._facts, self.isolation = facts, isolation or Isolation()
        self._statuses = StatusSink(kube)
        statuses = LeaderOnlySink(self._statuses, ours.lead)
        sinks: Mapping[type, Sink] = {**dict.fromkeys(ENTRIES, sink), Status: statuses}
        sinks = merged("sink of", (sinks, *(part.sinks() for part in parts)))
        self._engine = Engine(
            facts,
            [unit for feature in features for unit in feature.units],
            sinks,
            merged("act", ({RecordEvent: self._record_event}, *(part.acts() for part in parts))),
            sweeps={PUBLISHED: tuple(each.fact for each in watched)},
        )
        self._replay_when_leading(sinks)
        for off in (
            watched_kind.fact
            for feature in FEATURES
            if feature not in features
            for watched_kind in feature.watched
        ):
            facts.synced(off)  # nothing of it counts, and that is known
        barrier = WatchBarrier(kube)
        self._pod_progress = PodProgressPublisher(
            facts, lambda: any(feed.trouble for feed in self._feeds.values()), barrier.wait
        )
        plan = watch_plan((*watched, *(each for part in parts for each in part.watched())))
        self._idle_requests = _idle_requests(kube, plan)
        self._watches = {watch.name: self._watch_feed(kube, watch) for watch in plan}
        by_fact = {fact: self._watches[watch.name] for watch in plan for fact in watch.rows}
        self._feeds = {each.fact: by_fact[each.fact] for each in watched}
        """Feeds by kind of fact; several kinds may share a watch."""
        for each in watched:
            barrier.watch(each, self._feeds[each.fact])

    def _replay_when_leading(self, sinks: Mapping[type, Sink]) -> None:
        """Write what a replica could not write before it led, once it leads."""
        for sink in set(sinks.values()):
            if isinstance(sink, LeaderOnlySink):
                sink.follow(self._engine.resync)

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._engine.run(), name="engine")
            for name, feed in self._watches.items():
                self._isolate(tasks, f"feed of {name}", partial(feed.run, self._facts))
            for part in self._parts:
                name = type(part).__name__
                self._isolate(tasks, name, part.run)
                leading = partial(self.isolation.keep, f"{name} of the leader", part.run_while_leading)
                tasks.create_task(self._lead.run_while_leading(leading), name=name)
                for what, part_feed in part.feeds().items():
                    self._isolate(tasks, f"feed of {what}", partial(part_feed.run, self._facts))
            tasks.create_task(self._pod_progress.run(), name="progress of Pods")
            self._isolate(tasks, "Events on unsupported settings", self._idle_requests.run)
            tasks.create_task(self._lead.run_while_leading(self._computing_term), name="term")

    def _isolate(self, tasks: asyncio.TaskGroup, name: str, work: Callable[[], Awaitable[object]]) -> None:
        tasks.create_task(self.isolation.keep(name, work), name=name)

    def _watch_feed(self, kube: Kube, watch: Watch) -> ResourceFeed[Any]:
        notes = [self._pod_progress.of(kind) for kind in watch.rows]

        def received(row: Any) -> None:
            for note in notes:
                note(row)
            self._idle_requests.note(watch.path, row)

        return ResourceFeed(
            kube, watch.path, watch.kind, rows=watch.rows, query=watch.query, received=received,
            optional=watch.optional, metadata_only=watch.metadata_only,
        )  # fmt: skip

    async def _record_event(self, event: RecordEvent) -> None:
        about = ObjectReference(event.kind, event.name, event.namespace, event.uid, event.api_version)
        recorder = EventRecorder(about, "antrea-controller")
        await recorder.record(self._kube, event.reason, event.message, warning=event.warning)

    def _computing_term(self) -> Coroutine[Any, Any, None]:
        return lead_after_fencing(self._kube, self._facts, self._watched, feeds=self._feeds)

    def counts(self) -> system.NetworkPolicyControllerInfo:
        """How much there is for policies now."""
        groups = self._sink.counts()
        return system.NetworkPolicyControllerInfo(
            network_policy_num=groups["networkpolicies"],
            address_group_num=groups["addressgroups"],
            applied_to_group_num=groups["appliedtogroups"],
        )

    def metrics(self) -> str:
        """Return counts of computed and waiting jobs since the start of this process, in Prometheus' format."""
        parts_metrics = "".join(part.metrics() for part in self._parts)
        counted = self._sink.processed + self._statuses.written
        parts_metrics += self.isolation.text(FAILURES)
        return controller_metrics(counted, self._engine.workloads()) + odd_object_metrics() + parts_metrics

    def _left(self, policy: str, nodes: Iterable[str]) -> None:
        for part in self._parts:
            part.left_span(policy, nodes)

    async def caught_up(self) -> None:
        """Wait until everything that feeds have received is published; does not wait for a pause in changes.

        Raises Unavailable while a feed is interrupted.
        """
        for feed in self._feeds.values():
            if feed.trouble:
                raise Unavailable(f"{feed.path} is not watched now: {feed.trouble}")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(QUIET_SECONDS):
                await self._engine.quiet(reports=False)
