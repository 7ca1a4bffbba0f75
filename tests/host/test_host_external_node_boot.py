"""A machine that has started anew: its interface is closed until the agent enforces policies, also while nobody answers it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest
from controller_program import kubeconfig
from machine_process import (
    ADDRESSES,
    NODE,
    NODES,
    PEERS,
    POLICIES,
    external_node,
    listening,
    machine,
    policy,
)

from antrea.features.external_node.agent_part.part import FILE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from conftest import Namespaces
    from machine_process import Machine

DENIED, ALLOWED, SSH = 8080, 8081, 22
BYPASS = [
    {"direction": "ingress", "protocol": "tcp", "cidr": cidr, "port": SSH} for cidr in ("0.0.0.0/0", "::/0")
]
PLACE = {"externalNodeNamespace": "vms", "policyBypassRules": BYPASS}


async def boots(one: Machine) -> None:
    """As a machine does: agent, switch and the interfaces that they made are gone; the system gives the card its name and addresses."""
    before = one.settings()
    await one.agent.kill()
    one.agent.switch.kill("ovs-vswitchd")
    one.netns.run("ip link del eth0")
    one.netns.sh(
        "ip link set eth0~ down; ip link set eth0~ name eth0; sysctl -qw net.ipv6.conf.eth0.disable_ipv6=0;"
        " ip link set eth0 up; nft flush ruleset"
    )
    for _ in range(2):
        one.netns.sh(f"nft -f {guard_file(one)}")
    one.netns.sh(
        f"ip addr add {ADDRESSES[0]}/24 dev eth0; ip addr add {ADDRESSES[1]}/64 dev eth0 nodad;"
        f" ip route add 198.51.100.0/24 via {PEERS[0]} metric 77 proto static;"
        f" ip -6 route add 2001:db8:99::/64 via {PEERS[1]} proto static"
    )
    assert one.settings() == before
    one.agent.switch.start_switch()


def guard_file(one: Machine) -> Path:
    return one.agent.kept / FILE.relative_to("/var/lib")


@contextlib.asynccontextmanager
async def never_opens(one: Machine, port: int) -> AsyncIterator[None]:
    """No connection from the peer to that port is made while the block lasts, and until each address was tried after its begin."""
    tried = 0

    async def trying() -> None:
        nonlocal tried
        while True:
            for address in ADDRESSES:
                assert not await asyncio.to_thread(one.opens, address, port, from_peer=True)
                tried += 1

    task = asyncio.create_task(trying())
    try:
        yield
        await one.until(lambda: task.done() or tried >= len(ADDRESSES), "each address was tried")
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def booted(netns: Namespaces, folder: Path) -> AsyncIterator[Machine]:
    """A machine with a policy that was connected, after its boot and before its agent; three servers run on it."""
    (folder / "kept").mkdir()
    async with machine(netns, folder, externalNode=PLACE) as one:
        one.api.put(f"{NODES}/{NODE}", external_node())
        await one.connected()
        ports = [{"protocol": "TCP", "port": port} for port in (DENIED, SSH)]
        one.api.put(f"{POLICIES}/p", policy(ingress=[{"action": "Drop", "name": "in", "ports": ports}]))
        await one.until(lambda: one.status("p") == ("Realized", 1, 1), "the policy is realized")
        state = one.agent.kept / "antrea/controller-state"
        await one.until(lambda: state.exists() and b"SentPolicy" in state.read_bytes(), "the policy is kept")
        await boots(one)
        with contextlib.ExitStack() as servers:
            for port in (DENIED, ALLOWED, SSH):
                servers.enter_context(netns.serving(netns.home, listening(port)))
            yield one


async def opens(one: Machine, port: int) -> None:
    for address in ADDRESSES:
        await one.until(lambda address=address: one.opens(address, port, from_peer=True), f"{port} is open")


async def test_nothing_enters_before_policies_are_enforced_again(netns: Namespaces, tmp_path: Path) -> None:
    """In both families; bypass rules hold from the boot on. What is given back is not closed at the next boot."""
    async with booted(netns, tmp_path) as one:
        before = one.settings()
        for address in ADDRESSES:
            assert not one.opens(address, ALLOWED, from_peer=True)
            assert one.opens(address, SSH, from_peer=True)
        assert all(one.reaches(address) for address in PEERS)
        async with never_opens(one, DENIED):
            await one.agent.start()
            await opens(one, ALLOWED)
        assert (one.is_connected(), one.settings()) == (True, before)
        assert "antrea-boot" not in netns.sh("nft list tables")
        one.api.drop(f"{NODES}/{NODE}")
        await one.until(lambda: not one.is_connected() and one.settings() == before, "it is given back")
        await one.until(lambda: not guard_file(one).exists(), "the next boot closes nothing")
        assert all(one.reaches(address, from_peer=True) for address in ADDRESSES)


@pytest.mark.wide
async def test_policies_of_before_hold_after_a_boot_while_nobody_answers(
    netns: Namespaces, tmp_path: Path
) -> None:
    """Neither kube-apiserver nor antrea-controller."""
    async with booted(netns, tmp_path) as one:
        before = one.settings()
        for path in (tmp_path / "kubeconfig", tmp_path / "controller/antrea.kubeconfig"):
            kubeconfig(path, "http://127.0.0.1:9")
        async with never_opens(one, DENIED):
            await one.agent.start()
            await opens(one, ALLOWED)
        assert (one.is_connected(), one.settings()) == (True, before)
        assert "antrea-boot" not in netns.sh("nft list tables")


@pytest.mark.wide
async def test_a_machine_with_another_address_after_its_boot_stays_closed(
    netns: Namespaces, tmp_path: Path
) -> None:
    """No policy is known for it: what bypass rules name enters, and the status says why nothing else does."""
    async with booted(netns, tmp_path) as one:
        new = ("192.0.2.3", "2001:db8:7::3")
        netns.sh(
            f"ip addr flush dev eth0 scope global; ip addr add {new[0]}/24 dev eth0; ip addr add {new[1]}/64 dev eth0 nodad"
        )
        await one.agent.start()
        await one.until(lambda: one.events("lets no new connection in"), "an Event")
        for address in new:
            assert one.opens(address, SSH, from_peer=True)
            assert not one.opens(address, ALLOWED, from_peer=True)
        one.api.put(f"{NODES}/{NODE}", external_node("", *new))
        await one.until(one.is_connected, "it is connected by its new addresses")
        for address in new:
            await one.until(lambda address=address: one.opens(address, ALLOWED, from_peer=True), "it is open")
            assert not one.opens(address, DENIED, from_peer=True)
