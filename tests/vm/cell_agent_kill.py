"""Runs in the virtual machine: what crosses the kernel datapath while the agents of both nodes are killed and start again."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kernel_traffic import Arrived, Stream

from antrea.lab.process import wait_for

if TYPE_CHECKING:
    from kernel_lab import KernelLab
    from kernel_node import KernelNode

LEAST = 100
"""Numbers that have to be under way before the agents are killed, and again when they are back."""


def test_no_packet_is_lost_over_a_kill_of_the_agents(kernel: KernelLab) -> None:
    source, target, addresses = kernel.netns("client"), kernel.netns("server"), kernel.addresses("server")
    before = {name: node.rounds() for name, node in kernel.nodes.items()}
    streams = {version: Stream(source, target, addresses[version]) for version in (4, 6)}

    with streams[4], streams[6]:
        _more(streams)
        for node in kernel.nodes.values():
            node.kill_agent()
        _more(streams)
        for node in kernel.nodes.values():
            node.start_agent()
        for name, node in kernel.nodes.items():
            node.wait_for("flows of the new agent alone", partial(_replaced, node, before[name]))
        _more(streams)

    for stream in streams.values():
        sent = stream.arrived.sent
        assert stream.arrived == Arrived(sent, sent, sent)
        print(f"{sent} datagrams and lines, none lost")


def _replaced(node: KernelNode, before: set[int]) -> bool:
    now = node.rounds()
    return len(now) == 1 and not now & before


def _more(streams: dict[int, Stream]) -> None:
    until = {version: stream.arrived.sent + LEAST for version, stream in streams.items()}
    wait_for(
        "more packets",
        lambda: all(streams[v].arrived.sent >= sent for v, sent in until.items()),
        seconds=120,
    )
