"""The description of a lab: addresses per family, VLANs, and what is refused."""

from __future__ import annotations

import pytest

from antrea.errors import Invalid
from lab.settings import Settings
from lab.topology import Machine, Nic, StaticRoute, vlan_network


def test_a_dual_stack_node_has_two_cards_with_both_families() -> None:
    node = Settings(nodes=2, family="dual").topology().machine("node-2")

    assert node == Machine(
        name="node-2",
        role="node",
        nics=(
            Nic(name="eth0", switch="nodes", addresses=("172.30.0.12/24", "fd00:172:30::12/64")),
            Nic(name="eth1", switch="fabric", addresses=("172.31.0.12/24", "fd00:172:31::12/64")),
        ),
        routes=(StaticRoute("default", "172.30.0.1"), StaticRoute("default", "fd00:172:30::1")),
    )


@pytest.mark.parametrize(
    ("family", "addresses"),
    [
        ("ipv4", ("172.30.0.11", "")),
        ("ipv6", ("", "fd00:172:30::11")),
        ("dual", ("172.30.0.11", "fd00:172:30::11")),
    ],
)
def test_a_family_decides_which_addresses_there_are(family: str, addresses: tuple[str, str]) -> None:
    node = Settings(family=family).topology().machine("node-1")  # type: ignore[arg-type]

    assert (node.address("eth0", 4), node.address("eth0", 6)) == addresses


def test_vlans_make_trunks_of_the_nodes_cards_and_give_the_gateway_an_address_in_each() -> None:
    topology = Settings(nodes=1, vlans=(100, 200)).topology()

    assert topology.machine("node-1").nics[1].trunk == (100, 200)
    assert [(n.name, n.vlan, n.addresses) for n in topology.machine("gateway").nics[3:]] == [
        ("eth3", 100, ("172.18.100.1/24",)),
        ("eth4", 200, ("172.18.200.1/24",)),
    ]
    assert {s: topology.has_vlans(s) for s in topology.switches} == {
        "nodes": False,
        "fabric": True,
        "outside": False,
    }


def test_every_vlan_has_a_subnet_of_its_own() -> None:
    assert len({vlan_network(v) for v in range(1, 4095)}) == 4094


def test_configured_routers_forward_and_hosts_do_not() -> None:
    nic = Nic(name="eth0", switch="outside")
    topology = Settings(
        routers=(Machine(name="branch", nics=(nic,)),), hosts=(Machine(name="peer", nics=(nic,)),)
    ).topology()

    assert (topology.machine("branch").forwards, topology.machine("peer").forwards) == (True, False)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (Settings(nodes=21), "nodes: 21 is not between 0 (the control plane alone) and 20"),
        (
            Settings(hosts=(Machine(name="a-very-long-name", nics=(Nic(name="eth0", switch="x"),)),)),
            "machines: 'a-very-long-name/eth0' is longer than the 15 characters of a link name",
        ),
        (Settings(hosts=(Machine(name="node-1", nics=()),)), "machines: two of them are called 'node-1'"),
        (Settings(vlans=(4095,)), "gateway/eth3.vlan: 4095 is not between 1 and 4094"),
        (
            Settings(loss={"node-9/eth1": 5}),
            "loss: 'node-9/eth1' is none of the nodes' cards, such as node-1/eth1",
        ),
        (Settings(loss={"node-1/eth1": 101}), "loss.node-1/eth1: 101 is not a percentage"),
    ],
)
def test_what_cannot_be_realized_is_named(settings: Settings, sentence: str) -> None:
    with pytest.raises(Invalid) as error:
        settings.topology()

    assert str(error.value) == sentence
