"""`up --dev`: our Pods run this checkout's source, and `reload` restarts them with it in seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_node import wait_ready

import lab.antrea as product
from lab import node
from lab.node_files import SOURCE
from lab.process import wait_for

if TYPE_CHECKING:
    from lab.cluster import Lab
    from lab.record import Record

AGENT = ("-n", "kube-system", "exec", "ds/antrea-agent", "-c", "antrea-agent", "--")


def test_reload_restarts_our_programs_from_the_checkout_without_restarting_a_container(
    developed: Lab,
) -> None:
    lab, record = developed, developed.record
    here = node.SOURCE / "__init__.py"
    there = node.execute(record, "node-1", "stat", "-c", "%i", f"{SOURCE}/antrea/__init__.py")
    assert int(there) == here.stat().st_ino
    imported = lab.api.kubectl(*AGENT, "python3", "-c", "import antrea; print(antrea.__file__)")
    assert imported == f"{SOURCE}/antrea/__init__.py\n"

    running, restarted = product.running(record), restarts(lab)
    product.reload(lab)
    after = wait_for("all programs anew", lambda: started_anew(record, running), seconds=60)

    assert sorted(program for _, program in after) == ["antrea-agent", "antrea-agent", "antrea-controller"]
    assert restarts(lab) == restarted
    assert {name for _, name, _ in restarted} == {
        "antrea-agent",
        "antrea-ovs",
        "antrea-controller",
        "coredns",
    }
    for machine in lab.topology.nodes:
        wait_ready(lab, machine.name)


def restarts(lab: Lab) -> set[tuple[str, str, int]]:
    """Of every container of the cluster's own Pods: the Pod, the name, and how often it was started again."""
    pods = lab.api.items("/api/v1/namespaces/kube-system/pods")
    return {
        (pod["metadata"]["name"], container["name"], container["restartCount"])
        for pod in pods
        for container in pod["status"]["containerStatuses"]
    }


def started_anew(record: Record, before: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """What runs now if all of it has another pid; else nothing."""
    now = product.running(record)
    return now if len(now) == len(before) and not {p for p, _ in now} & {p for p, _ in before} else []
