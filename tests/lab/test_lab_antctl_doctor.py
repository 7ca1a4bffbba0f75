"""`antctl doctor`: a fault is made on a Node, is found, and goes by the command that the finding names."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
import workstation
from agent_node import in_agent, wait_ready

from antrea.antctl.doctor.checks import CHECKS
from antrea.antctl.doctor.command import OF_CLUSTER
from lab import node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

SILENT = "no answer within 2 s, as if a firewall dropped it"


class Fault(NamedTuple):
    """`make` and `unmake` are shell lines; `at` is the Node that has it, `finding` what node-1's doctor says."""

    check: str
    severity: str
    make: str
    unmake: str
    finding: str
    at: str = "node-1"


FAULTS = (
    Fault(
        "cni-configs",
        "warning",
        'echo \'{"type": "bridge"}\' > /etc/cni/net.d/99-other.conf',
        "rm -f /etc/cni/net.d/99-other.conf*",
        "CNI configuration 99-other.conf (bridge) is of another plugin, which takes over whenever "
        "10-antrea.conflist is away",
    ),
    Fault(
        "mtu",
        "error",
        "ip link set dev eth1 mtu 1400",
        "ip link set dev eth1 mtu 1500",
        "Pods send packets of 1450 bytes, which take 1500 between Nodes, and eth1 carries 1400: longer packets are lost",
    ),
    Fault(
        "foreign-drops",
        "error",
        "iptables -P FORWARD DROP",
        "iptables -P FORWARD ACCEPT; iptables -D FORWARD -i antrea-gw0 -j ACCEPT; "
        "iptables -D FORWARD -o antrea-gw0 -j ACCEPT; true",
        "chain FORWARD of table ip filter drops what Pods send out of the Node",
    ),
    Fault(
        "gossip-port",
        "error",
        "iptables -A INPUT -p tcp --dport 10351 -j DROP",
        "iptables -D INPUT -p tcp --dport 10351 -j DROP; iptables -D INPUT -p tcp --dport 10351 -j ACCEPT; "
        "iptables -D INPUT -p udp --dport 10351 -j ACCEPT; true",
        f"port 10351 of Node node-2 (172.31.0.12) does not answer: {SILENT}; the repair is for Node node-2",
        "node-2",
    ),
)
CORE = ("mtu",)


def doctor(lab: Lab, *, code: int) -> list[dict[str, str]]:
    """What is found on node-1, from a workstation."""
    wait_ready(lab, "node-1")
    done = workstation.run(lab, "doctor", "node-1", "-o", "json", code=code)
    found: list[dict[str, str]] = json.loads(done.stdout)
    return found


def shell(lab: Lab, where: str, line: str) -> None:
    node.execute(lab.record, where, "sh", "-c", line)


@contextlib.contextmanager
def made(lab: Lab, fault: Fault) -> Iterator[None]:
    shell(lab, fault.at, fault.make)
    try:
        yield
    finally:
        shell(lab, fault.at, fault.unmake)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, id=fault.check, marks=[] if fault.check in CORE else pytest.mark.wide)
        for fault in FAULTS
    ],
)
def test_a_fault_is_found_and_the_named_command_repairs_it(lab: Lab, fault: Fault) -> None:
    assert doctor(lab, code=0) == []
    with made(lab, fault):
        (found,) = doctor(lab, code=1)
        repair = found.pop("repair")
        assert found.pop("peer", "node-1") == fault.at
        assert found == {
            "node": "node-1",
            "severity": fault.severity,
            "check": fault.check,
            "finding": fault.finding,
        }
        shell(lab, fault.at, repair)
        assert doctor(lab, code=0) == []


@pytest.mark.wide
def test_a_stale_port_is_found_and_taken_off_the_bridge(lab: Lab) -> None:
    # returns once ovs-vswitchd has tried it, which it calls an error
    in_agent(lab, "node-1", "sh", "-c", "ovs-vsctl add-port br-int gone0 || true")
    (found,) = doctor(lab, code=1)
    program, *words = shlex.split(found.pop("repair"))
    assert found == {
        "node": "node-1",
        "severity": "warning",
        "check": "ovs-ports",
        "finding": "port gone0 of bridge br-int is stale: could not open network device gone0 (No such device)",
    }
    assert program == "kubectl"
    lab.api.kubectl(*words)
    assert doctor(lab, code=0) == []


@pytest.mark.wide
def test_a_wrong_clock_is_found_while_it_is_wrong(lab: Lab) -> None:
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    if library is None:
        assert not os.environ.get("CI"), "libfaketime is missing: apt-get install libfaketime"
        pytest.skip("libfaketime is missing")
    # the program in an agent's place, with a clock of its own
    agent = {**workstation.environment(), "POD_NAME": "antrea-agent-x", "NODE_NAME": "node-1"}
    shifted = {**agent, "LD_PRELOAD": str(library), "FAKETIME": "-1h"}
    assert skew(lab, agent) == []
    ((severity, text),) = skew(lab, shifted)
    assert severity == "error"
    # a second more or less, as a header tells the time in seconds
    assert re.fullmatch(r"the clock of this Node is (3599|360[0-5]) s behind the API server's", text), text
    assert skew(lab, agent) == []


def skew(lab: Lab, environment: dict[str, str]) -> list[tuple[str, str]]:
    """What is said of the clock."""
    words = workstation.command(lab, "doctor", "-o", "json")
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=180, env=environment)
    rows = json.loads(done.stdout)
    return [(row["severity"], row["finding"]) for row in rows if row["check"] == "time-skew"]


def test_all_nodes_are_looked_at_and_a_wrong_name_is_one_line(lab: Lab) -> None:
    for name in ("node-1", "node-2"):
        wait_ready(lab, name)
    done = workstation.run(lab, "doctor")
    assert done.stdout == f"Nothing found by {len(CHECKS) + len(OF_CLUSTER)} checks on 2 Nodes.\n"
    done = workstation.run(lab, "doctor", "nowhere", code=1)
    assert done.stderr == "Error: no agent runs on Node nowhere\n"
