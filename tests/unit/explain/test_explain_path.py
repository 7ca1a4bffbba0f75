"""The path that an explanation names: a tunnel or a route between two Nodes."""

from __future__ import annotations

import copy

import pytest
from explain_world import NAMESPACES, NODES, PODS, ask

from antrea.explain.objects import objects
from antrea.explain.path import NodeLinks
from antrea.explain.world import World

NETWORKS = ("02:00:00:00:00:01 192.0.2.1/24", "02:00:00:00:00:02 192.0.2.2/24")
APART = ("02:00:00:00:00:01 198.51.100.1/24", "02:00:00:00:00:02 192.0.2.2/24")


def world(links: NodeLinks, said: tuple[str, str] = ("", "")) -> World:
    nodes = copy.deepcopy(NODES)
    for node, text in zip(nodes, said, strict=True):
        node["metadata"]["annotations"] = {"node.antrea.io/link": text} if text else {}
    return World(objects({"pods": PODS, "nodes": nodes, "namespaces": NAMESPACES}), links=links)


@pytest.mark.parametrize(
    ("links", "said", "path"),
    [
        (NodeLinks(), ("", ""), "geneve tunnel from Node n1 to Node n2"),
        (NodeLinks(tunnel="vxlan"), NETWORKS, "vxlan tunnel from Node n1 to Node n2"),
        (NodeLinks("noEncap"), ("", ""), "route without a tunnel from Node n1 to Node n2"),
        (NodeLinks("hybrid", "gre"), NETWORKS, "route without a tunnel from Node n1 to Node n2"),
        (NodeLinks("hybrid", "gre"), APART, "gre tunnel from Node n1 to Node n2"),
        (NodeLinks("hybrid", "gre"), ("", ""), "gre tunnel from Node n1 to Node n2"),
    ],
)
def test_a_packet_to_a_pod_of_another_node_has_a_path(
    links: NodeLinks, said: tuple[str, str], path: str
) -> None:
    assert ask(world(links, said), "a/client", "b/db").path == path


def test_a_packet_that_stays_on_its_node_or_leaves_the_cluster_has_none() -> None:
    here = world(NodeLinks())
    assert ask(here, "a/client", "a/web").path == ""
    assert ask(here, "a/client", "203.0.113.7").path == ""
