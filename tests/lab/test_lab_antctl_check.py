"""`antctl check` in a cluster that has our agents: what it finds, and that nothing of it is left.

The checks run side by side: most of their time goes into the end of their Namespaces, which Kubernetes begins 5 s late.
"""

from __future__ import annotations

import re
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import pytest
import workstation

from antrea import IMAGE, VERSION
from lab.images import AGNHOST

if TYPE_CHECKING:
    from lab.cluster import Lab

# the agents run it, so every Node has it
OURS = f"{IMAGE}:v{VERSION}"
NOWHERE = "registry.invalid/nothing:1"
ARGUMENTS = {
    "connectivity": ("installation", "--run", "pod-to-pod|memberlist|ipsec", "--test-image", AGNHOST),
    # no name outside the lab resolves; our own image has to do where no registry is reached
    "internet": ("installation", "--run", "internet", "--test-image", OURS),
    "cluster": ("cluster", "--test-image", AGNHOST),
    "interrupted": ("installation", "--test-image", NOWHERE),
}


class Done(NamedTuple):
    """How a check ended, and whether the Namespace of its Pods was there while it ran, and after it."""

    code: int
    stdout: str
    stderr: str
    there: tuple[bool, bool]


@pytest.fixture(scope="module")
def checks(lab: Lab) -> dict[str, Done]:
    """All of them, by name; the last is interrupted while its Pods start."""
    with ThreadPoolExecutor(len(ARGUMENTS)) as pool:
        done = pool.map(lambda name: check(lab, name), ARGUMENTS)
        return dict(zip(ARGUMENTS, done, strict=True))


def check(lab: Lab, name: str) -> Done:
    until = NOWHERE if name == "interrupted" else "is ready"
    with workstation.running(lab, "check", *ARGUMENTS[name]) as process:
        assert process.stdout
        lines: list[str] = []
        space = None
        while not (space and until in lines[-1]):
            lines.append(process.stdout.readline())
            assert lines[-1], lines
            space = space or re.search(r"Creating Namespace (antrea-test-\w+) ", lines[-1])
        during = space[1] in namespaces(lab)
        if name == "interrupted":
            process.send_signal(signal.SIGINT)
        rest, complaint = process.communicate(timeout=300)
    return Done(process.returncode, "".join(lines) + rest, complaint, (during, space[1] in namespaces(lab)))


def namespaces(lab: Lab) -> list[str]:
    return [item["metadata"]["name"] for item in lab.api.items("/api/v1/namespaces")]


def verdicts(output: str) -> dict[str, str]:
    """What is said of each test."""
    lines = [
        line.removeprefix("[lab] Test ") for line in output.splitlines() if line.startswith("[lab] Test ")
    ]
    return {name: rest for name, _, rest in (line.partition(" ") for line in lines) if "-" in name}


def test_pods_reach_each_other_on_one_node_and_across(checks: dict[str, Done]) -> None:
    done = checks["connectivity"]
    assert (done.code, done.there) == (0, (True, False)), done
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


def test_a_failed_test_is_said_and_cleaned_up_after(checks: dict[str, Done]) -> None:
    done = checks["internet"]
    assert (done.code, done.stderr, done.there) == (1, "Error: 1/1 tests failed\n", (True, False)), done
    verdict = verdicts(done.stdout)["pod-to-internet-connectivity"]
    assert verdict.startswith("failed: Pod antrea-test-")
    assert "was not able to connect to api.github.com" in verdict


def test_the_node_is_looked_at_before_an_installation(checks: dict[str, Done]) -> None:
    done = checks["cluster"]
    assert (done.code, done.there) == (1, (True, False)), done
    found = verdicts(done.stdout)
    loadable = found.pop("check-if-openvswitch-is-loadable")
    assert loadable.startswith("failed: failed to load the OVS kernel module: modprobe: "), loadable
    availability = found.pop("check-control-plane-nodes-availability")
    assert availability.startswith("was uncertain: no control-plane Nodes were found")
    assert found == {"check-k8s-version": "passed", "check-cni-existence": "passed"}
    assert "Antrea's CNI configuration file already present: 10-antrea.conflist" in done.stdout
    assert "2 tests succeeded, 1 tests failed, 1 tests were uncertain" in done.stdout


def test_ctrl_c_while_pods_start_cleans_up(checks: dict[str, Done]) -> None:
    done = checks["interrupted"]
    assert (done.code, done.there) == (1, (True, False)), done
    assert done.stdout.splitlines()[-1] == "[lab] Setup deletion successful"
    assert done.stderr == "Error: interrupted\n"
