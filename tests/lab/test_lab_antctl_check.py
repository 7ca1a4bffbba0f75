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

from lab.images import AGNHOST

if TYPE_CHECKING:
    from lab.cluster import Lab

NOWHERE = "registry.invalid/nothing:1"
SILENT = "192.0.2.10:9"
"""The external host, at a port where nothing listens."""
ARGUMENTS = {
    "connectivity": (
        *("installation", "--run", "pod-to-pod|memberlist|ipsec|wireguard", "--skip", "wireguard"),
        *("--test-image", AGNHOST),
    ),
    # a lab is a cluster without the Internet, and whose Nodes pull nothing: the image is that of the agents
    "air gap": ("installation", "--run", "internet|intranode"),
    "target": ("installation", "--run", "internet", "--internet-target", SILENT),
    "cluster": ("cluster",),
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


def test_a_cluster_without_the_internet_passes_with_the_image_of_the_agents(checks: dict[str, Done]) -> None:
    done = checks["air gap"]
    assert (done.code, done.there) == (0, (True, False)), done
    found = verdicts(done.stdout)
    internet = found.pop("pod-to-internet-connectivity")
    assert internet.startswith("was skipped: test is not runnable: neither Pod antrea-test-")
    assert re.search(
        r" nor its Node node-\d reaches api.github.com port 80 \(.+\), as in a cluster without", internet
    )
    assert found == {
        "pod-to-pod-intranode-connectivity": "passed",
        "pod-to-service-intranode-connectivity": "passed",
    }


def test_a_target_that_the_user_names_has_to_be_reached(checks: dict[str, Done]) -> None:
    done = checks["target"]
    assert (done.code, done.stderr, done.there) == (1, "Error: 1/1 tests failed\n", (True, False)), done
    verdict = verdicts(done.stdout)["pod-to-internet-connectivity"]
    assert verdict.startswith("failed: Pod antrea-test-")
    assert "was not able to connect to 192.0.2.10: " in verdict


def test_the_node_is_looked_at_before_an_installation(checks: dict[str, Done]) -> None:
    done = checks["cluster"]
    assert (done.code, done.there) == (1, (True, False)), done
    found = verdicts(done.stdout)
    loadable = found.pop("check-if-openvswitch-is-loadable")
    assert loadable.startswith("failed: failed to load the OVS kernel module: modprobe: "), loadable
    assert "needs the value ovs.datapathType: netdev" in loadable
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
