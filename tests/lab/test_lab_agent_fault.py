"""What breaks under our agent, in a real cluster with real packets: OVSDB, the switch, the Node object, the agent itself."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import signal
import subprocess
import time
from ipaddress import ip_interface, ip_network
from typing import TYPE_CHECKING, Any

import pytest
from agent_node import (
    Sandbox,
    antctl,
    health,
    in_agent,
    kill,
    parent_of,
    pid_of,
    pod_namespace,
    ready,
    restart_agent,
    stopped,
    wait_ready,
)
from config_map import ConfigMap, wait_value
from quiet_pod import quiet_pods

from antrea.errors import Unavailable
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.cluster import Lab

INTERVAL = 0.02
"""Seconds between two pings."""
RECONNECT = 60
"""Seconds, several times as many as it takes: ovs-vswitchd tries to reach OVSDB after 1, 2, 4 and then every 8 seconds."""


@pytest.fixture(scope="module")
def faulty(developed: Lab) -> Lab:
    return developed


@pytest.fixture(scope="module")
def pods(faulty: Lab) -> Iterator[dict[str, str]]:
    """A Pod on each node; addresses by node."""
    nodes = [machine.name for machine in faulty.topology.nodes]
    with quiet_pods(faulty, {f"app-{name}": name for name in nodes}) as found:
        yield {name: found[f"app-{name}"] for name in nodes}


@pytest.fixture
def sandbox(faulty: Lab) -> Sandbox:
    return Sandbox(faulty, "node-2")


@contextlib.contextmanager
def pinged(lab: Lab, pods: dict[str, str], place: Path, *, lasts: bool = True) -> Iterator[list[float]]:
    """Pings from the Pod of node-1 to that of node-2; after the block, the longest silence between two answers in seconds.

    `lasts`: of packets that are sent after the block some are answered, too.
    """
    words = [*pod_namespace(lab, "node-1", pods["node-1"]), "ping", "-n", "-i", str(INTERVAL), pods["node-2"]]
    result: list[float] = []
    said = place / "ping"
    wait_for("a first answer", lambda: reach(lab, pods), seconds=60)
    with said.open("w") as out, subprocess.Popen(words, stdout=out) as ping:
        began = time.monotonic()
        try:
            wait_for("an answer", lambda: answered(said), seconds=60)
            yield result
            sent = (time.monotonic() - began) / INTERVAL + 1
            if lasts:
                wait_for("an answer of after it", lambda: max(answered(said)) > sent, seconds=60, step=0.02)
        finally:
            ping.send_signal(signal.SIGINT)
            ping.wait(60)
    result += [(b - a - 1) * INTERVAL for a, b in itertools.pairwise(answered(said))] or [0.0]


def answered(said: Path) -> list[int]:
    """Numbers of packets, in the order of their answers."""
    return [int(number) for number in re.findall(r"icmp_seq=(\d+) ", said.read_text())]


def reach(lab: Lab, pods: dict[str, str]) -> bool:
    words = [*pod_namespace(lab, "node-1", pods["node-1"]), "ping", "-c", "1", "-W", "1", pods["node-2"]]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def flow_texts(lab: Lab, where: str) -> list[str]:
    """Matches and actions of all flows, without their cookies."""
    words = ("ovs-ofctl", "-O", "OpenFlow15", "dump-flows", "--no-stats", "br-int")
    return sorted(
        line.split(", ", 1)[1] for line in in_agent(lab, where, *words).splitlines() if ", " in line
    )


@pytest.mark.parametrize("how", ["killed", pytest.param("hung", marks=pytest.mark.wide)])
def test_without_ovsdb_an_add_says_try_again_and_pods_have_their_network_when_it_is_back(
    faulty: Lab, pods: dict[str, str], sandbox: Sandbox, how: str, tmp_path: Path
) -> None:
    """Userspace OVS forwards nothing without a connection to OVSDB; one to a server that hangs is enough."""
    agent = pid_of(faulty, "node-2", "antrea-agent")
    database = pid_of(faulty, "node-2", "ovsdb-server")
    with contextlib.ExitStack() as broken, pinged(faulty, pods, tmp_path, lasts=how == "hung") as silence:
        broken.enter_context(stopped(parent_of(database)))  # start_ovs, which would start it again
        if how == "hung":
            broken.enter_context(stopped(database))
        else:
            kill(database)
            wait_for(
                "a readyz that names it",
                lambda: "[-]ovsdb failed: disconnected from OVSDB" in health(faulty, "node-2"),
                seconds=60,
            )
            assert health(faulty, "node-2", "livez") == "ok"
        answer = sandbox.call("ADD")
    assert (answer.code, answer.body["cniVersion"]) == (11, "1.0.0")
    assert answer.body["msg"].startswith("Not available now: ")
    assert how == "killed" or max(silence) < 0.5

    wait_ready(faulty, "node-2")
    wait_for("a ping", lambda: reach(faulty, pods), seconds=RECONNECT)
    wait_for("an ADD that succeeds", lambda: sandbox.call("ADD").code == 0, seconds=RECONNECT)
    sandbox.remove()
    assert pid_of(faulty, "node-2", "antrea-agent") == agent


@pytest.mark.wide
def test_an_ovsdb_that_is_killed_interrupts_for_a_moment(
    faulty: Lab, pods: dict[str, str], tmp_path: Path
) -> None:
    """It is started again before ovs-vswitchd tries to connect again, which it does at once and then after a second."""
    database = pid_of(faulty, "node-2", "ovsdb-server")
    with pinged(faulty, pods, tmp_path) as silence:
        kill(database)
        wait_for(
            "a new one", lambda: pid_of(faulty, "node-2", "ovsdb-server") not in (0, database), seconds=60
        )
        wait_ready(faulty, "node-2")
        wait_for("a ping", lambda: reach(faulty, pods), seconds=RECONNECT)
    print(f"figure: ovsdb_restart_silence {max(silence):.2f} s")
    assert max(silence) < RECONNECT


def test_flows_are_replayed_when_ovs_vswitchd_is_killed(
    faulty: Lab, pods: dict[str, str], sandbox: Sandbox, tmp_path: Path
) -> None:
    agent, switch = pid_of(faulty, "node-2", "antrea-agent"), pid_of(faulty, "node-2", "ovs-vswitchd")
    before = flow_texts(faulty, "node-2")
    with pinged(faulty, pods, tmp_path) as silence:
        with stopped(parent_of(switch)):  # start_ovs, which would start it again before anybody has looked
            kill(switch)
            wait_for(
                "a livez that names it",
                lambda: "[-]ovs failed: disconnected from ovs-vswitchd" in health(faulty, "node-2", "livez"),
                seconds=60,
                step=0.02,
            )
        wait_ready(faulty, "node-2")
        wait_for("a ping", lambda: reach(faulty, pods), seconds=60)
    print(f"figure: vswitchd_restart_silence {max(silence):.2f} s")
    assert max(silence) < RECONNECT
    assert flow_texts(faulty, "node-2") == before
    assert sandbox.call("ADD").code == 0
    sandbox.remove()
    assert pid_of(faulty, "node-2", "antrea-agent") == agent


@pytest.mark.wide
def test_a_second_agent_refuses_with_one_line_and_the_first_goes_on(
    faulty: Lab, pods: dict[str, str]
) -> None:
    agent = pid_of(faulty, "node-1", "antrea-agent")
    words = ("antrea-agent", "--config=/etc/antrea/antrea-agent.conf", "--logtostderr=true")
    script = " ".join((*words, "2>&1; echo status $?"))
    said = in_agent(faulty, "node-1", "sh", "-c", script)
    assert said.splitlines() == [
        "antrea-agent: lock /var/run/antrea/antrea-agent.lock: another antrea-agent runs on this Node",
        "status 1",
    ]
    # its token too is what it was
    assert "app-node-1" in antctl(faulty, "node-1", "get", "podinterface")
    assert (pid_of(faulty, "node-1", "antrea-agent"), ready(faulty, "node-1")) == (agent, True)


@pytest.mark.wide
def test_what_vanished_while_the_agent_was_away_is_removed_and_pods_keep_theirs(
    faulty: Lab, pods: dict[str, str], sandbox: Sandbox, tmp_path: Path
) -> None:
    assert sandbox.call("ADD").code == 0
    assert sandbox.left == (True, True)
    agent = pid_of(faulty, "node-2", "antrea-agent")
    with pinged(faulty, pods, tmp_path) as silence:
        with stopped(parent_of(agent)):  # the loop that would start it again
            kill(agent)
            sandbox.vanish()
        wait_for("the next agent", lambda: pid_of(faulty, "node-2", "antrea-agent") != agent, seconds=60)
        wait_ready(faulty, "node-2")
    assert sandbox.left == (False, False)
    assert max(silence) < 0.5


def recreate(lab: Lab, name: str, cidrs: list[str]) -> list[str]:
    """Delete a Node object and make it anew with these Pod CIDRs; answers those it had."""
    old = json.loads(lab.api.kubectl("get", "node", name, "-o", "json"))
    spec: dict[str, Any] = {"podCIDR": cidrs[0], "podCIDRs": cidrs} if cidrs else {}
    labels = {"name": name, "labels": old["metadata"]["labels"]}
    fresh = {"apiVersion": "v1", "kind": "Node", "metadata": labels, "spec": spec, "status": old["status"]}
    lab.api.kubectl("delete", "node", name)
    lab.api.kubectl("create", "-f", "-", stdin=json.dumps(fresh))
    return list(old["spec"].get("podCIDRs", []))


@contextlib.contextmanager
def without_allocator(lab: Lab) -> Iterator[None]:
    """kube-controller-manager stands still, so that nobody gives Nodes Pod CIDRs or collects their Pods."""
    with stopped(lab.record.processes()["kube-controller-manager"].pid):
        yield


@pytest.mark.wide
def test_a_node_without_pod_cidr_is_waited_for_and_said(
    faulty: Lab, pods: dict[str, str], sandbox: Sandbox
) -> None:
    sentence = "podCIDR of Node node-2 (kube-controller-manager allocates it with --allocate-node-cidrs, or antrea-controller with nodeIPAM.enableNodeIPAM)"
    with without_allocator(faulty):
        cidrs = recreate(faulty, "node-2", [])
        restart_agent(faulty, "node-2")
        wait_for(
            "a readyz that names it",
            lambda: f"[-]network failed: {sentence}" in health(faulty, "node-2"),
            seconds=60,
        )
        assert health(faulty, "node-2", "livez") == "ok"
        agent = pid_of(faulty, "node-2", "antrea-agent")
        patch = json.dumps({"spec": {"podCIDR": cidrs[0], "podCIDRs": cidrs}})
        faulty.api.kubectl("patch", "node", "node-2", "-p", patch)
        wait_ready(faulty, "node-2")
        wait_for("a ping", lambda: reach(faulty, pods), seconds=60)
    assert pid_of(faulty, "node-2", "antrea-agent") == agent
    assert sandbox.call("ADD").code == 0
    sandbox.remove()


@pytest.mark.wide
def test_a_pod_cidr_that_changes_serves_new_pods_and_an_event_names_the_old_ones(
    faulty: Lab, pods: dict[str, str], sandbox: Sandbox
) -> None:
    agent = pid_of(faulty, "node-2", "antrea-agent")
    with without_allocator(faulty):
        cidrs = recreate(faulty, "node-2", ["10.244.77.0/24"])
        about = "involvedObject.kind=Node,involvedObject.name=node-2,reason=PodCIDRChanged"
        said = wait_for("the Event", lambda: events(faulty, about), seconds=60)
        added = sandbox.call("ADD")
        address = ip_interface(added.body["ips"][0]["address"])
        assert address.network == ip_network("10.244.77.0/24")
        wait_for("a ping", lambda: reach(faulty, {**pods, "node-2": str(address.ip)}), seconds=60)
        sandbox.remove()
        recreate(faulty, "node-2", cidrs)
        wait_for("a ping", lambda: reach(faulty, pods), seconds=60)
    beginning, names = said[0].rsplit(": ", 1)
    assert beginning.startswith(f"podCIDR of this Node was {cidrs[0]} and is 10.244.77.0/24: new Pods get")
    assert "default/app-node-2" in names.split(", ")
    assert pid_of(faulty, "node-2", "antrea-agent") == agent


def events(lab: Lab, about: str) -> list[str]:
    with contextlib.suppress(Unavailable):
        found = json.loads(lab.api.kubectl("get", "events", f"--field-selector={about}", "-o", "json"))
        return [item["message"] for item in found["items"]]
    return []


@pytest.mark.wide
def test_a_configuration_that_is_refused_stays_out_over_a_restart(faulty: Lab) -> None:
    config = ConfigMap(faulty)
    try:
        config.change(defaultMTU=1310)
        wait_value(faulty, "defaultMTU", 1310)
        config.change(defaultMTU="many")
        restart_agent(faulty, "node-1")
        wait_value(faulty, "defaultMTU", 1310)
        info = json.loads(antctl(faulty, "node-1", "get", "agentinfo", "-o", "json"))
        assert "ConfigRejected" in {condition["type"] for condition in info["agentConditions"]}
    finally:
        config.write(config.text)
    wait_value(faulty, "defaultMTU", 0)
