"""A machine outside the cluster: its interface behind the switch, policies on it, and the interface given back."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from agent_process import API_PORT
from machine_process import (
    ADDRESSES,
    ENTITIES,
    NODE,
    NODES,
    PEERS,
    POLICIES,
    SPACE,
    external_node,
    listening,
    machine,
    policy,
)

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Namespaces

PORT, OTHER = 8080, 8081


async def test_a_policy_on_the_machine_drops_what_enters_and_what_leaves(
    netns: Namespaces, tmp_path: Path
) -> None:
    """From the ExternalNode to packets, in both families; then the interface is as it was."""
    async with machine(netns, tmp_path) as one:
        before = one.settings()
        assert before[0]
        one.api.put(f"{NODES}/{NODE}", external_node())
        await one.until(
            lambda: f"{ENTITIES}/{NODE}" in one.api.objects, "the controller has made the ExternalEntity"
        )
        await one.connected()
        assert one.settings() == before

        with netns.serving(netns.home, listening(PORT)), netns.serving(netns.home, listening(OTHER)):
            for address in ADDRESSES:
                assert one.opens(address, PORT, from_peer=True)
            rule = {"action": "Drop", "name": "in", "ports": [{"protocol": "TCP", "port": PORT}]}
            one.api.put(f"{POLICIES}/p", policy(ingress=[rule]))
            for address in ADDRESSES:
                await one.until(
                    lambda address=address: not one.opens(address, PORT, from_peer=True), "it is dropped"
                )
                assert one.opens(address, OTHER, from_peer=True)
        peers = [{"ipBlock": {"cidr": f"{PEERS[0]}/32"}}, {"ipBlock": {"cidr": f"{PEERS[1]}/128"}}]
        one.api.put(f"{POLICIES}/p", policy(2, egress=[{"action": "Drop", "name": "out", "to": peers}]))
        for address in PEERS:
            await one.until(lambda address=address: not one.reaches(address), "nothing leaves")
        await one.until(lambda: one.status("p") == ("Realized", 1, 1), "the policy is realized")

        one.api.drop(f"{NODES}/{NODE}")
        await one.until(
            lambda: not one.is_connected() and one.settings() == before, "the interface is given back"
        )
        for address in PEERS:
            assert one.reaches(address)


async def test_the_agent_of_the_machine_reports_what_it_does(netns: Namespaces, tmp_path: Path) -> None:
    """AntreaAgentInfo, statistics, and its own API, which other hosts do not reach."""
    async with machine(netns, tmp_path, networkPolicyStatsInterval="1s") as one:
        one.api.put(f"{NODES}/{NODE}", external_node("eth0"))
        await one.connected()
        one.api.put(f"{POLICIES}/p", policy(ingress=[{"action": "Drop", "name": "in"}]))
        for address in ADDRESSES:
            await one.until(lambda address=address: not one.reaches(address, from_peer=True), "it is dropped")

        async def counts() -> bool:
            path = f"/apis/stats.antrea.io/v1alpha1/namespaces/{SPACE}/antreanetworkpolicystats/p"
            return bool((await one.served(path)).get("trafficStats", {}).get("packets"))

        await one.until(counts, "what was dropped is counted")
        path = f"/apis/crd.antrea.io/v1beta1/antreaagentinfos/{NODE}"
        await one.until(lambda: "nodeRef" in one.api.objects.get(path, {}), "the agent has reported")
        assert one.api.objects[path]["nodeRef"] == {"kind": "ExternalNode", "namespace": SPACE, "name": NODE}
        status, text = await one.agent.get("/networkpolicies")
        assert (status, [found["sourceRef"]["name"] for found in json.loads(text)["items"]]) == (200, ["p"])
        assert one.agent.process is not None
        entered = f"nsenter --mount --target {one.agent.process.pid} env POD_NAME=antrea-agent"
        assert f"{SPACE}/p" in netns.sh(f"{entered} {sys.executable} -m antrea.antctl.main get networkpolicy")
        assert one.opens("127.0.0.1", API_PORT)
        assert not one.opens(ADDRESSES[0], API_PORT)


@pytest.mark.wide
async def test_what_a_policy_rejects_is_answered(netns: Namespaces, tmp_path: Path) -> None:
    """In both directions and families: at once, though something listens."""
    async with machine(netns, tmp_path) as one:
        one.api.put(f"{NODES}/{NODE}", external_node("eth0"))
        await one.connected()
        with netns.serving(netns.home, listening(PORT)), netns.serving(one.peer, listening(PORT)):
            for address, from_peer in (
                *((own, True) for own in ADDRESSES),
                *((peer, False) for peer in PEERS),
            ):
                assert one.opens(address, PORT, from_peer=from_peer)
            one.api.put(f"{POLICIES}/p", policy(ingress=[{"action": "Reject", "name": "in"}]))
            for address in ADDRESSES:
                await one.until(
                    lambda address=address: one.is_refused(address, PORT, from_peer=True),
                    "what enters is refused",
                )
            one.api.put(f"{POLICIES}/p", policy(2, egress=[{"action": "Reject", "name": "out"}]))
            for address in PEERS:
                await one.until(
                    lambda address=address: one.is_refused(address, PORT), "what leaves is refused"
                )


async def test_bypass_rules_let_in_what_a_policy_drops(netns: Namespaces, tmp_path: Path) -> None:
    """Also when the policy was there first, in both families; of others the policy holds."""
    rules = [
        {"direction": "ingress", "protocol": "tcp", "cidr": cidr, "port": PORT}
        for cidr in ("0.0.0.0/0", "::/0")
    ]
    place = {"externalNodeNamespace": SPACE, "policyBypassRules": rules}
    async with machine(netns, tmp_path, externalNode=place) as one:
        one.api.put(f"{POLICIES}/p", policy(ingress=[{"action": "Drop", "name": "in"}]))
        one.api.put(f"{NODES}/{NODE}", external_node("eth0"))
        await one.connected()
        await one.until(lambda: one.status("p") == ("Realized", 1, 1), "the policy is realized")
        with netns.serving(netns.home, listening(PORT)), netns.serving(netns.home, listening(OTHER)):
            for address in ADDRESSES:
                assert one.opens(address, PORT, from_peer=True)
                assert not one.opens(address, OTHER, from_peer=True)


@pytest.mark.wide
async def test_an_external_node_that_is_deleted_while_no_agent_runs(
    netns: Namespaces, tmp_path: Path
) -> None:
    """Policies hold without an agent and over its restart; then the next one gives the interface back."""
    async with machine(netns, tmp_path, cniSocket=f"{tmp_path}/run/cni.sock") as one:
        before = one.settings()
        assert before[0]
        one.api.put(f"{NODES}/{NODE}", external_node("eth0"))
        await one.connected()
        one.api.put(f"{POLICIES}/p", policy(ingress=[{"action": "Drop", "name": "in"}]))
        for address in ADDRESSES:
            await one.until(lambda address=address: not one.reaches(address, from_peer=True), "it is dropped")
        for _ in range(2):
            await one.agent.kill()
            assert not any(one.reaches(address, from_peer=True) for address in ADDRESSES)
            assert all(one.reaches(address) for address in PEERS)
            await one.agent.start()
            await one.agent.until(lambda agent: agent.ready(), "the agent is ready")
            assert one.settings() == before
        await one.agent.kill()
        one.api.drop(f"{NODES}/{NODE}")
        await one.agent.start()
        await one.until(
            lambda: not one.is_connected() and one.settings() == before, "the interface is given back"
        )
        assert all(one.reaches(address, from_peer=True) for address in ADDRESSES)


@pytest.mark.wide
async def test_an_address_that_has_changed_is_reported_and_policies_hold(
    netns: Namespaces, tmp_path: Path
) -> None:
    """The interface is known from before; one that the ExternalNode does not list is given back."""
    async with machine(netns, tmp_path) as one:
        one.api.put(f"{NODES}/{NODE}", external_node())
        await one.connected()
        one.api.put(f"{POLICIES}/p", policy(ingress=[{"action": "Drop", "name": "in"}]))
        await one.until(lambda: not one.reaches(ADDRESSES[0], from_peer=True), "it is dropped")
        new = "192.0.2.3"
        netns.sh(
            f"ip addr del {ADDRESSES[0]}/24 dev eth0; ip addr del {ADDRESSES[1]}/64 dev eth0; ip addr add {new}/24 dev eth0"
        )
        await one.until(lambda: one.events("has one of the addresses"), "an Event")
        assert one.reaches(PEERS[0])
        assert not one.reaches(new, from_peer=True)
        assert one.is_connected()
        one.api.put(f"{NODES}/{NODE}", external_node("eth7", "192.0.2.77"))
        await one.until(lambda: one.events("interface eth7 is not protected"), "another Event")
        await one.until(lambda: not one.is_connected(), "eth0 is not eth7")
        await one.until(lambda: one.reaches(new, from_peer=True), "no policy is on it")
        await one.until(lambda: one.conditions("InterfaceNotConnected"), "a condition")
        (condition,) = one.conditions("InterfaceNotConnected")
        assert condition["status"] == "True"


@pytest.mark.wide
async def test_a_card_that_the_external_node_does_not_list_is_not_taken(
    netns: Namespaces, tmp_path: Path
) -> None:
    """Nor one that OVSDB has from a boot before, when names were others."""
    async with machine(netns, tmp_path) as one:
        before = one.settings()
        ids = f"external_ids:antrea-type=host external_ids:entity-name={NODE} external_ids:entity-namespace={SPACE}"
        one.agent.switch.vsctl(
            "--no-wait", "add-port", "br-int", "eth0", "--", "set", "port", "eth0", *ids.split(),
            'external_ids:uplink-name="eth0~"',
        )  # fmt: skip
        one.api.put(f"{NODES}/{NODE}", external_node("", "203.0.113.77", "2001:db8:77::1"))
        await one.until(lambda: one.events("is not protected"), "an Event")
        await one.until(lambda: "eth0" not in one.agent.switch.ports("br-int"), "the port is gone")
        assert one.settings() == before
        assert not one.is_connected()
        assert all(one.reaches(address, from_peer=True) for address in ADDRESSES)


async def test_the_interface_has_its_addresses_again_when_ovs_vswitchd_comes_back(
    netns: Namespaces, tmp_path: Path
) -> None:
    """Its port is a new one then, without addresses; a policy of 100 rules holds as before."""
    async with machine(netns, tmp_path) as one:
        before = one.settings()
        assert before[0]
        one.api.put(f"{NODES}/{NODE}", external_node("eth0"))
        await one.connected()
        ports = [{"protocol": "TCP", "port": PORT + number} for number in range(100)]
        rules = [
            {"action": "Drop", "name": f"r{number}", "ports": [port]} for number, port in enumerate(ports)
        ]
        one.api.put(f"{POLICIES}/p", policy(ingress=rules))
        await one.until(lambda: one.status("p") == ("Realized", 1, 1), "the policy is realized")
        one.agent.switch.kill("ovs-vswitchd")
        one.agent.switch.start_switch()
        for address in PEERS:
            await one.until(lambda address=address: one.reaches(address), "packets pass again")
        await one.until(lambda: one.settings() == before, "addresses and routes are there")
        with netns.serving(netns.home, listening(PORT)), netns.serving(netns.home, listening(PORT + 100)):
            for address in ADDRESSES:
                assert not one.opens(address, PORT, from_peer=True)
                assert one.opens(address, PORT + 100, from_peer=True)
