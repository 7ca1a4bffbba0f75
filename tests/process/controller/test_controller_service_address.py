"""The external IP of a Service, as an API server on loopback is asked to write it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from certificate_world import ApiServer, api_server

from antrea.apis.crd.part import Condition
from antrea.apis.service_address import ALLOCATED, JudgedPool, ServiceAddress
from antrea.engine import Facts
from antrea.errors import Refused, Unavailable
from antrea.facts.egress import EgressRow
from antrea.facts.external_ip import FencedLeadership, PendingAllocation, PooledService
from antrea.outside.kube.service_address_sink import ServiceAddressSink

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

POOL = "/apis/crd.antrea.io/v1beta1/externalippools/p"
WEB = "/api/v1/namespaces/shop/services/web"
GIVEN = Condition(ALLOCATED, "True", reason="Allocated", message="given")
GIVES = ServiceAddress(
    namespace="shop", name="web", uid="u1", generation=1, addresses=("10.0.0.1",), condition=GIVEN, turned=True,
    promised=(("Service/shop/web", "10.0.0.1"),), pools=(JudgedPool("p", "up", 1),),
)  # fmt: skip
PROMISE = PendingAllocation("Service/shop/web", "u1", 1, "10.0.0.1")


def service(uid: str = "u1") -> dict[str, Any]:
    return {"metadata": {"uid": uid, "namespace": "shop"}}


@asynccontextmanager
async def world(shown: dict[str, Any] | None) -> AsyncIterator[tuple[ApiServer, Facts, ServiceAddressSink]]:
    """The Service is the first object, so that it has version 1."""
    pool = {"metadata": {"uid": "up", "generation": 1}}
    async with api_server({**({WEB: shown} if shown else {}), POOL: pool}) as (server, kube):
        facts = Facts()
        facts.put(FencedLeadership())
        facts.put(PooledService("shop", "web", "u1", 1))
        yield server, facts, ServiceAddressSink(kube, facts)


async def test_an_address_is_promised_and_then_written_into_the_status_of_the_version_that_was_looked_at() -> (
    None
):
    async with world(service()) as (server, facts, sink):
        await sink.apply([GIVES], [])
        assert server.writes == [f"{WEB}/status"]
        status = server.objects[WEB]["status"]
        assert status["loadBalancer"] == {"ingress": [{"ip": "10.0.0.1"}]}
        (condition,) = status["conditions"]
        assert condition.pop("lastTransitionTime")
        assert condition == {"type": ALLOCATED, "status": "True", "reason": "Allocated", "message": "given"}
        assert facts.all(PendingAllocation) == [PROMISE]
        await sink.resync([])
        await sink.sweep(0)
        assert len(server.writes) == 1


@pytest.mark.parametrize("shown", [service("u2"), None])
async def test_a_service_that_is_another_by_now_is_left_alone(shown: dict[str, Any] | None) -> None:
    async with world(shown) as (server, _, sink):
        await sink.apply([GIVES], [])
        assert "status" not in server.objects.get(WEB, {})


async def test_a_service_that_was_changed_meanwhile_is_judged_anew() -> None:
    async with world(service()) as (server, _, sink):
        server.put(WEB, service())
        await sink.apply([GIVES], [])
        assert "status" not in server.objects[WEB]


async def test_an_address_that_another_names_or_is_promised_is_refused() -> None:
    async with world(service()) as (server, facts, sink):
        facts.put(EgressRow("other", "u-other", None, 1, "", "p"))
        facts.put(PendingAllocation("Egress/other", "u-other", 1, "10.0.0.1"))
        with pytest.raises(Refused, match=r"^10.0.0.1 is promised to Egress/other$"):
            await sink.apply([GIVES], [])
        for row, who in (
            (EgressRow("other", "u-other", None, 1, "", "p", "10.0.0.1"), "Egress other"),
            (PooledService("shop", "api", "u3", 1, wants="10.0.0.1"), "Service shop/api"),
        ):
            facts.put(row)
            with pytest.raises(Refused, match=rf"^10.0.0.1 is named by {who}$"):
                await sink.apply([GIVES], [])
            facts.drop(type(row), row.key)
        assert server.writes == []
        # who asked for it by name shares it, as the units found
        await sink.apply([msgspec.structs.replace(GIVES, promised=())], [])
        assert server.writes == [f"{WEB}/status"]


async def test_an_address_is_taken_away_only_if_the_pool_is_as_it_was_looked_at() -> None:
    gone = Condition(ALLOCATED, "False", reason="AllocationError", message="gone")
    takes = msgspec.structs.replace(
        GIVES, addresses=(), condition=gone, promised=(), takes=True, pools=(JudgedPool("p"),)
    )
    async with world(service() | {"status": {"loadBalancer": {"ingress": [{"ip": "10.9.9.9"}]}}}) as (
        server,
        _,
        sink,
    ):
        with pytest.raises(Refused, match=r"^ExternalIPPool p has changed$"):
            await sink.apply([takes], [])
        assert server.writes == []
        server.drop(POOL)
        both = msgspec.structs.replace(takes, pools=(JudgedPool("p"), JudgedPool("q", "uq", 2)))
        server.put(POOL.replace("/p", "/q"), {"metadata": {"uid": "uq", "generation": 3}})
        with pytest.raises(Refused, match=r"^ExternalIPPool q has changed$"):
            await sink.apply([both], [])
        await sink.apply([takes], [])
        assert server.objects[WEB]["status"]["loadBalancer"] == {}


async def test_a_refusal_breaks_the_promise_and_an_unknown_outcome_keeps_it() -> None:
    async with world(service()) as (server, facts, sink):
        server.refuse = "denied"
        with pytest.raises(Refused, match=r"^denied$"):
            await sink.apply([GIVES], [])
        assert facts.all(PendingAllocation) == []
        server.refuse_status = 503
        with pytest.raises(Unavailable):
            await sink.apply([GIVES], [])
        server.refuse_status = 403
        with pytest.raises(Refused, match=r"^denied$"):
            await sink.apply([GIVES], [])
        assert facts.all(PendingAllocation) == [PROMISE]


async def test_a_replica_that_does_not_lead_any_more_writes_nothing() -> None:
    async with world(service()) as (server, facts, sink):
        facts.drop(FencedLeadership, "self")
        with pytest.raises(Unavailable, match="this replica does not lead"):
            await sink.apply([GIVES], [])
        assert server.writes == []


async def test_two_addresses_are_promised_and_written_together_or_not_at_all() -> None:
    both = msgspec.structs.replace(
        GIVES,
        addresses=("10.0.0.1", "fd00::1"),
        promised=(*GIVES.promised, ("Service/shop/web 1", "fd00::1")),
    )
    second = PendingAllocation("Service/shop/web 1", "u1", 1, "fd00::1")
    async with world(service()) as (server, facts, sink):
        facts.put(PooledService("shop", "api", "u3", 1, addresses=("10.0.0.9", "fd00::1")))
        with pytest.raises(Refused, match=r"^fd00::1 is named by Service shop/api$"):
            await sink.apply([both], [])
        assert (server.writes, facts.all(PendingAllocation)) == ([], [])
        facts.drop(PooledService, "shop/api")
        # what is named by the Service itself, in whichever order, is no other's
        facts.put(PooledService("shop", "web", "u1", 1, addresses=("fd00::1",)))
        await sink.apply([both], [])
        assert server.objects[WEB]["status"]["loadBalancer"] == {
            "ingress": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]
        }
        assert sorted(facts.all(PendingAllocation), key=lambda row: row.owner) == [PROMISE, second]
        facts.drop(PooledService, "shop/web")
        await sink.apply([], [])
        assert facts.all(PendingAllocation) == []
