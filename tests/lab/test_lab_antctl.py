"""antctl from a workstation: kube-apiserver by a kubeconfig, and the controller's own port behind it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import workstation
from agent_node import antctl

from lab.process import wait_for

if TYPE_CHECKING:
    from lab.cluster import Lab


def remote(lab: Lab, *words: str) -> str:
    """What antctl prints on a workstation."""
    return workstation.run(lab, *words).stdout


def wait_controller(lab: Lab) -> None:
    """Until the controller and the agents that run have published where they are.

    The objects of those before them stay until then, and name a port where nobody answers.
    """
    words = ("-n", "kube-system", "rollout", "status", "deployment/antrea-controller", "--timeout=60s")
    lab.api.kubectl(*words)
    running = ("-n", "kube-system", "get", "pods", "-l", "component in (antrea-agent,antrea-controller)")
    told = ("get", "antreacontrollerinfos,antreaagentinfos")

    def published() -> bool:
        pods = names(lab.api.kubectl(*running, "-o", "jsonpath={.items[*].metadata.name}"))
        return names(lab.api.kubectl(*told, "-o", "jsonpath={.items[*].podRef.name}")) == pods

    wait_for("where the controller and the agents are", published, seconds=60)


def names(text: str) -> list[str]:
    return sorted(text.split())


def test_antctl_prints_both_versions(lab: Lab) -> None:
    wait_controller(lab)
    found = json.loads(remote(lab, "version", "-o", "json"))
    assert found.keys() == {"controllerVersion", "antctlVersion"}
    assert found["controllerVersion"] == found["antctlVersion"]


def test_antctl_prints_the_gates_of_agents_and_controller_as_they_are(lab: Lab) -> None:
    wait_controller(lab)
    blocks = [block.splitlines() for block in remote(lab, "get", "featuregates").split("\n\n")]
    assert [block[0] for block in blocks] == ["Antrea Agent Feature Gates", "Antrea Controller Feature Gates"]
    for title, head, *rows in blocks:
        assert (title[:7], head.split()) == ("Antrea ", ["FEATUREGATE", "STATUS", "VERSION"])
        assert rows == sorted(rows)
        assert head.index("STATUS") == max(len(row.split()[0]) for row in rows) + 5
    # the agents themselves say the same
    agent = antctl(lab, "node-1", "get", "featuregates").rstrip("\n").splitlines()
    assert blocks[0] == agent


def test_antctl_prints_the_controller_and_no_policies_yet(lab: Lab) -> None:
    wait_controller(lab)
    head, row = remote(lab, "get", "controllerinfo").splitlines()
    assert head.split() == [
        *("POD", "NODE", "STATUS", "NETWORK-POLICIES", "ADDRESS-GROUPS", "APPLIED-TO-GROUPS"),
        "CONNECTED-AGENTS",
    ]
    assert row.split()[0].startswith("kube-system/antrea-controller-")
    assert row.split()[2] == "Healthy"
    assert remote(lab, "get", "networkpolicy", "-o", "json").strip() == "[]"
