"""`antctl check` in a cluster that has our agents: what it finds, and that nothing of it is left."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import workstation

from antrea.lab.images import AGNHOST

if TYPE_CHECKING:
    from antrea.lab.cluster import Lab

# the agents run it, so every Node has it
OURS = "antrea/antrea-agent-ubuntu:latest"


def namespaces(lab: Lab) -> list[str]:
    """Those of checks that are still there."""
    names = [item["metadata"]["name"] for item in lab.api.items("/api/v1/namespaces")]
    return [name for name in names if name.startswith("antrea-test-")]


def verdicts(output: str) -> dict[str, str]:
    """What is said of each test."""
    lines = [
        line.removeprefix("[lab] Test ") for line in output.splitlines() if line.startswith("[lab] Test ")
    ]
    return {name: rest for name, _, rest in (line.partition(" ") for line in lines) if "-" in name}


def test_pods_reach_each_other_on_one_node_and_across(lab: Lab) -> None:
    words = ("check", "installation", "--run", "pod-to-pod|memberlist|ipsec", "--test-image", AGNHOST)
    done = workstation.run(lab, *words, seconds=60)
    assert verdicts(done.stdout) == {
        "pod-to-pod-intranode-connectivity": "passed",
        "pod-to-pod-internode-connectivity": "passed",
    }
    assert "Test memberlist passed" in done.stdout
    assert "Test ipsec was skipped: test is not runnable: IPsec is not enabled" in done.stdout
    assert done.stdout.splitlines()[-4:-3] + done.stdout.splitlines()[-1:] == [
        "[lab] Test finished: 3 tests succeeded, 0 tests failed, 1 tests were skipped",
        "[lab] Setup deletion successful",
    ]
    assert namespaces(lab) == []


def test_a_failed_test_is_said_and_cleaned_up_after(lab: Lab) -> None:
    # no name outside the lab resolves; our own image has to do where no registry is reached
    words = ("check", "installation", "--run", "internet", "--test-image", OURS)
    done = workstation.run(lab, *words, code=1, seconds=60)
    assert done.stderr == "Error: 1/1 tests failed\n"
    verdict = verdicts(done.stdout)["pod-to-internet-connectivity"]
    assert verdict.startswith("failed: Pod antrea-test-")
    assert "was not able to connect to api.github.com" in verdict
    assert namespaces(lab) == []


def test_the_node_is_looked_at_before_an_installation(lab: Lab) -> None:
    done = workstation.run(lab, "check", "cluster", "--test-image", AGNHOST, code=1, seconds=60)
    found = verdicts(done.stdout)
    loadable = found.pop("check-if-openvswitch-is-loadable")
    assert loadable.startswith("failed: failed to load the OVS kernel module: modprobe: "), loadable
    availability = found.pop("check-control-plane-nodes-availability")
    assert availability.startswith("was uncertain: no control-plane Nodes were found")
    assert found == {"check-k8s-version": "passed", "check-cni-existence": "passed"}
    assert "Antrea's CNI configuration file already present: 10-antrea.conflist" in done.stdout
    assert "2 tests succeeded, 1 tests failed, 1 tests were uncertain" in done.stdout
    assert namespaces(lab) == []


def test_ctrl_c_while_pods_start_cleans_up(lab: Lab) -> None:
    words = ("check", "installation", "--test-image", "registry.invalid/nothing:1")
    with workstation.running(lab, *words) as check:
        assert check.stdout
        lines: list[str] = []
        while not any("registry.invalid/nothing:1" in line for line in lines):
            lines.append(check.stdout.readline())
            assert lines[-1], lines
        assert len(namespaces(lab)) == 1
        check.send_signal(signal.SIGINT)
        rest, _ = check.communicate(timeout=30)
    assert rest.splitlines()[-2:] == ["[lab] Setup deletion successful", "Error: interrupted"]
    assert (check.returncode, namespaces(lab)) == (1, [])
