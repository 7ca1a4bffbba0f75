"""What a client has learned holds for the Service that it was learned for: in a real switch, Endpoints leave while others stay."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import msgspec
import pytest
from policy_switch import TUNNEL
from proxy_switch import (
    BALANCED,
    CLUSTER,
    DIRECT,
    EXTERNAL,
    NODE_PORT,
    OUTSIDE,
    POD,
    REMOTE,
    STICKY,
    VIRTUAL,
    WEB,
    ServedNode,
    Verdict,
    endpoint,
    learned,
    six,
    trace,
)

from antrea.facts.service import Service
from antrea.features.proxy.agent_part.kept_affinity import KeptAffinity
from antrea.outside.vswitch.ofctl import Ofctl

if TYPE_CHECKING:
    from pathlib import Path

    from ovs_bridge import OvsBridge

    from antrea.facts.service import ServiceEndpoint

GUARDED = msgspec.structs.replace(STICKY, source_ranges=("203.0.113.0/24", "2001:db8:7::/64"))
OTHER = msgspec.structs.replace(
    WEB,
    namespace="b",
    name="other",
    ips=("10.96.0.99", "fd00:96::99"),
    external_ips=(),
    load_balancer_ips=(),
    node_ports=(0,),
)
"""A Service of another tenant."""
AS_IT_IS = Verdict("", "", TUNNEL.ofport)
FRONTENDS = [("cluster", CLUSTER, 80), ("node port", VIRTUAL, NODE_PORT), ("external", EXTERNAL, 80)]


def of_other(row: ServiceEndpoint) -> ServiceEndpoint:
    """The same address and port as an Endpoint of the other Service."""
    return msgspec.structs.replace(row, slice="b/other", service="b/other")


def unready(row: ServiceEndpoint) -> ServiceEndpoint:
    return msgspec.structs.replace(row, ready=False, serving=False)


@six
@pytest.mark.parametrize(("to", "number"), [one[1:] for one in FRONTENDS], ids=[one[0] for one in FRONTENDS])
def test_a_client_leaves_an_endpoint_that_left_its_service_whoever_else_has_it(
    bridge: OvsBridge, six: bool, to: tuple[str, str], number: int
) -> None:
    gone, stays = endpoint(POD.ips[six]), endpoint(REMOTE[six], "n2")
    asked = (OUTSIDE[six], to[six], number)
    node = ServedNode(bridge, STICKY, gone)
    assert trace(bridge, *asked, learns=True).to == gone.ip
    assert len(learned(bridge)) == 1
    node.change(STICKY, gone, stays, OTHER, of_other(gone))
    assert {trace(bridge, *asked).to for _ in range(8)} == {gone.ip}, "it stays while the Endpoint stays"
    for rows in ((), (unready(gone),)):
        node.change(STICKY, stays, *rows, OTHER, of_other(gone))
        assert trace(bridge, *asked).to == stays.ip
    node.change(STICKY, OTHER, of_other(gone))
    assert trace(bridge, *asked).rejected, "no Endpoint is left"
    node.change(STICKY, stays, OTHER, of_other(gone))
    assert trace(bridge, *asked, learns=True).to == stays.ip
    assert len(learned(bridge)) == 1, "the new choice takes the place of the old one"
    node.change(STICKY, gone, stays)
    assert {trace(bridge, *asked).to for _ in range(8)} == {stays.ip}


@six
def test_two_services_with_affinity_check_each_its_own(bridge: OvsBridge, six: bool) -> None:
    one, two = endpoint(POD.ips[six]), endpoint(REMOTE[six], "n2")
    sticky = msgspec.structs.replace(OTHER, affinity_seconds=100)
    other = sticky.cluster_ips[six]
    node = ServedNode(bridge, STICKY, one, sticky, of_other(one))
    for to in (CLUSTER[six], other):
        assert trace(bridge, OUTSIDE[six], to, learns=True).to == one.ip
    node.change(STICKY, two, sticky, of_other(one), of_other(two))
    assert trace(bridge, OUTSIDE[six], CLUSTER[six]).to == two.ip
    assert {trace(bridge, OUTSIDE[six], other).to for _ in range(8)} == {one.ip}


@six
def test_source_ranges_hold_for_what_was_learned_before_and_anew(bridge: OvsBridge, six: bool) -> None:
    gone, stays = endpoint(POD.ips[six]), endpoint(REMOTE[six], "n2")
    node = ServedNode(bridge, GUARDED, gone)
    assert trace(bridge, OUTSIDE[six], BALANCED[six], learns=True).to == gone.ip
    node.change(GUARDED, gone, stays)
    assert {trace(bridge, OUTSIDE[six], BALANCED[six]).to for _ in range(8)} == {gone.ip}
    node.change(GUARDED, stays, OTHER, of_other(gone))
    assert trace(bridge, OUTSIDE[six], BALANCED[six]).to == stays.ip
    shut = msgspec.structs.replace(GUARDED, source_ranges=("192.0.2.128/25", "2001:db8:9::/64"))
    for rows in ((gone,), (stays,)):
        node.change(shut, *rows, OTHER, of_other(gone))
        assert trace(bridge, OUTSIDE[six], BALANCED[six]) == Verdict()


@six
def test_clients_of_this_cluster_stay_with_an_endpoint_elsewhere_under_a_local_policy(
    bridge: OvsBridge, six: bool
) -> None:
    """They choose among all Endpoints, hosts outside among this Node's: each is checked against what it chose from."""
    local = msgspec.structs.replace(STICKY, external_local=True)
    here, far = endpoint(POD.ips[six]), endpoint(REMOTE[six], "n2")
    node = ServedNode(bridge, local, far)
    assert trace(bridge, POD.ips[six], BALANCED[six], learns=True).to == far.ip
    node.change(local, here, far)
    assert {trace(bridge, POD.ips[six], BALANCED[six]).to for _ in range(8)} == {far.ip}
    assert {trace(bridge, OUTSIDE[six], BALANCED[six]).to for _ in range(8)} == {here.ip}
    node.change(local, here, OTHER, of_other(far))
    assert trace(bridge, POD.ips[six], BALANCED[six]).to == here.ip


@six
@pytest.mark.parametrize("protocol", ["TCP", "UDP"])
@pytest.mark.parametrize("seconds", [0, 100], ids=["connection", "affinity"])
def test_direct_server_return_passes_nothing_new_on_to_what_has_left(
    bridge: OvsBridge, six: bool, protocol: str, seconds: int
) -> None:
    service = msgspec.structs.replace(DIRECT, ports=((protocol, 80),), affinity_seconds=seconds)
    other = msgspec.structs.replace(OTHER, ports=((protocol, 80),), mode="dsr", external_ips=EXTERNAL)
    far, here = (
        msgspec.structs.replace(row, protocol=protocol)
        for row in (endpoint(REMOTE[six], "n2"), endpoint(POD.ips[six]))
    )
    asked, kind = (OUTSIDE[six], BALANCED[six]), protocol.lower()
    node = ServedNode(bridge, service, far, dsr=True)
    assert trace(bridge, *asked, learns=True, protocol=kind) == AS_IT_IS
    node.change(service, far, here)
    assert {trace(bridge, *asked, protocol=kind) for _ in range(8)} == {AS_IT_IS}
    node.change(service, here, other, of_other(far))
    found = trace(bridge, *asked, protocol=kind)
    if protocol == "TCP":
        assert found == AS_IT_IS, "a connection ends with its Endpoint"
        bridge.ofctl("del-flows", f"{'tcp6' if six else 'tcp'},tp_src=40000")
        found = trace(bridge, *asked)
    assert found == Verdict(POD.ips[six], "", POD.ofport)


@six
def test_what_is_kept_over_a_restart_of_the_switch_holds_no_longer(
    bridge: OvsBridge, tmp_path: Path, six: bool
) -> None:
    gone, stays = endpoint(POD.ips[six]), endpoint(REMOTE[six], "n2")
    node, directory = ServedNode(bridge, STICKY, gone), bridge.process.directory
    node.facts.synced(Service)
    kept = KeptAffinity(node.facts, Ofctl(directory / "br-int.mgmt"), directory, tmp_path / "affinity")

    async def settled() -> None:
        await asyncio.to_thread(node.change, STICKY, stays, OTHER, of_other(gone))
        await asyncio.to_thread(node.replay)

    assert trace(bridge, OUTSIDE[six], CLUSTER[six], learns=True).to == gone.ip
    assert asyncio.run(kept.sync(settled)) == 0
    bridge.process.kill("ovs-vswitchd")
    bridge.process.start_switch()
    bridge.vsctl("set", "bridge", "br-int", f"external_ids:again={six}")
    assert asyncio.run(kept.sync(settled)) == 1
    assert trace(bridge, OUTSIDE[six], CLUSTER[six]).to == stays.ip


@six
def test_what_was_learned_goes_with_the_address_it_was_learned_for(bridge: OvsBridge, six: bool) -> None:
    """Another Service gets the external IP; the first one keeps its Endpoint, its ClusterIP and the clients there."""
    moved, other_ip = EXTERNAL[six], "10.96.0.99" if not six else "fd00:96::99"
    mine, others = endpoint(POD.ips[six]), of_other(endpoint(REMOTE[six], "n2"))
    node = ServedNode(bridge, STICKY, mine, OTHER, others)
    for to in (CLUSTER[six], moved):
        assert trace(bridge, OUTSIDE[six], to, learns=True).to == mine.ip
    without = msgspec.structs.replace(
        STICKY,
        ips=tuple(ip for ip in STICKY.ips if ip != moved),
        external_ips=tuple(ip for ip in STICKY.external_ips if ip != moved),
    )
    for seconds in (0, 100):
        taker = msgspec.structs.replace(
            OTHER, ips=(*OTHER.ips, moved), external_ips=(moved,), affinity_seconds=seconds
        )
        node.change(without, mine, taker, others)
        assert trace(bridge, OUTSIDE[six], moved).to == others.ip
        assert trace(bridge, OUTSIDE[six], other_ip).to == others.ip
        assert len(learned(bridge)) == 1, "that of the ClusterIP"


@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.wide) for seed in range(2, 60))]
)
def test_no_client_is_sent_to_a_strange_endpoint_whatever_changes(bridge: OvsBridge, seed: int) -> None:
    """Random slices of two Services share addresses: an answer is one of the Service's own, the earlier one if it still is."""
    chance = random.Random(seed)
    family = chance.random() < 0.5
    sticky = msgspec.structs.replace(OTHER, affinity_seconds=chance.choice([0, 100]))
    pool = [endpoint(POD.ips[family]), endpoint(REMOTE[family], "n2"), endpoint(OUTSIDE[family], "n2")]
    clients = [OUTSIDE[family], POD.ips[family]]
    stays: dict[tuple[str, str], str] = {}
    node = ServedNode(bridge)
    for _ in range(6):
        mine, others = (chance.sample(pool, chance.randint(0, 3)) for _ in range(2))
        node.change(STICKY, *mine, sticky, *map(of_other, others))
        for client in clients:
            for service, rows in ((STICKY, mine), (sticky, others)):
                to = service.cluster_ips[family]
                found, own = trace(bridge, client, to, learns=True), {row.ip for row in rows}
                assert found.rejected if not own else found.to in own
                earlier = stays.get((client, to))
                if service.affinity_seconds and earlier in own:
                    assert found.to == earlier
                if own:
                    stays[client, to] = found.to
