"""Which connections through virtual servers go on when there are more than can."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from antrea.antctl.kube_proxy import handover
from antrea.outside.netlink.ipvs_connection import IpvsConnection

if TYPE_CHECKING:
    import pytest

TCP, UDP, SCTP = 6, 17, 132


def connection(protocol: int, timeout: int) -> IpvsConnection:
    source, service, endpoint = (
        (ip_address(ip), port) for ip, port in (("10.0.0.1", 40000), ("10.96.0.10", 80), ("10.10.0.7", 8080))
    )
    return IpvsConnection(protocol, source, service, endpoint, source, b"", timeout, 0)


def test_all_go_on_up_to_the_limit_beyond_it_udp_ends_first_and_then_what_was_quiet_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = [connection(*row) for row in ((TCP, 100), (UDP, 170), (SCTP, 200), (TCP, 400_000), (UDP, 120))]
    assert handover.lasting(iter(there)) == (sorted(there, key=handover._lasts, reverse=True), 0)
    monkeypatch.setattr(handover, "MAX_CONNECTIONS", 4)
    found, ended = handover.lasting(iter(there))
    assert ({*there} - {*found}, ended) == ({there[4]}, 1)
    monkeypatch.setattr(handover, "MAX_CONNECTIONS", 2)
    found, ended = handover.lasting(iter(there))
    assert ({*found}, ended) == ({there[2], there[3]}, 3)
