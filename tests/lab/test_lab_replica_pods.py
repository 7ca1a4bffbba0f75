"""Two controllers as the chart installs them: on two Nodes, with rights for the Lease, one killed, both replaced."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from api_client import ApiClient, takes
from test_lab_rights import granted, requests

from antrea.errors import Unavailable
from lab import antrea, artifacts
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

CHART = Path(__file__).parents[2] / "build/charts/antrea"
OBJECTS = 100
ROLLOUTS = 5
RESUMED = 60.0
"""Seconds that a user may be refused for want of a controller when its leader is killed."""


@pytest.fixture(scope="module")
def lab(three_nodes: Lab) -> Iterator[Lab]:
    """With two controllers, which stay."""
    words = ("template", "antrea", str(CHART), "-n", "kube-system", "--set", "controller.replicas=2")
    text = subprocess.check_output([artifacts.helm(print), *words], text=True)
    three_nodes.api.apply(antrea.manifest(three_nodes, text))
    wait_for("the one controller to go", lambda: all(map(elects, pods(three_nodes))), seconds=90, step=0.5)
    wait_for("two controllers", lambda: len(ready(three_nodes)) == 2, seconds=90, step=0.5)
    wait_for("a leader", lambda: leader(three_nodes) in ready(three_nodes), seconds=60, step=0.5)
    yield three_nodes
    with contextlib.closing(ApiClient(three_nodes)) as client:
        client.call("DELETE", "/apis/crd.antrea.io/v1beta1/egresses")
        client.call("DELETE", "/apis/crd.antrea.io/v1beta1/externalippools/replicas")


def pods(lab: Lab) -> list[dict[str, Any]]:
    words = ("-n", "kube-system", "get", "pods", "-l", "component=antrea-controller", "-o", "json")
    found: list[dict[str, Any]] = json.loads(lab.api.kubectl(*words))["items"]
    return found


def elects(pod: dict[str, Any]) -> bool:
    return "--leader-elect" in pod["spec"]["containers"][0]["args"]


def ready(lab: Lab) -> dict[str, str]:
    """Names of controllers that are Ready and not about to end, with their Nodes."""
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in pods(lab)
        if "deletionTimestamp" not in pod["metadata"]
        and any(
            c["type"] == "Ready" and c["status"] == "True"
            for c in pod.get("status", {}).get("conditions", [])
        )
    }


def leader(lab: Lab) -> str:
    words = (
        "-n",
        "kube-system",
        "get",
        "lease",
        "antrea-controller",
        "-o",
        "jsonpath={.spec.holderIdentity}",
    )
    try:
        return lab.api.kubectl(*words).partition("_")[0]
    except Unavailable:
        return ""


def egress(number: int) -> str:
    spec = {"appliedTo": {"podSelector": {}}, "externalIPPool": "replicas"}
    head = {"apiVersion": "crd.antrea.io/v1beta1", "kind": "Egress", "metadata": {"name": f"e{number}"}}
    return json.dumps({**head, "spec": spec})


def pool() -> str:
    """Of as many addresses as there are objects, and of no Node."""
    ranges = [{"start": "10.97.0.1", "end": f"10.97.0.{OBJECTS}"}]
    spec = {"ipRanges": ranges, "nodeSelector": {"matchLabels": {"replicas": "nowhere"}}}
    head = {"apiVersion": "crd.antrea.io/v1beta1", "kind": "ExternalIPPool", "metadata": {"name": "replicas"}}
    return json.dumps({**head, "spec": spec})


def addresses(lab: Lab) -> list[str]:
    """Of Egresses that have one."""
    found = json.loads(lab.api.kubectl("get", "egress", "-o", "json"))["items"]
    return [one["spec"]["egressIP"] for one in found if "egressIP" in one["spec"]]


@pytest.mark.wide
def test_controllers_run_on_different_nodes_without_any_power_there(lab: Lab) -> None:
    found = ready(lab)
    assert len(set(found.values())) == 2
    for name in found:
        words = ("-n", "kube-system", "exec", name, "--", "cat", "/proc/1/status")
        status = dict(line.split(":\t", 1) for line in lab.api.kubectl(*words).splitlines() if ":\t" in line)
        assert (status["Uid"].split(), int(status["CapEff"], 16), int(status["CapBnd"], 16)) == (
            ["65532"] * 4,
            0,
            0,
        )
        told = lab.api.kubectl("-n", "kube-system", "exec", name, "--", "antctl", "get", "controllerinfo")
        assert "antrea-controller" in told


@pytest.mark.wide
def test_users_objects_are_taken_again_soon_after_the_leader_is_killed_and_none_is_lost(lab: Lab) -> None:
    killed, taken = leader(lab), [time.monotonic()]

    def kill() -> None:
        lab.api.kubectl("-n", "kube-system", "delete", "pod", killed, "--force", "--grace-period=0")

    thread = threading.Thread(target=kill)
    wait_for("the pool", partial(takes, lab, pool()), seconds=60, step=0.1)
    for number in range(OBJECTS):
        if number == OBJECTS // 4:
            thread.start()
        wait_for(f"Egress e{number}", partial(takes, lab, egress(number)), seconds=60, step=0.1)
        taken.append(time.monotonic())
    thread.join()
    longest = max(after - before for before, after in itertools.pairwise(taken))
    print(f"longest wait for one object {longest:.1f} s")
    names = json.loads(lab.api.kubectl("get", "egress", "-o", "json"))["items"]
    assert len(names) == OBJECTS
    assert longest < RESUMED
    wait_for("another leader", lambda: leader(lab) not in ("", killed), seconds=60, step=0.2)
    wait_for("an address for each", lambda: len(addresses(lab)) == OBJECTS, seconds=60, step=0.3)
    assert len(set(addresses(lab))) == OBJECTS
    wait_for("two controllers", lambda: len(ready(lab)) == 2, seconds=90, step=0.5)


@pytest.mark.wide
def test_a_rollout_replaces_one_after_the_other(lab: Lab) -> None:
    before, fewest = set(ready(lab)), 2
    lab.api.kubectl("-n", "kube-system", "rollout", "restart", "deployment/antrea-controller")

    def replaced() -> bool:
        nonlocal fewest
        now = ready(lab)
        fewest = min(fewest, len(now))
        return len(now) == 2 and not set(now) & before

    wait_for("two new controllers", replaced, seconds=120, step=0.3)
    assert fewest == 1
    wait_for("a leader", lambda: leader(lab) in ready(lab), seconds=60, step=0.3)


@pytest.mark.wide
def test_no_object_of_a_user_is_refused_while_replicas_are_replaced(lab: Lab) -> None:
    spec = {"ipRanges": [{"cidr": "10.98.0.0/24"}], "nodeSelector": {}}
    head = {"apiVersion": "crd.antrea.io/v1beta1", "kind": "ExternalIPPool", "metadata": {"name": "asked"}}
    asked, refused = 0, list[Any]()
    with contextlib.closing(ApiClient(lab)) as client:

        def replaced(before: set[str]) -> bool:
            nonlocal asked
            for _ in range(20):
                found = client.call(
                    "POST", "/apis/crd.antrea.io/v1beta1/externalippools?dryRun=All", head | {"spec": spec}
                )
                asked += 1
                refused.extend([found.body] if found.status != 201 else [])
            now = set(ready(lab))
            return len(now) == 2 and not now & before

        for _ in range(ROLLOUTS):
            before = set(ready(lab))
            lab.api.kubectl("-n", "kube-system", "rollout", "restart", "deployment/antrea-controller")
            wait_for("two new controllers", partial(replaced, before), seconds=120, step=0.01)
    print(f"{asked} requests during {ROLLOUTS} rollouts, {len(refused)} refused")
    assert refused == []


@pytest.mark.wide
def test_every_right_on_the_lease_is_used_and_no_request_of_a_controller_is_refused(lab: Lab) -> None:
    controllers = [
        (event, rights)
        for event, rights in requests(lab)
        if event["user"]["username"].endswith(":antrea-controller")
    ]
    refused = {
        (event["verb"], event["requestURI"])
        for event, _ in controllers
        if event.get("responseStatus", {}).get("code") == 403
    }
    used = {right for _, rights in controllers for right in rights}
    leases = {right for right in granted(lab) if right.what.startswith("leases.")}
    assert {(right.verb, right.what) for right in leases} == {
        (verb, "leases.coordination.k8s.io/antrea-controller")
        for verb in ("create", "get", "list", "watch", "patch")
    }
    assert refused == set()
    assert leases - used == set()
