"""Probes that this Node fails to make say nothing about its neighbours: no address moves by them."""

from __future__ import annotations

import asyncio
import errno
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from antrea.engine import Facts
from antrea.facts.egress import EgressGateway, ProbedAddress
from antrea.facts.external_ip import AnsweringNetwork, ExternalIPOwner
from antrea.features.egress.agent_part import gateway_prober
from antrea.features.egress.agent_part.gateway_prober import SILENT, GatewayFeed
from antrea.features.external_ip_pool.agent_part import duplicate_prober
from antrea.features.external_ip_pool.agent_part.duplicate_prober import DuplicateProber
from antrea.features.external_ip_pool.duplicate import ProbeAddress
from antrea.features.service_external_ip.agent_part import network_feed
from antrea.features.service_external_ip.agent_part.network_feed import MISSED_AS_OWNER, UNHEARD, NetworkFeed
from antrea.features.service_external_ip.network import AskedNetwork
from antrea.outside.neighbour import probe_failure
from antrea.outside.neighbour.probe_failure import FAILED_PROBES, failed_probe_metrics

if TYPE_CHECKING:
    from collections.abc import Callable

MAC, PEER, IP = "aa:00:00:00:00:02", "192.0.2.2", "192.0.2.40"
NETWORK = AskedNetwork("eth0", "192.0.2.0/24", (PEER,), (IP,), silent=False)
GATEWAY = EgressGateway("antrea-ext.181", "192.0.2.254", answers=True)
OWN_ERRORS = pytest.mark.parametrize("number", [errno.EMFILE, errno.EPERM, errno.ENOBUFS])
LINK_ERRORS = pytest.mark.parametrize("number", [errno.ENODEV, errno.ENETDOWN, errno.ENXIO])


class Link:
    """Stands where the network stands: every probe is answered, or meets an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error = 0
        self.answers_as_error = 0
        for module in (network_feed, gateway_prober, duplicate_prober):
            monkeypatch.setattr(module, "who_has", self.who_has)
        monkeypatch.setattr(network_feed, "answers_as", self.answers_as)
        monkeypatch.setattr(duplicate_prober, "answers_for_all", self.answers_for_all)
        monkeypatch.setattr(network_feed, "cards", self.cards)
        for pause in ("LATER_SECONDS", "SURE_SECONDS", "AGAIN_SECONDS", "TRY_SECONDS"):
            monkeypatch.setattr(duplicate_prober, pause, 0)

    async def who_has(self, dev: str, ip: str) -> str:
        await asyncio.sleep(0)
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        return MAC

    async def answers_as(self, dev: str, ip: str, mac: str, sender: str) -> bool:
        if self.answers_as_error:
            raise OSError(self.answers_as_error, os.strerror(self.answers_as_error))
        return True

    async def answers_for_all(self, dev: str, mac: str, strangers: Any) -> bool:
        return False

    async def cards(self) -> tuple[Any, ...]:
        return ()


@pytest.fixture(autouse=True)
def _uncounted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_failure, "_counts", type(probe_failure._counts)())


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> Link:
    return Link(monkeypatch)


def counted() -> float:
    """Failed probes of one kind of error."""
    return float((failed_probe_metrics() or "0").split()[-1])


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 (it is of other tasks)
            await asyncio.sleep(0)


async def rounds(feed: NetworkFeed, facts: Facts, count: int) -> AnsweringNetwork | None:
    for _ in range(count):
        await feed.round(facts, [NETWORK])
    return facts.get(AnsweringNetwork, "eth0 192.0.2.0/24")


@OWN_ERRORS
async def test_a_network_is_not_silent_by_errors_of_this_node(link: Link, number: int) -> None:
    facts, feed = Facts(), NetworkFeed("n1")
    here = await rounds(feed, facts, 1)
    assert here
    assert here.answers
    link.error = number
    assert await rounds(feed, facts, MISSED_AS_OWNER + 1) == here


@LINK_ERRORS
async def test_a_network_is_silent_without_its_device(link: Link, number: int) -> None:
    facts, feed = Facts(), NetworkFeed("n1")
    await rounds(feed, facts, 1)
    link.error = number
    found = await rounds(feed, facts, MISSED_AS_OWNER)
    assert found
    assert not found.answers
    assert failed_probe_metrics() == ""


@OWN_ERRORS
async def test_a_silent_network_stays_silent_by_errors_of_this_node(link: Link, number: int) -> None:
    facts, feed = Facts(), NetworkFeed("n1")
    await rounds(feed, facts, 1)
    link.error = errno.ENETDOWN
    silent = await rounds(feed, facts, MISSED_AS_OWNER)
    link.error = number
    assert await rounds(feed, facts, 3) == silent


@OWN_ERRORS
async def test_an_external_ip_is_not_unheard_by_errors_of_this_node(link: Link, number: int) -> None:
    facts, feed = Facts(), NetworkFeed("n1")
    facts.put(ExternalIPOwner("shop/web", IP, "p", "n1"))
    here = await rounds(feed, facts, 1)
    link.answers_as_error = number
    assert await rounds(feed, facts, UNHEARD + 1) == here


async def test_an_external_ip_is_unheard_without_its_device(link: Link) -> None:
    facts, feed = Facts(), NetworkFeed("n1")
    facts.put(ExternalIPOwner("shop/web", IP, "p", "n1"))
    await rounds(feed, facts, 1)
    link.answers_as_error = errno.ENETDOWN
    found = await rounds(feed, facts, UNHEARD)
    assert found
    assert found.unheard == IP


@OWN_ERRORS
@pytest.mark.parametrize("first", [0, errno.ENODEV])
async def test_a_gateway_is_as_it_was_by_errors_of_this_node(link: Link, number: int, first: int) -> None:
    feed = GatewayFeed()
    link.error = first
    before = [await feed.ask(GATEWAY) for _ in range(SILENT)][-1]
    assert before
    assert before.answers == (first == 0)
    link.error = number
    assert [await feed.ask(GATEWAY) for _ in range(SILENT + 1)] == [before] * (SILENT + 1)


async def test_a_gateway_that_was_never_asked_is_open_by_errors_of_this_node(link: Link) -> None:
    link.error = errno.EMFILE
    feed = GatewayFeed()
    assert [await feed.ask(GATEWAY) for _ in range(SILENT + 1)] == [None] * (SILENT + 1)


@OWN_ERRORS
async def test_a_host_with_our_address_is_not_gone_by_errors_of_this_node(
    link: Link, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicate_prober, "is_to_be_probed", lambda *_: True)
    facts, prober = Facts(), DuplicateProber("n1")
    running = asyncio.create_task(prober.run(facts))
    await prober.probe(facts, ProbeAddress("e", True, holder="e", dev="eth0", ip=IP, before=True))
    try:
        await until(lambda: facts.get(ProbedAddress, "e"))
        link.error = number
        await until(lambda: counted() > 2 * duplicate_prober.TRIES)
        assert facts.get(ProbedAddress, "e") == ProbedAddress("e", IP, MAC)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_failed_probes_are_counted_by_error_and_logged_once(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[str] = []
    monkeypatch.setattr(
        probe_failure, "log", SimpleNamespace(warning=lambda _, **values: logged.append(values["err"]))
    )
    feed = GatewayFeed()
    for number in (errno.EMFILE, errno.EMFILE, errno.EPERM, errno.EMFILE):
        link.error = number
        await feed.ask(GATEWAY)
    assert len(logged) == 2
    assert [line for line in failed_probe_metrics().splitlines() if not line.startswith("#")] == [
        f'{FAILED_PROBES.name}{{error="EMFILE"}} 3',
        f'{FAILED_PROBES.name}{{error="EPERM"}} 1',
    ]
