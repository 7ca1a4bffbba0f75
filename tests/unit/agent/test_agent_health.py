"""What readiness says of feeds: in the words of a user, and of missing rights at once."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, cast

from antrea.agent.api import health as module
from antrea.agent.api.health import SOURCE_NAMES, Health, Readiness
from antrea.agent.feature_set import active, sweeps
from antrea.engine import Engine, Facts
from antrea.engine.pace import Pace
from antrea.errors import Unavailable
from antrea.facts.cluster import Namespace
from antrea.features.framework.gate import GATES

if TYPE_CHECKING:
    from antrea.agent.switch.recovery import SwitchRecovery
    from antrea.facts.fact import Fact
    from antrea.outside.ovsdb.client import Ovsdb

FORBIDDEN = 'namespaces is forbidden: User "antrea-agent" cannot list resource "namespaces"'


async def feeds_check(facts: Facts, *kinds: type[Fact], late: bool = False) -> str:
    """Of an agent whose sweep waits for these kinds."""
    clock = iter([0.0, 1000.0 if late else 0.0])
    engine = Engine(facts, [], sweeps={1: kinds}, pace=Pace(clock=lambda: next(clock, 1000.0)))
    engine.unsynced()
    health = Health(Readiness(), str, str)
    running = asyncio.create_task(health.run(engine))
    await asyncio.sleep(0)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    return health.ready["feeds"]()


async def test_a_feed_that_is_late_is_named_by_what_it_reads() -> None:
    facts = Facts()
    facts.feeds.sources[Namespace] = "namespaces"
    assert await feeds_check(facts, Namespace) == ""
    assert await feeds_check(facts, Namespace, late=True) == (
        "no recent data from kube-apiserver or OVSDB: namespaces"
    )


async def test_a_right_that_is_missing_is_named_at_once() -> None:
    facts = Facts()
    facts.feeds.sources[Namespace], facts.feeds.refusals[Namespace] = "namespaces", FORBIDDEN
    for late in (False, True):
        assert await feeds_check(facts, Namespace, late=late) == (
            f"the right to read namespaces is missing ({FORBIDDEN}): apply the ClusterRole of this version's manifest"
        )


def test_every_feed_that_an_agent_waits_for_has_words() -> None:
    features = active(frozenset(gate.name for gate in GATES if gate.built), node_type="k8sNode")
    resources = {one.fact.__name__ for feature in features for one in feature.watched}
    waited = {kind.__name__ for kinds in sweeps(features).values() for kind in kinds}
    assert waited - resources - set(SOURCE_NAMES) == set()
    assert module.source_name("SteeredThing") == "steered thing"


class SilentSwitch:
    """A program of Open vSwitch that is connected and answers nothing."""

    connected = True
    works = asyncio.Event()

    async def probe(self) -> None:
        raise Unavailable("no answer within 5 s")


async def test_a_switch_that_hangs_is_in_readiness_and_conditions_and_ends_no_agent() -> None:
    silent, health = SilentSwitch(), Health(Readiness(), str, str)
    health.follow(cast("Ovsdb", silent), cast("SwitchRecovery", silent), period=0.01)
    assert (health.switch(), health.database()) == ("", "")
    running = asyncio.create_task(health.run(Engine(Facts(), [])))
    async with asyncio.timeout(10):
        while not (health.switch() and health.database()):  # noqa: ASYNC110 (probes run at their own pace)
            await asyncio.sleep(0.01)
    running.cancel()
    why = "no answer within 5 s"
    assert {name: check() for name, check in health.ready.items()} == {
        "network": "start of antrea-agent",
        "flows": "",
        "switch": why,
        "ovsdb": why,
        "feeds": "",
    }
    assert [health.conditions[kind]() for kind in ("OVSDBConnectionUp", "OpenflowConnectionUp")] == [why, why]
    assert [check() for check in health.live.values()] == ["", ""]
