"""Replicas that keep a Lease in an API server on loopback: one leads, another follows when it ends."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from certificate_world import ApiServer, api_server, until

from antrea.controller.replica import replica
from antrea.errors import Invalid, Unavailable
from antrea.outside.election import Terms
from antrea.outside.kube import Kube
from antrea.outside.kube_access import Access
from antrea.outside.lead import Lead, LeadersKube
from antrea.outside.lease import LeaseKeeper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/antrea-controller"
TERMS = Terms(lease=1.0, lead=0.6, renew=0.1)


class Cable(Kube):
    """A client whose network can be cut."""

    cut = False

    async def _answer(
        self, method: str, path: str, query: Mapping[str, str], body: bytes = b"", content: str = ""
    ) -> tuple[int, bytes]:
        if self.cut:
            raise Unavailable("the cable is cut")
        return await super()._answer(method, path, query, body, content)


class Replica:
    def __init__(self, kube: Kube, name: str) -> None:
        self.kube = Cable(kube.access)
        self.keeper = LeaseKeeper(
            self.kube, "kube-system", "antrea-controller", me=name, address=f"{name}:1", terms=TERMS
        )
        self.name = name
        self.lead = self.keeper.lead
        self.task = asyncio.create_task(self.keeper.run())

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])
        await self.kube.close()


@asynccontextmanager
async def replicas(*names: str) -> AsyncIterator[tuple[ApiServer, list[Replica]]]:
    async with api_server({}) as (server, kube):
        made = [Replica(kube, name) for name in names]
        try:
            yield server, made
        finally:
            for one in made:
                await one.stop()


def spec(server: ApiServer) -> dict[str, Any]:
    found: dict[str, Any] = server.objects[PATH]["spec"]
    return found


async def agreed(made: list[Replica]) -> tuple[Replica, Replica]:
    """The leader and the other, once the other knows it."""

    def known() -> bool:
        leaders = [one for one in made if one.lead.leads()]
        return len(leaders) == 1 and all(one.lead.address for one in made if one not in leaders)

    await until(known)
    leader, other = sorted(made, key=lambda one: one.lead.leads(), reverse=True)
    return leader, other


async def test_one_leads_and_the_others_know_where() -> None:
    async with replicas("a", "b") as (server, made):
        leader, other = await agreed(made)
        name = leader.name
        assert (other.lead.leads(), other.lead.address) == (False, f"{name}:1")
        meta = server.objects[PATH]["metadata"]
        assert (meta["labels"], meta["annotations"]) == (
            {"app": "antrea"},
            {"antrea.io/address": f"{name}:1"},
        )
        assert (spec(server)["leaseDurationSeconds"], spec(server)["leaseTransitions"]) == (1, 1)
        before = spec(server)["renewTime"]
        await until(lambda: spec(server)["renewTime"] > before)
        assert leader.lead.leads()


async def test_a_leader_that_ends_releases_the_lease_and_the_other_leads_at_once() -> None:
    async with replicas("a", "b") as (server, made):
        leader, other = await agreed(made)
        began = time.monotonic()
        await leader.stop()
        assert not leader.lead.leads()
        await until(other.lead.leads)
        assert time.monotonic() - began < TERMS.lease
        assert spec(server)["leaseTransitions"] == 2


async def test_a_leader_without_a_network_stops_before_another_begins() -> None:
    async with replicas("a", "b") as (_, made):
        leader, other = await agreed(made)
        moments: list[tuple[str, float]] = []
        leader.lead.listeners.append(lambda: moments.append(("ends", time.monotonic())))
        other.lead.listeners.append(lambda: moments.append(("begins", time.monotonic())))
        leader.kube.cut = True
        await until(other.lead.leads)
        ended = next(at for what, at in moments if what == "ends")
        began = [at for what, at in moments if what == "begins"][-1]
        assert ended < began
        leader.kube.cut = False
        # it follows, and takes nothing back
        await until(lambda: leader.lead.address == f"{other.name}:1")
        assert other.lead.leads()


async def test_a_deleted_lease_ends_the_leading_until_it_is_made_anew() -> None:
    async with replicas("a") as (server, (only,)):
        await until(only.lead.leads)
        server.drop(PATH)
        await until(lambda: not only.lead.leads())
        await until(only.lead.leads)
        assert spec(server)["holderIdentity"] == "a"


async def test_work_of_the_leader_goes_on_only_while_it_leads() -> None:
    async with replicas("a", "b") as (_, made):
        running: list[str] = []

        async def work(name: str) -> None:
            running.append(name)
            try:
                await asyncio.Event().wait()
            finally:
                running.remove(name)

        tasks = [asyncio.create_task(one.lead.meanwhile(partial(work, one.name))) for one in made]
        leader, other = await agreed(made)
        await until(lambda: running == [leader.name])
        leader.kube.cut = True
        await until(lambda: running == [])
        await until(lambda: running == [other.name])
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert running == []


async def test_work_that_fails_ends_who_waits_for_it_and_work_that_is_done_is_not_done_twice() -> None:
    lead, done = Lead(), []

    async def fails() -> None:
        raise Unavailable("that")

    async def ends() -> None:
        done.append(1)

    with pytest.raises(Unavailable, match="that"):
        await lead.meanwhile(fails)
    task = asyncio.create_task(lead.meanwhile(ends))
    await until(lambda: bool(done))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert done == [1]


async def test_a_client_of_the_leader_reads_always_and_writes_only_while_it_leads() -> None:
    leading = [True]
    async with (
        api_server({}) as (server, kube),
        LeadersKube(kube.access, Lead(lambda: leading[0])) as ours,
    ):
        body = {"metadata": {"name": "x"}}
        await ours.create("/api/v1/nodes", body)
        leading[0] = False
        for write in (
            ours.create("/api/v1/nodes", {"metadata": {"name": "y"}}),
            ours.patch("/api/v1/nodes/x", {"spec": {}}),
            ours.delete("/api/v1/nodes/x"),
        ):
            with pytest.raises(Unavailable, match="does not lead"):
                await write
        assert await ours.get("/api/v1/nodes/x", dict) is not None
        assert list(server.objects) == ["/api/v1/nodes/x"]


def test_a_replica_that_others_cannot_reach_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POD_IP", raising=False)
    with pytest.raises(Invalid, match="--leader-elect: needs an API server"):
        replica(None, elect=True, namespace="kube-system", port=1)
    kube = Kube(Access("http://127.0.0.1:1"))
    with pytest.raises(Invalid, match="POD_IP: is not set"):
        replica(kube, elect=True, namespace="kube-system", port=1)
    monkeypatch.setenv("POD_IP", "fd00::1")
    found = replica(kube, elect=True, namespace="kube-system", port=10349)
    assert (found.lead.elected, found.lead.leads(), type(found.kube)) == (True, False, LeadersKube)
    alone = replica(kube, elect=False, namespace="kube-system", port=10349)
    assert (alone.lead.elected, alone.lead.leads(), alone.kube) == (False, True, kube)
