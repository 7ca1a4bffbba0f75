"""Replicas that keep a Lease in an API server on loopback: one leads, another follows when it ends."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from certificate_world import ApiServer, api_server, until

from antrea.controller.leader.replica import replica
from antrea.errors import Invalid, Unavailable
from antrea.outside.kube.access import Access
from antrea.outside.kube.client import Kube
from antrea.outside.kube.election import Terms
from antrea.outside.kube.leadership import LeaderOnlyKube, Leadership
from antrea.outside.kube.lease import LeaseKeeper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/antrea-controller"
TERMS = Terms(lease=1.0, lead=0.6, renew=0.1)
LONG = Terms(lease=60.0, lead=40.0, renew=0.1)
"""None of these ends by itself while a test runs."""
RELEASED = {"spec": {"holderIdentity": "", "leaseDurationSeconds": 60, "leaseTransitions": 4}}
"""A Lease that is there already: who makes one leads only a term later."""


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
    def __init__(self, kube: Kube, name: str, terms: Terms) -> None:
        self.kube = Cable(kube.access)
        self.keeper = LeaseKeeper(
            self.kube, "kube-system", "antrea-controller", me=name, address=f"{name}:1", terms=terms
        )
        self.name = name
        self.lead = self.keeper.lead
        self.task = asyncio.create_task(self.keeper.run())

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])
        await self.kube.close()


@asynccontextmanager
async def replicas(*names: str, terms: Terms = TERMS) -> AsyncIterator[tuple[ApiServer, list[Replica]]]:
    async with api_server({PATH: RELEASED} if terms is LONG else {}) as (server, kube):
        made = [Replica(kube, name, terms) for name in names]
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
    async with replicas("a", "b", terms=LONG) as (server, made):
        leader, other = await agreed(made)
        name = leader.name
        assert (other.lead.leads(), other.lead.address) == (False, f"{name}:1")
        assert server.objects[PATH]["metadata"]["annotations"] == {"antrea.io/address": f"{name}:1"}
        assert (spec(server)["leaseDurationSeconds"], spec(server)["leaseTransitions"]) == (60, 5)
        before = spec(server)["renewTime"]
        await until(lambda: spec(server)["renewTime"] > before)
        assert leader.lead.leads()


async def test_a_leader_that_ends_releases_the_lease_and_the_other_leads_at_once() -> None:
    async with replicas("a", "b", terms=LONG) as (server, made):
        leader, other = await agreed(made)
        await leader.stop()
        assert not leader.lead.leads()
        await until(other.lead.leads, LONG.lead / 2)
        assert spec(server)["leaseTransitions"] == 6


async def test_a_leader_without_a_network_stops_before_another_begins() -> None:
    async with replicas("a", "b") as (_, made):
        leader, other = await agreed(made)
        moments: list[tuple[str, bool]] = []
        for one in made:
            one.lead.listeners.append(lambda one=one: moments.append((one.name, one.lead.leads())))  # type: ignore[misc]
        leader.kube.cut = True
        await until(other.lead.leads)
        assert moments.index((leader.name, False)) < moments.index((other.name, True))
        leader.kube.cut = False
        # it follows, and takes nothing back
        await until(lambda: leader.lead.address == f"{other.name}:1" and other.lead.leads())


async def test_a_deleted_lease_ends_the_leading_until_it_is_made_anew() -> None:
    async with replicas("a") as (server, (only,)):
        told: list[bool] = []
        only.lead.listeners.append(lambda: told.append(only.lead.leads()))
        await until(lambda: told == [True])
        server.drop(PATH)
        await until(lambda: False in told and told[-1])
        meta = server.objects[PATH]["metadata"]
        assert (meta["labels"], meta["annotations"]) == ({"app": "antrea"}, {"antrea.io/address": "a:1"})
        assert {
            key: spec(server)[key] for key in ("holderIdentity", "leaseDurationSeconds", "leaseTransitions")
        } == {
            "holderIdentity": "a",
            "leaseDurationSeconds": 1,
            "leaseTransitions": 1,
        }


async def test_work_of_the_leader_goes_on_only_while_it_leads() -> None:
    async with replicas("a", "b") as (_, made):
        story: list[tuple[str, str]] = []

        async def work(name: str) -> None:
            story.append(("begins", name))
            try:
                await asyncio.Event().wait()
            finally:
                story.append(("ends", name))

        tasks = [asyncio.create_task(one.lead.run_while_leading(partial(work, one.name))) for one in made]
        leader, other = await agreed(made)
        await until(lambda: story == [("begins", leader.name)])
        leader.kube.cut = True
        await until(lambda: len(story) == 3)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    assert story == [
        ("begins", leader.name),
        ("ends", leader.name),
        ("begins", other.name),
        ("ends", other.name),
    ]


async def test_work_that_fails_ends_who_waits_for_it_and_work_that_is_done_is_not_done_twice() -> None:
    lead, done = Leadership(), []

    async def fails() -> None:
        raise Unavailable("that")

    async def ends() -> None:
        done.append(1)

    with pytest.raises(Unavailable, match="that"):
        await lead.run_while_leading(fails)
    task = asyncio.create_task(lead.run_while_leading(ends))
    await until(lambda: bool(done))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert done == [1]


async def test_a_client_of_the_leader_reads_always_and_writes_only_while_it_leads() -> None:
    leading = [True]
    async with (
        api_server({}) as (server, kube),
        LeaderOnlyKube(kube.access, Leadership(lambda: leading[0])) as ours,
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
    assert (found.lead.elected, found.lead.leads(), type(found.kube)) == (True, False, LeaderOnlyKube)
    alone = replica(kube, elect=False, namespace="kube-system", port=10349)
    assert (alone.lead.elected, alone.lead.leads(), alone.kube) == (False, True, kube)
