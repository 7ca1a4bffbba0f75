"""A Pod starts when the controller's word covers it: not before, not for ever later, and never again for the same Pod."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from antrea.agent.cni import policy_gate
from antrea.agent.cni.policy_gate import PolicyGate
from antrea.apis import controlplane as cp
from antrea.apis.meta import ObjectMetadata
from antrea.engine import Engine, Facts
from antrea.errors import Unavailable
from antrea.facts.pod import LocalPod
from antrea.facts.service import Service
from antrea.features.network_policy.agent.received import SentPolicy
from antrea.features.network_policy.agent.service import lacking_services

if TYPE_CHECKING:
    from collections.abc import Callable

SOON = 0.05


class Controller:
    """What has been heard of it."""

    def __init__(self) -> None:
        self.processed = -1.0
        self.trouble = ""
        self.listeners: list[Callable[[], None]] = []

    def says(self, version: float) -> None:
        self.processed = version
        for tell in self.listeners:
            tell()


class World:
    def __init__(self, *, fail_open: bool = False) -> None:
        self.facts = Facts()
        self.controller = Controller()
        self.gate = PolicyGate(self.facts, self.controller, fail_open=fail_open, lacking=(lacking_services,))

    async def wait(self, pod: str = "ns/a", uid: str = "u1") -> str:
        """What is missing, empty if nothing is."""
        try:
            await self.gate.wait(pod, uid)
        except Unavailable as error:
            return error.what
        return ""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_gate, "SECONDS", SOON)
    monkeypatch.setattr(policy_gate, "FIRST_SECONDS", SOON)


LATE = " not received within 0.05 s"


async def test_a_pod_waits_for_the_controller_to_come_as_far_as_its_version() -> None:
    world = World()
    world.facts.put(LocalPod("ns", "a", "u1", 7))
    world.controller.says(6)
    waits = asyncio.create_task(world.wait())
    await asyncio.sleep(0)
    assert not waits.done()
    world.controller.says(7)
    assert await waits == ""


async def test_a_word_that_comes_as_the_time_is_over_is_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_gate, "SECONDS", 0.0)
    world = World()
    world.facts.put(LocalPod("ns", "a", "u1", 7))
    world.controller.says(6)
    waits = asyncio.create_task(world.wait())
    await asyncio.sleep(0)
    world.controller.says(7)
    assert await waits == ""
    assert world.gate.starts.counts == {"waited": 1}


async def test_a_pod_that_nobody_has_heard_of_waits_for_kube_apiserver() -> None:
    world = World()
    world.controller.says(9)
    waits = asyncio.create_task(world.wait())
    await asyncio.sleep(0)
    world.facts.put(LocalPod("ns", "a", "u1", 7))
    assert await waits == ""
    assert await world.wait("ns/b") == f"Pod ns/b from kube-apiserver{LATE}"


async def test_a_pod_of_the_same_name_before_it_says_nothing_of_a_pod() -> None:
    world = World()
    world.facts.put(LocalPod("ns", "a", "u0", 7))
    world.controller.says(9)
    assert await world.wait(uid="u0") == ""
    assert await world.wait(uid="u1") == f"Pod ns/a from kube-apiserver{LATE}"
    assert await world.wait(uid="") == ""


async def test_a_pod_waits_for_the_list_of_services_if_policies_name_any() -> None:
    world = World()
    world.facts.put(LocalPod("ns", "a", "u1", 7))
    world.facts.put(LocalPod("ns", "b", "u2", 7))
    world.controller.says(7)
    assert await world.wait() == ""
    to = cp.NetworkPolicyPeer(to_services=(cp.ServiceReference(name="web", namespace="ns"),))
    rule = cp.NetworkPolicyRule(
        direction="Out", from_=cp.NetworkPolicyPeer(), to=to, action="Drop", enable_logging=False
    )
    world.facts.put(SentPolicy(cp.NetworkPolicy(metadata=ObjectMetadata(name="p"), rules=(rule,))))
    assert await world.wait("ns/b", "u2") == f"Services that policies name, from kube-apiserver{LATE}"
    waits = asyncio.create_task(world.wait("ns/b", "u2"))
    await asyncio.sleep(0)
    world.facts.synced(Service)
    assert await waits == ""


async def test_what_is_missing_is_said_after_a_bounded_time_with_the_trouble_there_is() -> None:
    world = World()
    world.facts.put(LocalPod("ns", "a", "u1", 7))
    world.controller.says(6)
    missing = "policies for Pod ns/a from antrea-controller"
    assert await world.wait() == missing + LATE
    world.controller.trouble = "nobody listens"
    assert await world.wait() == f"{missing} (nobody listens){LATE}"


async def test_the_first_word_of_the_controller_is_waited_for_as_long_as_the_network_and_then_as_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.facts.put(LocalPod("ns", "a", "u1", 7))
    monkeypatch.setattr(policy_gate, "FIRST_SECONDS", 60.0)
    waits = asyncio.create_task(world.wait())
    await asyncio.sleep(2 * SOON)
    assert not waits.done()
    world.controller.says(6)
    assert await waits == f"policies for Pod ns/a from antrea-controller{LATE}"


async def test_a_pod_that_was_covered_stays_so_whatever_becomes_of_it_and_of_the_controller() -> None:
    world = World()
    world.facts.put(LocalPod("ns", "a", "u1", 7))
    world.controller.says(7)
    assert await world.wait() == ""
    world.facts.put(LocalPod("ns", "a", "u1", 12))
    world.controller.says(-1)
    assert await world.wait() == ""


async def test_pods_that_have_gone_are_forgotten() -> None:
    world = World()
    world.controller.says(9)
    for number in range(3 * policy_gate.SPARE_PODS):
        world.facts.put(LocalPod("ns", f"p{number}", f"u{number}", 1))
        assert await world.wait(f"ns/p{number}", f"u{number}") == ""
        world.facts.drop(LocalPod, f"ns/p{number}")
    assert len(world.gate._covered) <= policy_gate.SPARE_PODS


async def test_who_prefers_an_open_start_to_none_gets_it_after_the_same_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(fail_open=True)
    world.facts.put(LocalPod("ns", "a", "u1", 7))
    assert await world.wait() == ""
    assert "A Pod starts before its policies are complete" in caplog.text
    caplog.clear()
    world.controller.says(7)
    assert await world.wait() == ""
    assert not caplog.text


async def test_who_prefers_an_open_start_does_not_wait_for_a_controller_that_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(policy_gate, "SECONDS", 60.0)
    world = World(fail_open=True)
    world.controller.trouble = "nobody listens"
    async with asyncio.timeout(30):
        assert await world.wait() == ""


async def test_starts_are_counted_by_when_their_policies_were_known() -> None:
    world = World()
    world.facts.put(LocalPod("ns", "a", "u1", 7))
    await world.wait()
    waits = asyncio.create_task(world.wait())
    await asyncio.sleep(0)
    world.controller.says(7)
    await waits
    await world.wait()
    assert world.gate.starts.counts == {"timeout": 1, "waited": 1, "immediate": 1}


async def test_a_pod_that_the_last_word_covered_starts_without_the_controller_after_the_same_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.gate.earlier = frozenset(("u1",))
    world.facts.put(LocalPod("ns", "a", "u1", 7))
    world.facts.put(LocalPod("ns", "b", "u2", 7))
    assert await world.wait() == ""
    assert "A Pod starts with the cached state of antrea-controller" in caplog.text
    assert await world.wait("ns/b", "u2") != ""
    world.facts.put(LocalPod("ns", "a", "u3", 8))
    assert await world.wait("ns/a", "u3") != ""


async def test_what_is_kept_names_the_pods_of_this_node_that_are_covered_started_or_not() -> None:
    world = World()
    world.gate.earlier = frozenset(("u1", "gone"))
    assert world.gate.covered_uids() == {"u1", "gone"}
    for name, uid, version in (("a", "u1", 12), ("b", "u2", 7), ("c", "u3", 9)):
        world.facts.put(LocalPod("ns", name, uid, version))
    world.facts.synced(LocalPod)
    Engine(world.facts, ()).plan()
    world.controller.says(8)
    assert world.gate.covered_uids() == {"u1", "u2"}
