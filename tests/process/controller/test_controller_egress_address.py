"""The address of an Egress, as an API server on loopback is asked to write it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from certificate_world import ApiServer, api_server

from antrea.apis.egress_address import EGRESSES, EgressAddress
from antrea.engine import Facts
from antrea.errors import Refused, Unavailable
from antrea.facts.egress import EgressRow
from antrea.facts.external_ip import FencedLeadership, PendingAllocation
from antrea.outside.kube.egress_address_sink import EgressAddressSink

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

POOL = "/apis/crd.antrea.io/v1beta1/externalippools/p"
WEB = f"{EGRESSES}/web"
GIVES = EgressAddress(
    egress="web", uid="u1", generation=1, address="10.0.0.1", pool="p", pool_uid="up", pool_generation=1
)
PROMISE = PendingAllocation("Egress/web", "u1", 1, "10.0.0.1")


def egress(uid: str = "u1", generation: int = 1, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "generation": generation}, "spec": {"externalIPPool": "p", **spec}}


def row(name: str, address: str = "") -> EgressRow:
    return EgressRow(name, f"u-{name}", None, 1, "", "p", address)


@asynccontextmanager
async def world(**objects: dict[str, Any]) -> AsyncIterator[tuple[ApiServer, Facts, EgressAddressSink]]:
    shown = {f"{EGRESSES}/{name}": one for name, one in objects.items()}
    pool = {"metadata": {"uid": "up", "generation": 1}}
    async with api_server({**shown, POOL: pool}) as (server, kube):
        facts = Facts()
        facts.put(FencedLeadership())
        facts.put(EgressRow("web", "u1", None, 1, "", "p"))
        yield server, facts, EgressAddressSink(kube, facts)


async def test_an_address_is_promised_and_then_written_into_the_spec_that_was_looked_at() -> None:
    async with world(web=egress()) as (server, facts, sink):
        await sink.apply([GIVES], [])
        assert server.objects[WEB]["spec"] == {"externalIPPool": "p", "egressIP": "10.0.0.1"}
        assert facts.all(PendingAllocation) == [PROMISE]
        await sink.resync([])
        await sink.sweep(0)
        assert server.writes == [WEB]


@pytest.mark.parametrize("shown", [egress(generation=2), egress(uid="u2"), None])
async def test_an_egress_that_is_another_by_now_is_left_alone(shown: dict[str, Any] | None) -> None:
    async with world(**({"web": shown} if shown else {})) as (server, _, sink):
        await sink.apply([GIVES], [])
        assert server.writes == []


async def test_a_status_that_is_written_meanwhile_is_no_hindrance() -> None:
    async with world(web=egress()) as (server, _, sink):
        get = sink._kube.get

        async def raced(path: str, kind: Any) -> Any:
            found = await get(path, kind)
            if len(server.writes) < 2:
                server.put(WEB, server.objects[WEB] | {"status": {"egressNode": "n1"}})
            return found

        sink._kube.get = raced  # type: ignore[method-assign,assignment]
        await sink.apply([GIVES], [])
        assert (server.writes, server.objects[WEB]["spec"]["egressIP"]) == ([WEB] * 3, "10.0.0.1")


async def test_an_address_that_another_names_or_is_promised_is_refused() -> None:
    async with world(web=egress()) as (server, facts, sink):
        facts.put(row("other"))
        facts.put(PendingAllocation("Egress/other", "u-other", 1, "10.0.0.1"))
        with pytest.raises(Refused, match=r"^10.0.0.1 is promised to Egress/other$") as promised:
            await sink.apply([GIVES], [])
        facts.put(row("other", "10.0.0.1"))
        facts.put(PROMISE)
        with pytest.raises(Refused, match=r"^10.0.0.1 is named by Egress other$"):
            await sink.apply([GIVES], [])
        assert promised.value.entries == (GIVES,)
        assert facts.get(PendingAllocation, "Egress/web") is None
        assert server.writes == []


async def test_who_was_promised_one_address_gets_no_other_until_it_is_known_what_became_of_that() -> None:
    async with world(web=egress()) as (server, facts, sink):
        facts.put(PROMISE)
        with pytest.raises(Refused, match=r"^10.0.0.1 is being written$"):
            await sink.apply([msgspec.structs.replace(GIVES, address="10.0.0.2")], [])
        assert (server.writes, facts.all(PendingAllocation)) == ([], [PROMISE])


async def test_an_address_is_taken_away_only_if_the_pool_is_as_it_was_looked_at() -> None:
    takes = msgspec.structs.replace(GIVES, address="", takes=True, pool_uid="", pool_generation=0)
    async with world(web=egress(egressIP="10.9.9.9")) as (server, _, sink):
        with pytest.raises(Refused, match=r"^ExternalIPPool p has changed$"):
            await sink.apply([takes], [])
        assert server.objects[WEB]["spec"]["egressIP"] == "10.9.9.9"
        server.drop(POOL)
        await sink.apply([takes], [])
        assert "egressIP" not in server.objects[WEB]["spec"]


async def test_a_refusal_breaks_the_promise_and_holds_up_nobody_else() -> None:
    async with world(web=egress(), api=egress()) as (server, facts, sink):
        facts.put(row("api"))
        server.refuse = "denied"
        other = msgspec.structs.replace(GIVES, egress="api", address="10.0.0.2")
        with pytest.raises(Refused, match=r"^denied$") as no:
            await sink.apply([GIVES, other], [])
        assert (no.value.entries, facts.all(PendingAllocation)) == ((GIVES, other), [])


async def test_a_write_of_unknown_outcome_keeps_the_promise() -> None:
    async with world(web=egress()) as (server, facts, sink):
        server.refuse, server.refuse_status = "away", 503
        with pytest.raises(Unavailable):
            await sink.apply([GIVES], [])
        server.refuse_status = 403
        with pytest.raises(Refused, match=r"^away$"):
            await sink.apply([GIVES], [])
        assert facts.all(PendingAllocation) == [PROMISE]


async def test_a_replica_that_does_not_lead_any_more_writes_nothing() -> None:
    async with world(web=egress()) as (server, facts, sink):
        facts.drop(FencedLeadership, "self")
        with pytest.raises(Unavailable, match="this replica does not lead"):
            await sink.apply([GIVES], [])
        assert server.writes == []


async def test_promises_of_egresses_that_say_what_became_of_them_are_forgotten() -> None:
    async with world() as (_, facts, sink):
        facts.put(row("done", "10.0.0.5"))
        facts.put(PendingAllocation("Egress/done", "u-done", 0, "10.0.0.5"))
        facts.put(PendingAllocation("Egress/gone", "u-gone", 1, "10.0.0.6"))
        await sink.apply([], [])
        assert facts.all(PendingAllocation) == []


async def test_one_of_several_addresses_is_written_into_its_place_in_the_list() -> None:
    second = msgspec.structs.replace(GIVES, slot=1, of=3)
    async with world(web=egress(externalIPPools=["q", "p", ""], egressIPs=["10.9.0.1"])) as (
        server,
        facts,
        sink,
    ):
        await sink.apply([second], [])
        assert server.objects[WEB]["spec"]["egressIPs"] == ["10.9.0.1", "10.0.0.1", ""]
        assert facts.all(PendingAllocation) == [PendingAllocation("Egress/web 1", "u1", 1, "10.0.0.1")]
        facts.put(msgspec.structs.replace(row("web"), uid="u1", slot=1, of=3))
        with pytest.raises(Refused, match=r"^10.0.0.1 is promised to Egress/web 1$"):
            await sink.apply([msgspec.structs.replace(GIVES, slot=2, of=3)], [])
