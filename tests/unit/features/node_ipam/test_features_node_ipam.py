"""Pod CIDRs: one of each cluster CIDR for a Node, none that another Node or a Service has, and freed when a Node goes."""

from __future__ import annotations

import itertools
import random
from ipaddress import ip_network

import msgspec
import pytest

from antrea.apis.core import Node
from antrea.config.controller import NodeIPAM
from antrea.features.node_ipam.allocation import SERVICES, Allocation, Shared
from antrea.features.node_ipam.cidr_set import CidrSet
from antrea.features.node_ipam.controller import NodePodCidrs, node_row

SMALL = NodeIPAM(enable_node_ipam=True, cluster_cidrs=("10.10.0.0/22",))


def given(allocation: Allocation, *nodes: str) -> list[tuple[str, ...]]:
    return [allocation.allocate(node)[0] for node in nodes]


def test_nodes_get_the_next_free_cidr_and_the_last_one_is_told_that_there_is_none() -> None:
    allocation = Allocation(SMALL)
    assert given(allocation, "n1", "n2", "n3", "n4") == [(f"10.10.{third}.0/24",) for third in range(4)]
    assert allocation.allocate("n5") == ((), "all 4 CIDRs of length /24 in 10.10.0.0/22 are in use")


def test_a_freed_cidr_is_used_again_only_after_the_others() -> None:
    allocation = Allocation(SMALL)
    given(allocation, "n1", "n2")
    assert allocation.free("n1")
    assert given(allocation, "n3", "n4", "n5") == [("10.10.2.0/24",), ("10.10.3.0/24",), ("10.10.0.0/24",)]
    assert not allocation.free("n1")


def test_what_nodes_have_already_is_theirs() -> None:
    allocation = Allocation(SMALL)
    assert allocation.hold("n1", ["10.10.0.0/23"]) == []
    assert given(allocation, "n2", "n3", "n4") == [("10.10.2.0/24",), ("10.10.3.0/24",), ()]
    assert allocation.hold("n5", ["10.10.3.0/24"]) == [Shared("10.10.3.0/24", ("n3",))]
    allocation.free("n5")
    assert given(allocation, "n6") == [()]
    allocation.free("n3")
    assert given(allocation, "n6") == [("10.10.3.0/24",)]


def test_each_node_has_a_cidr_of_each_family_or_none() -> None:
    config = NodeIPAM(
        enable_node_ipam=True,
        cluster_cidrs=("10.10.0.0/23", "fd00:10::/63"),
        node_cidr_mask_size_ipv4=24,
        node_cidr_mask_size_ipv6=64,
    )
    allocation = Allocation(config)
    allocation.hold("old", ["10.20.0.0/24", "fd00:10::/64"])
    assert given(allocation, "n1", "n2") == [("10.10.0.0/24", "fd00:10:0:1::/64"), ()]
    allocation.free("old")
    assert given(allocation, "n2") == [("10.10.1.0/24", "fd00:10::/64")]


def test_addresses_of_services_are_left_out() -> None:
    config = msgspec.structs.replace(SMALL, service_cidr="10.10.1.0/25")
    allocation = Allocation(config)
    assert given(allocation, "n1", "n2", "n3", "n4")[1:] == [("10.10.2.0/24",), ("10.10.3.0/24",), ()]
    assert allocation.hold("n5", ["10.10.1.0/24"]) == [Shared("10.10.1.0/24", (SERVICES,))]


@pytest.mark.parametrize("seed", range(20))
def test_no_two_nodes_overlap_whatever_happens(seed: int) -> None:
    chance, nodes = random.Random(seed), dict[str, str]()
    network = ip_network("10.0.0.0/22")
    cidr_set = CidrSet(str(network), 26)
    for number in range(300):
        name = f"n{number}"
        if nodes and chance.random() < 0.5:
            gone = chance.choice(sorted(nodes))
            cidr_set.release(nodes.pop(gone), gone)
        elif chance.random() < 0.2:
            wide = chance.choice(list(network.subnets(new_prefix=chance.choice([24, 25, 27]))))
            if not cidr_set.occupy(str(wide), name):
                nodes[name] = str(wide)
            else:
                cidr_set.release(str(wide), name)
        elif cidr := cidr_set.allocate(name):
            nodes[name] = cidr
        networks = sorted(map(ip_network, nodes.values()))
        assert not any(one.overlaps(other) for one, other in itertools.pairwise(networks)), nodes
    while cidr_set.allocate("last"):
        pass
    free = sum(1 for part in network.subnets(new_prefix=26) if not cidr_set.occupy(str(part), "last"))
    assert free == sum(
        1
        for part in network.subnets(new_prefix=26)
        if not any(ip_network(cidr).overlaps(part) for cidr in nodes.values())
    )


def test_a_node_with_the_old_field_alone_has_its_cidr() -> None:
    found = {"metadata": {"name": "n1", "uid": "u1"}, "spec": {"podCIDR": "10.10.1.0/24"}}
    assert node_row(msgspec.convert(found, Node)) == NodePodCidrs("n1", "u1", ("10.10.1.0/24",))
