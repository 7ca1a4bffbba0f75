"""Recommend, apply, recommend again on the demo application: nothing is dropped that was seen, and all that was not is closed."""

from __future__ import annotations

import itertools
import json
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
import workstation
import yaml
from agent_node import pod_namespace
from own_lab import own_lab
from quiet_pod import SERVING, quiet_pods

from lab import flow_visibility
from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from lab.cluster import Lab

pytestmark = [pytest.mark.wide, pytest.mark.timeout(900)]
PORT = 8080
TRIES = 30
"""Requests of each link that was seen, after the policies are in place."""
DROPPED = 28
"""What curl ends with when no packet comes back; a closed port answers at once (7)."""
PROBES = tuple(
    f"default/{source} -> default/{target} TCP/8080"
    for source, target in (("server", "bystander"), ("bystander", "server"))
)
"""By which the test sees that the policies are in place."""
Link = tuple[str, str]
SEEN: set[Link] = {("visitor", "server"), ("client", "server"), ("client", "bystander")}


@pytest.fixture(scope="module")
def demo() -> Iterator[Lab]:
    with own_lab("r", Settings(nodes=2, family="dual")) as lab:
        yield lab


class Pods:
    """Addresses of Pods of Namespace default by name, and what they reach."""

    def __init__(self, lab: Lab) -> None:
        found = json.loads(lab.api.kubectl("get", "pods", "-o", "json"))["items"]
        self.lab = lab
        self.ips = {
            one["metadata"]["name"]: [ip["ip"] for ip in one["status"]["podIPs"]]
            for one in found
            if one["status"].get("podIPs")
        }
        self.nodes = {one["metadata"]["name"]: one["spec"]["nodeName"] for one in found}

    def asked(self, source: str, ip: str, port: int = PORT) -> int:
        """What curl in the network of a Pod ends with."""
        host = f"[{ip}]" if ":" in ip else ip
        words = ("curl", "-s", "-o", "/dev/null", "--max-time", "2", f"http://{host}:{port}/hostname")
        inside = pod_namespace(self.lab, self.nodes[source], self.ips[source][0])
        return subprocess.run([*inside, *words], check=False).returncode

    def otherwise(self, links: Collection[Link], wanted: int, port: int = PORT) -> list[tuple[str, str, str]]:
        """Those of these links, in each family, for which curl ends with something else."""
        each = [(source, target, ip) for source, target in sorted(links) for ip in self.ips[target]]
        return [one for one in each if self.asked(one[0], one[2], port) != wanted]


def printed(lab: Lab, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        workstation.command(lab, *words),
        capture_output=True, text=True, check=False, timeout=120, env=workstation.environment(),
    )  # fmt: skip


def specs(text: str) -> dict[str, Any]:
    return {one["metadata"]["name"]: one["spec"] for one in yaml.safe_load_all(text) if one}


def complete(found: dict[str, Any]) -> bool:
    """Whether all links were seen, in both families, with the look-ups of the visitor."""
    names = [f"recommended-{name}" for name in ("bystander", "client", "server", "visitor")]
    if not all(name in found for name in names):
        return False
    asked = {port["port"] for rule in found["recommended-visitor"]["egress"] for port in rule["ports"]}
    return len(found["recommended-client"]["egress"][0]["to"]) == 2 and {53, PORT} <= asked


def in_place(pods: Pods) -> bool:
    """Whether each Node isolates its Pods, and lets through what was seen: Nodes get policies one by one, and not at a time."""
    closed = {("server", "bystander"), ("bystander", "server")}
    return not pods.otherwise(closed, DROPPED) and not pods.otherwise(SEEN, 0)


def recommended_since(lab: Lab, moment: float) -> str:
    """The policies of what was seen since; empty while that is not all. Nothing of it was dropped."""
    done = printed(lab, "policy", "recommend", "-n", "default", "--since", f"{int(time.time() - moment)}s")
    # what policies deny is left out, and named
    dropped = [
        line
        for line in done.stderr.splitlines()
        if "denied" in line and not any(one in line for one in PROBES)
    ]
    assert not dropped, dropped
    return done.stdout if done.returncode == 0 and complete(specs(done.stdout)) else ""


def test_recommended_policies_of_the_demo_application_drop_nothing_and_close_the_rest(
    demo: Lab, tmp_path: Path
) -> None:
    flow_visibility.install(demo, print)
    with quiet_pods(demo, {"bystander": "node-2"}, SERVING):
        demo.api.kubectl("label", "pod", "bystander", "app=bystander")
        demo.api.kubectl("wait", "--for=condition=Ready", "pod/visitor", "--timeout=120s", seconds=130)
        pods = Pods(demo)
        assert {len(pods.ips[name]) for name in ("client", "server", "visitor", "bystander")} == {2}

        def seen() -> None:
            assert pods.otherwise(SEEN - {("visitor", "server")}, 0) == []  # the visitor asks by itself

        def recommended() -> str:
            seen()
            done = printed(demo, "policy", "recommend", "-n", "default", "--since", "10m")
            return done.stdout if done.returncode == 0 and complete(specs(done.stdout)) else ""

        policies = wait_for("policies of all that was seen", recommended, seconds=180)
        (tmp_path / "policies.yaml").write_text(policies)
        replay = (
            "policy",
            "replay",
            "-f",
            str(tmp_path / "policies.yaml"),
            "--since",
            "10m",
            "-n",
            "default",
        )
        before = printed(demo, *replay)
        assert before.returncode == 0, f"{before.stdout}{before.stderr}"
        assert " 0 would be denied that pass, 0 would pass that are denied" in before.stderr
        demo.api.apply(policies)
        wait_for("the policies on both Nodes", lambda: in_place(pods), seconds=60)
        applied = time.time()
        for _ in range(TRIES):
            seen()
            visit = ("exec", "visitor", "--", "curl", "-s", "-m", "5", "http://server/hostname")
            assert demo.api.kubectl(*visit) == "server"

        same = wait_for("the same policies", lambda: recommended_since(demo, applied), seconds=120)
        assert specs(same) == specs(policies)
        assert printed(demo, *replay).returncode == 0
        # all other pairs, of which nothing was seen, in both families; then what was seen once more
        assert pods.otherwise(set(itertools.permutations(pods.ips, 2)) - SEEN, DROPPED) == []
        assert pods.otherwise(SEEN, 0) == []
        assert pods.otherwise(SEEN, DROPPED, PORT + 1) == []
