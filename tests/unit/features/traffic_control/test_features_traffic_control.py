"""Ports of TrafficControls: the same name for the same target, and upstream's names."""

from __future__ import annotations

import pytest

from antrea.apis.crd.traffic_control import (
    ErspanTunnel,
    GreTunnel,
    NamedInterface,
    TrafficControlPort,
    UdpTunnel,
)
from antrea.features.traffic_control.port import switch_port


@pytest.mark.parametrize(
    ("port", "name", "kind", "options"),
    [
        (TrafficControlPort(ovs_internal=NamedInterface("tap0")), "tap0", "internal", {}),
        (TrafficControlPort(device=NamedInterface("eno2")), "eno2", "", {}),
        (
            TrafficControlPort(vxlan=UdpTunnel("1.1.1.1")),
            "vxlan-cb3ab8",
            "vxlan",
            {"remote_ip": "1.1.1.1", "dst_port": "4789"},
        ),
        (
            TrafficControlPort(geneve=UdpTunnel("1.1.1.1", 0, 6081)),
            "geneve-e17764",
            "geneve",
            {"remote_ip": "1.1.1.1", "dst_port": "6081"},
        ),
        (TrafficControlPort(gre=GreTunnel("1.1.1.1")), "gre-b2d3bd", "gre", {"remote_ip": "1.1.1.1"}),
        (
            TrafficControlPort(erspan=ErspanTunnel("1.1.1.1", 1)),
            "erspan-9de667",
            "erspan",
            {"remote_ip": "1.1.1.1", "erspan_ver": "1"},
        ),
    ],
)
def test_a_port_has_the_name_and_options_that_upstream_gives_it(
    port: TrafficControlPort, name: str, kind: str, options: dict[str, str]
) -> None:
    found = switch_port(port)
    assert found is not None
    assert (found.name, found.type, dict(found.options)) == (name, kind, options)
    assert found.no_flood
