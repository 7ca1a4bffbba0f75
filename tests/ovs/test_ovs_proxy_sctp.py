"""SCTP through Services in a real switch, by trace: as TCP, whatever address is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from policy_switch import TUNNEL, ports
from proxy_switch import (
    BALANCED,
    CLUSTER,
    EXTERNAL,
    GATEWAYS,
    NODE_PORT,
    OUTSIDE,
    POD,
    REMOTE,
    VIRTUAL,
    WEB,
    Verdict,
    endpoint,
    install,
    six,
    trace,
)

if TYPE_CHECKING:
    from ovs_bridge import OvsBridge

SERVICE = msgspec.structs.replace(WEB, ports=(("SCTP", 80),))


@pytest.fixture(scope="module")
def bridge(ovs: OvsBridge) -> OvsBridge:
    ovs.add_ports(ports())
    return ovs


def asked(six: bool) -> list[tuple[str, int]]:
    return [(CLUSTER[six], 80), (EXTERNAL[six], 80), (BALANCED[six], 80), (VIRTUAL[six], NODE_PORT)]


@six
def test_an_association_leads_to_an_endpoint_here_or_elsewhere(bridge: OvsBridge, six: bool) -> None:
    for ip, wanted in (
        (POD.ips[six], Verdict(POD.ips[six], "", POD.ofport)),
        (REMOTE[six], Verdict(REMOTE[six], GATEWAYS[six], TUNNEL.ofport)),
    ):
        node = "n1" if ip in POD.ips else "n2"
        install(bridge, SERVICE, msgspec.structs.replace(endpoint(ip, node), protocol="SCTP"))
        for to, port in asked(six)[1:]:
            assert trace(bridge, OUTSIDE[six], to, port, protocol="sctp") == wanted
            assert trace(bridge, OUTSIDE[six], to, port + 1, protocol="sctp").to == ""
            assert trace(bridge, OUTSIDE[six], to, port, protocol="tcp").to == ""
        assert trace(bridge, POD.ips[six], CLUSTER[six], protocol="sctp").to == ip


@six
def test_without_an_endpoint_it_is_rejected_and_affinity_is_remembered(bridge: OvsBridge, six: bool) -> None:
    install(bridge, SERVICE)
    assert all(trace(bridge, OUTSIDE[six], to, port, protocol="sctp").rejected for to, port in asked(six))
    sticky = msgspec.structs.replace(SERVICE, affinity_seconds=100)
    install(bridge, sticky, msgspec.structs.replace(endpoint(POD.ips[six]), protocol="SCTP"))
    assert trace(bridge, OUTSIDE[six], BALANCED[six], protocol="sctp", learns=True).to == POD.ips[six]
    (learned,) = (line for line in bridge.dump() if "hard_timeout=100" in line and "learn(" not in line)
    assert f"sctp{'6' if six else ''}," in learned


@six
def test_an_endpoint_on_another_node_answers_directly(bridge: OvsBridge, six: bool) -> None:
    direct = msgspec.structs.replace(SERVICE, mode="dsr")
    install(bridge, direct, msgspec.structs.replace(endpoint(REMOTE[six], "n2"), protocol="SCTP"), dsr=True)
    as_it_is = Verdict("", "", TUNNEL.ofport)
    assert trace(bridge, OUTSIDE[six], BALANCED[six], protocol="sctp", learns=True) == as_it_is
    for state in ("inv", "est"):
        assert trace(bridge, OUTSIDE[six], BALANCED[six], protocol="sctp", state=state) == as_it_is
