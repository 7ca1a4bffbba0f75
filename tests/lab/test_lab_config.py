"""The agents' configuration changes while they run: it takes effect, or is refused, and no packet is lost."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import workstation
from agent_node import AGENT_SECONDS, Sandbox, antctl, health, pid_of, pod_namespace, ready
from config_map import KEY, ConfigMap, value, wait_value
from quiet_pod import quiet_pods

from antrea.errors import Unavailable
from lab import node
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab
INTERVAL = 0.02
"""Seconds between two packets of ping."""
CORRECTED_SECONDS = 15
"""From the correction of a refused configuration to a ready agent."""
WITHOUT_ROUTES = 2 * 0.1
"""Seconds at most that two Nodes forget their routes for; what restarts OVS or an agent takes longer than a second."""


@pytest.fixture
def config(lab: Lab) -> Iterator[ConfigMap]:
    mine = ConfigMap(lab)
    try:
        yield mine
    finally:
        mine.write(mine.text)
        wait_value(lab, "defaultMTU", 0)


def events(lab: Lab, reason: str) -> list[str]:
    shown = lab.api.kubectl(
        "get", "events", f"--field-selector=reason={reason},involvedObject.name=node-1", "-o", "json"
    )
    return [event["message"] for event in json.loads(shown)["items"]]


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@pytest.fixture(scope="module")
def pods(lab: Lab) -> Iterator[tuple[str, str, str]]:
    """Addresses of two Pods on node-1 and of one on node-2."""
    with quiet_pods(lab, {"still-1": "node-1", "near-1": "node-1", "still-2": "node-2"}) as found:
        yield found["still-1"], found["near-1"], found["still-2"]


def test_a_changed_key_takes_effect_without_a_restart_and_loses_no_packet(
    lab: Lab, config: ConfigMap, pods: tuple[str, str, str], tmp_path: Path
) -> None:
    pid, new = pid_of(lab, "node-1", "antrea-agent"), Sandbox(lab, "node-1")
    source, near, far = pods
    inside = pod_namespace(lab, "node-1", source)
    with pinged(inside, near, tmp_path) as on_node, pinged(inside, far, tmp_path) as over_tunnel:
        config.change(defaultMTU=1300)
        wait_value(lab, "defaultMTU", 1300)
    try:
        assert new.call("ADD").code == 0
        link = node.execute(
            lab.record, "node-1", "ip", "netns", "exec", new.space, "ip", "link", "show", "eth0"
        )
    finally:
        new.remove()

    assert "mtu 1300" in link
    assert lost(on_node) == 0, on_node.read_text()
    # Whenever a link of a Node changes, here antrea-gw0, userspace OVS forgets its routes for a moment, and tunnels with
    # them (docs/datapaths.md), and both Nodes take the change: the one that sends and the one that answers. That the kernel
    # datapath loses nothing is shown by tests/vm/cell_agent_kill.py.
    assert lost(over_tunnel) * INTERVAL <= WITHOUT_ROUTES, over_tunnel.read_text()
    assert pid_of(lab, "node-1", "antrea-agent") == pid


def unhealthy(lab: Lab) -> dict[tuple[str, str], int]:
    """How often a probe of an agent has failed, by Pod and words."""
    words = ("-n", "kube-system", "get", "events", "--field-selector=reason=Unhealthy", "-o", "json")
    found = json.loads(lab.api.kubectl(*words))["items"]
    named = [event for event in found if event["involvedObject"]["name"].startswith("antrea-agent-")]
    return {(event["involvedObject"]["name"], event["message"]): event["count"] for event in named}


@pytest.mark.wide
def test_a_changed_key_fails_no_probe_on_any_node(lab: Lab, config: ConfigMap) -> None:
    before = unhealthy(lab)
    for mtu in (1302, 1303, 1304):
        config.change(defaultMTU=mtu)
        wait_value(lab, "defaultMTU", mtu)
    # kubelet, which asks every 2 s, has found all of them ready since, and tells what it found before
    words = ("-n", "kube-system", "get", "pods", "-l", "component=antrea-agent", "-o", "jsonpath={..ready}")
    assert "false" not in lab.api.kubectl(*words)
    assert unhealthy(lab) == before
    logs = lab.api.kubectl(
        *("-n", "kube-system", "logs", "-l", "component=antrea-agent", "-c", "antrea-agent", "--tail=-1")
    )
    assert "TaskGroup" not in logs


@contextlib.contextmanager
def pinged(inside: list[str], address: str, place: Path) -> Iterator[Path]:
    """What ping says, every 20 ms as long as the block lasts, and until a packet of after it is answered."""
    said = place / address
    ping = [*inside, "ping", "-n", "-i", str(INTERVAL), address]
    with said.open("w") as out, subprocess.Popen(ping, stdout=out) as running:
        began = time.monotonic()
        try:
            wait_for("the first answer", lambda: answered(said), seconds=60, step=0.02)
            yield said
            sent = (time.monotonic() - began) / INTERVAL + 1
            wait_for("an answer of after it", lambda: max(answered(said)) > sent, seconds=60, step=0.02)
        finally:
            running.send_signal(signal.SIGINT)
            running.wait(10)


def answered(said: Path) -> set[int]:
    return {int(number) for number in re.findall(r"icmp_seq=(\d+) ", said.read_text())}


def lost(said: Path) -> int:
    """Packets without an answer before one that has one."""
    numbers = answered(said)
    assert len(numbers) > 10, said.read_text()
    return len(set(range(1, max(numbers))) - numbers)


@pytest.mark.wide
def test_changes_that_come_faster_than_an_agent_starts_are_all_taken(lab: Lab, config: ConfigMap) -> None:
    pid = pid_of(lab, "node-1", "antrea-agent")
    for number in range(12):
        config.change(defaultMTU=1350 + number)
        time.sleep(0.13 * (number % 5))  # in the midst of a replay, of a sweep, of a list
    wait_value(lab, "defaultMTU", 1361)
    assert pid_of(lab, "node-1", "antrea-agent") == pid


@pytest.mark.wide
def test_changes_leave_no_descriptor_and_no_thread_behind(lab: Lab, config: ConfigMap) -> None:
    pid = pid_of(lab, "node-1", "antrea-agent")

    def held() -> tuple[int, int]:
        return descriptors(pid), len(list(Path(f"/proc/{pid}/task").iterdir()))

    def connected() -> bool:
        info = json.loads(antctl(lab, "node-1", "get", "agentinfo", "-o", "json"))
        return ("ControllerConnectionUp", "True") in {
            (c["type"], c["status"]) for c in info["agentConditions"]
        }

    counts = []
    for mtu in (1301, 1302, 1303, 1304, 1305, 1306):
        config.change(defaultMTU=mtu)
        wait_value(lab, "defaultMTU", mtu)
        wait_for("the connection to the controller", connected, seconds=60)
        counts.append(held())
    opened, threads = zip(*counts, strict=True)
    # connections that are kept for the next request come and go; what is left behind stays
    wait_for("no more than after two changes", lambda: held()[0] <= max(opened[:2]), seconds=60)
    # asyncio starts one of its few threads whenever all that it has are at work; what a change leaves is one each time
    assert not all(one < then for one, then in itertools.pairwise(threads)), threads


def test_what_cannot_work_is_refused_with_an_event_and_the_last_good_one_goes_on(
    lab: Lab, config: ConfigMap
) -> None:
    config.change(defaultMTU=1310)
    wait_value(lab, "defaultMTU", 1310)
    gates = workstation.run(lab, "get", "featuregates")
    assert gates.stdout.startswith("Antrea Agent Feature Gates\n")
    config.change(defaultMTU="many", featureGates={"Egress": False})
    wait_for(
        "an Event",
        lambda: [e for e in events(lab, "ConfigRejected") if "defaultMTU" in e],
        seconds=AGENT_SECONDS,
    )
    info = json.loads(antctl(lab, "node-1", "get", "agentinfo", "-o", "json"))
    rejected = [c for c in info["agentConditions"] if c["type"] == "ConfigRejected"]
    assert [c["status"] for c in rejected] == ["True"]
    saved = '{.agentConditions[?(@.type=="ConfigRejected")].message}'
    wait_for(
        "the condition of the agent's object",
        lambda: "defaultMTU" in lab.api.kubectl("get", "aai", "node-1", "-o", f"jsonpath={saved}"),
        seconds=60,
    )
    assert value(lab, "defaultMTU") == (1310, KEY, "")

    def told() -> str:
        return workstation.run(lab, "get", "featuregates").stderr

    wait_for("what the agents refuse", lambda: "refused by the agents of all" in told(), seconds=60)
    refused = workstation.run(lab, "get", "featuregates")
    assert refused.stdout == gates.stdout
    assert "defaultMTU" in refused.stderr


def test_a_key_that_the_pod_depends_on_waits_and_says_so(lab: Lab, config: ConfigMap) -> None:
    config.change(ovsBridge="br-other", defaultMTU=1320)
    wait_value(lab, "defaultMTU", 1320)
    assert value(lab, "ovsBridge") == ("br-int", "default", '"br-other"')
    wait_for(
        "an Event",
        lambda: [e for e in events(lab, "ConfigNeedsRestart") if "ovsBridge" in e],
        seconds=AGENT_SECONDS,
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"clientConnection": {"kubeconfig": "/no/such/file"}}, "/no/such/file"),
        pytest.param({"transportInterface": "eth0"}, "eth0 cannot replace eth1", marks=pytest.mark.wide),
    ],
)
def test_a_change_that_fails_at_work_is_taken_back(
    lab: Lab, config: ConfigMap, change: dict[str, object], says: str
) -> None:
    pid = pid_of(lab, "node-1", "antrea-agent")
    config.change(defaultMTU=1330)
    wait_value(lab, "defaultMTU", 1330)
    config.change(defaultMTU=1340, **change)
    wait_for(
        "an Event", lambda: [e for e in events(lab, "ConfigRejected") if says in e], seconds=AGENT_SECONDS
    )
    wait_value(lab, "defaultMTU", 1330)
    assert pid_of(lab, "node-1", "antrea-agent") == pid


ASK = """
import ssl, urllib.error, urllib.request as http
token = open("/var/run/antrea/apiserver/loopback-client-token").read()
asked = http.Request("https://127.0.0.1:10349/metrics", headers={"Authorization": "Bearer " + token})
try:
    print(http.urlopen(asked, timeout=2, context=ssl._create_unverified_context()).status)
except urllib.error.HTTPError as no:
    print(no.code)
"""


def metrics_code(lab: Lab) -> str:
    """What the controller answers to one who asks for its metrics, as soon as somebody answers."""
    words = ("exec", "-n", "kube-system", "deployment/antrea-controller", "--", "python3", "-c", ASK)

    def answer() -> str:
        with contextlib.suppress(Unavailable):
            return lab.api.kubectl(*words).strip()
        return ""

    return wait_for("an answer of the controller", answer, seconds=60)


def test_the_controller_takes_a_changed_configuration_too_and_refuses_what_cannot_work(lab: Lab) -> None:
    config = ConfigMap(lab, "antrea-controller.conf")
    words = (
        "-n",
        "kube-system",
        "get",
        "pods",
        "-l",
        "component=antrea-controller",
        "-o",
        "jsonpath={..uid} {..restartCount}",
    )
    before, condition = (
        lab.api.kubectl(*words),
        '{.controllerConditions[?(@.type=="ConfigRejected")].message}',
    )
    assert metrics_code(lab) == "200"
    try:
        config.change(enablePrometheusMetrics=False)
        wait_for("the end of metrics", lambda: metrics_code(lab) == "404", seconds=60)
        config.change(enablePrometheusMetrics="perhaps")
        wait_for(
            "a condition",
            lambda: (
                "enablePrometheusMetrics"
                in lab.api.kubectl("get", "aci", "antrea-controller", "-o", f"jsonpath={condition}")
            ),
            seconds=60,
        )
        words_of_events = ("get", "events", "--field-selector=reason=ConfigRejected", "-o", "json")

        def events_of() -> list[tuple[str, str]]:
            shown = json.loads(lab.api.kubectl("-n", "kube-system", *words_of_events))["items"]
            return [(event["involvedObject"]["kind"], event["involvedObject"]["name"]) for event in shown]

        assert wait_for("an Event", events_of, seconds=60) == [("ConfigMap", "antrea-config")]
        assert metrics_code(lab) == "404"
    finally:
        config.write(config.text)
    wait_for("metrics again", lambda: metrics_code(lab) == "200", seconds=60)
    assert lab.api.kubectl(*words) == before
    assert "application" in lab.api.kubectl("get", "tiers")


def test_an_agent_whose_first_configuration_is_refused_starts_soon_after_the_correction(
    lab: Lab, config: ConfigMap
) -> None:
    """Of the same container: kubelet does not restart it."""
    of = (
        "-n",
        "kube-system",
        "get",
        "pods",
        "-l",
        "component=antrea-agent",
        "--field-selector=spec.nodeName=node-1",
    )
    count = ("-o", 'jsonpath={..containerStatuses[?(@.name=="antrea-agent")].restartCount}')
    config.change(tunnelType="stt", noSNAT=True)
    node.execute(lab.record, "node-1", "rm", "-f", "/var/run/antrea/antrea-agent.conf.good")
    before = pid_of(lab, "node-1", "antrea-agent")
    words = ("-n", "kube-system", "delete", "pod", "-l", "component=antrea-agent", "--grace-period=1")
    lab.api.kubectl(*words, "--field-selector=spec.nodeName=node-1")
    wait_for("a new agent", lambda: pid_of(lab, "node-1", "antrea-agent") not in (0, before), seconds=60)
    wait_for(
        "both keys in its readiness",
        lambda: all(f"{key}:" in health(lab, "node-1") for key in ("noSNAT", "tunnelType")),
        seconds=60,
    )
    config.write(config.text)
    wait_for("its start", lambda: ready(lab, "node-1"), seconds=CORRECTED_SECONDS)
    assert lab.api.kubectl(*of, *count) == "0"
