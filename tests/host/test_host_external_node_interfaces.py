"""Several interfaces of one ExternalNode: each is behind the switch with an ExternalEntity of its own, in both families."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from machine_process import (
    ADDRESSES,
    ENTITIES,
    NODE,
    NODES,
    PEERS,
    POLICIES,
    external_node,
    listening,
    machine,
    policy,
)

from antrea.features.external_node.machine import entity_name

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Namespaces
    from machine_process import Machine

PORT = 8080
SECOND, FAR = ("203.0.113.1", "2001:db8:8::1"), ("203.0.113.9", "2001:db8:8::9")


def add_card(one: Machine) -> None:
    """eth1, whose cable ends at the same peer, in subnets of its own."""
    sh = one.netns.sh
    sh("ip link add eth1 type veth peer name far1; ethtool -K eth1 tx off; ethtool -K far1 tx off")
    sh(f"ip link set far1 netns {one.peer}; ip link set eth1 up")
    sh(f"ip addr add {SECOND[0]}/24 dev eth1; ip addr add {SECOND[1]}/64 dev eth1 nodad")
    sh(
        f"ip addr add {FAR[0]}/24 dev far1; ip addr add {FAR[1]}/64 dev far1 nodad; ip link set far1 up",
        one.peer,
    )


def two_interfaces(*names: str, uid: str = "u1") -> dict[str, Any]:
    found = external_node(uid=uid)
    found["spec"]["interfaces"] = [
        {"ips": list(ips), **({"name": name} if name else {})}
        for name, ips in zip(names, (ADDRESSES, SECOND), strict=True)
    ]
    return found


def both_connected(one: Machine) -> bool:
    return one.is_connected() and {"eth1", "eth1~"} <= one.agent.switch.ports("br-int")


async def test_policies_hold_on_each_of_two_interfaces(netns: Namespaces, tmp_path: Path) -> None:
    """Of rules with addresses those of one interface do not count for the other; what is given back is as it was."""
    async with machine(netns, tmp_path) as one:
        add_card(one)
        before = one.settings(), one.settings("eth1")
        one.api.put(f"{NODES}/{NODE}", two_interfaces("eth0", "eth1"))
        await one.until(lambda: both_connected(one), "both are connected")
        await one.until_all(one.reaches, (*PEERS, *FAR), "answers")
        assert (one.settings(), one.settings("eth1")) == before
        for name, ips in (("eth0", ADDRESSES), ("eth1", SECOND)):
            entity = f"{ENTITIES}/{entity_name(NODE, name)}"
            await one.until(lambda entity=entity: entity in one.api.objects, f"{entity} exists")
            ends = one.api.objects[entity]["spec"]["endpoints"]
            assert [end["ip"] for end in ends] == list(ips)

        def opens(address: str) -> bool:
            return one.opens(address, PORT, from_peer=True)

        def refuses(address: str) -> bool:
            return not opens(address)

        with netns.serving(netns.home, listening(PORT)):
            await one.until_all(opens, (*ADDRESSES, *SECOND), "is open")
            far = [{"ipBlock": {"cidr": f"{FAR[0]}/32"}}, {"ipBlock": {"cidr": f"{FAR[1]}/128"}}]
            one.api.put(f"{POLICIES}/p", policy(ingress=[{"action": "Drop", "name": "far", "from": far}]))
            await one.until_all(refuses, SECOND, "is dropped")
            assert all(map(opens, ADDRESSES))
            one.api.put(f"{POLICIES}/p", policy(2, ingress=[{"action": "Drop", "name": "all"}]))
            await one.until_all(refuses, (*ADDRESSES, *SECOND), "all is dropped")
        one.api.put(f"{POLICIES}/p", policy(3, egress=[{"action": "Drop", "name": "out"}]))
        await one.until_all(lambda address: not one.reaches(address), (*PEERS, *FAR), "nothing leaves")
        await one.until(lambda: one.status("p") == ("Realized", 1, 1), "the policy is realized")

        one.api.put(f"{NODES}/{NODE}", external_node("eth0"))
        await one.until(
            lambda: one.settings("eth1") == before[1] and not both_connected(one), "eth1 is given back"
        )
        await one.until_all(one.reaches, FAR, "no policy is on it")
        assert not any(await asyncio.gather(*(asyncio.to_thread(one.reaches, address) for address in PEERS)))


@pytest.mark.wide
async def test_an_interface_that_is_not_found_does_not_keep_the_other(
    netns: Namespaces, tmp_path: Path
) -> None:
    """It is connected when its card comes, by its address."""
    async with machine(netns, tmp_path) as one:
        one.api.put(f"{NODES}/{NODE}", two_interfaces("", "eth1"))
        await one.until(lambda: one.events("interface eth1 is not protected"), "an Event")
        await one.connected()
        add_card(one)
        await one.until(lambda: both_connected(one), "both are connected")
        one.api.put(f"{POLICIES}/p", policy(ingress=[{"action": "Drop", "name": "all"}]))
        for address in (*ADDRESSES, *SECOND):
            await one.until(lambda address=address: not one.reaches(address, from_peer=True), "it is dropped")
        await one.until(
            lambda: (
                not one.conditions("InterfaceNotConnected")
                or one.conditions("InterfaceNotConnected")[0]["status"] == "False"
            ),
            "it is mended",
        )
