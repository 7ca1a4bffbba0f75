"""What is decided about a Node's card before anything is changed."""

from typing import Literal

import pytest

from antrea.agent.node.bootstrap import pod_mtu, tunnel_ends
from antrea.config.agent import AgentConfig

HELD = ("172.30.0.11/24", "192.0.2.11/24", "fd00:172:30::11/64")
NODE_IPS = ("172.30.0.11",)


@pytest.mark.parametrize(
    ("config", "ends"),
    [
        (AgentConfig(), NODE_IPS),
        (AgentConfig(transport_interface="eth0"), ("172.30.0.11", "fd00:172:30::11")),
        (AgentConfig(transport_interface_cidrs=("fd00:172:30::/64",)), ("fd00:172:30::11",)),
        (AgentConfig(transport_interface_cidrs=("192.0.2.0/24",)), ("192.0.2.11",)),
        (
            AgentConfig(transport_interface="eth0", transport_interface_cidrs=("192.0.2.0/24",)),
            ("172.30.0.11", "fd00:172:30::11"),
        ),
    ],
)
def test_tunnels_end_at_the_addresses_that_the_configuration_names(
    config: AgentConfig, ends: tuple[str, ...]
) -> None:
    assert tunnel_ends(config, HELD, NODE_IPS) == ends


@pytest.mark.parametrize(
    ("config", "card", "mtu"),
    [
        (AgentConfig(), 1500, 1450),
        (AgentConfig(), 65535, 65000),
        (AgentConfig(tunnel_type="vxlan", tunnel_port=8472), 1500, 1450),
        (AgentConfig(tunnel_type="gre"), 1500, 1458),
        (AgentConfig(traffic_encap_mode="noEncap"), 1500, 1500),
        (AgentConfig(traffic_encap_mode="noEncap", tunnel_type="gre"), 65535, 65535),
        (AgentConfig(traffic_encap_mode="noEncap", default_mtu=1400), 1500, 1400),
    ],
)
def test_pods_have_the_mtu_of_the_card_less_what_a_tunnel_adds(
    config: AgentConfig, card: int, mtu: int
) -> None:
    assert pod_mtu(config, card, NODE_IPS) == mtu


@pytest.mark.parametrize(
    ("kind", "ends", "mtu"),
    [
        ("geneve", ("2001:db8::1",), 1430),
        ("vxlan", ("2001:db8::1",), 1430),
        ("vxlan", ("192.0.2.1", "2001:db8::1"), 1450),
    ],
)
def test_an_outer_header_of_ipv6_takes_twenty_bytes_more(
    kind: Literal["geneve", "vxlan"], ends: tuple[str, ...], mtu: int
) -> None:
    assert pod_mtu(AgentConfig(tunnel_type=kind), 1500, ends) == mtu
