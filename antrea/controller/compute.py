"""What the controller computes: feeds write facts, the features' units make groups, the front is told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antrea.controller.publish import PublishSink
from antrea.engine import Engine
from antrea.features.egress import controller as egress
from antrea.features.grouping import controller as grouping
from antrea.features.grouping.publication import RESOURCES, GroupHead, Membership
from antrea.outside.kube_feed import KindFeed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from antrea.controller.front_process import Publisher
    from antrea.engine import Facts
    from antrea.features.controller import ControllerFeature
    from antrea.outside.kube import Kube

FEATURES: tuple[ControllerFeature, ...] = (grouping.FEATURE, egress.FEATURE)


def active(gates: Collection[str]) -> tuple[ControllerFeature, ...]:
    """The features that these gates leave on."""
    return tuple(feature for feature in FEATURES if not feature.gate or feature.gate in gates)


def published(features: Iterable[ControllerFeature]) -> frozenset[str]:
    """Plurals of what these features tell agents; all others stay empty."""
    return frozenset(plural for feature in features for plural in feature.publishes)


async def compute(
    features: Collection[ControllerFeature], facts: Facts, kube: Kube, publisher: Publisher
) -> None:
    """Until cancelled."""
    watched = [one for feature in features for one in feature.watched]
    kinds = tuple(one.fact for one in watched)
    sink = PublishSink(publisher)
    engine = Engine(
        facts,
        [unit for feature in features for unit in feature.units],
        {GroupHead: sink, Membership: sink},
        sweeps={RESOURCES.index(plural): kinds for plural in published(features)},
    )
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(engine.run(), name="engine")
        for one in watched:
            feed = KindFeed(kube, one.path, one.kind, fact=one.fact, row=one.row)
            tasks.create_task(feed.run(facts), name=f"feed of {one.path}")
