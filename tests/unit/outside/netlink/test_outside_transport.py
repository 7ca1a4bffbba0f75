"""Which of several interfaces with addresses is the transport interface."""

from __future__ import annotations

from typing import Any

import pytest

from antrea.errors import Invalid, Unavailable
from antrea.outside.netlink.transport_interface import Card, choose


def card(name: str, *addresses: str) -> Card:
    return Card(name, "0a:00:00:00:00:01", 1500, addresses, ())


CARDS = (
    card("lo"),
    card("eth0", "192.0.2.11/24", "2001:db8::11/64"),
    card("eth1", "172.30.0.11/24", "fd00:172:30::11/64"),
    card("eth2", "172.30.1.11/24"),
)


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ({}, "eth0"),
        ({"node_ips": ("fd00:172:30::11",)}, "eth1"),
        ({"interface": "eth2"}, "eth2"),
        ({"cidrs": ("172.30.1.0/24", "fd00:172:30::/64")}, "eth1"),
        ({"cidrs": ("172.30.1.0/24",)}, "eth2"),
        ({"interface": "eth1", "cidrs": ("172.30.1.0/24",)}, "eth1"),
    ],
)
def test_the_name_comes_before_the_networks_and_these_before_the_nodes_address(
    said: dict[str, Any], name: str
) -> None:
    """Of several in the networks it is the first of the Node, whichever network is named first."""
    wanted: dict[str, Any] = {"interface": "", "cidrs": (), "node_ips": ("192.0.2.11", "2001:db8::11")} | said
    assert choose(CARDS, **wanted).name == name


def test_what_cannot_be_chosen_is_said_with_the_key_that_has_to_change() -> None:
    with pytest.raises(Invalid) as no:
        choose(CARDS, interface="eth9", cidrs=(), node_ips=())
    assert str(no.value) == "transportInterface: this Node has no interface 'eth9', only eth0, eth1, eth2"
    with pytest.raises(Invalid) as no:
        choose(CARDS, interface="", cidrs=("198.51.100.0/24",), node_ips=("192.0.2.11",))
    assert str(no.value) == (
        "transportInterfaceCIDRs: no interface of this Node has an address in 198.51.100.0/24"
    )
    with pytest.raises(Unavailable, match=r"no interface has the Node's address 198\.51\.100\.7"):
        choose(CARDS, interface="", cidrs=(), node_ips=("198.51.100.7",))
