"""AntreaAgentInfo and AntreaControllerInfo as `kubectl get` shows them, and how they follow what happens."""

from __future__ import annotations

import base64
import json
import re
import time
from typing import TYPE_CHECKING, Any

from agent_node import antctl, health, in_agent, kill, parent_of, pid_of, stopped, wait_ready

from antrea.outside.kube.clock import stamp
from lab import node
from lab.process import wait_for

if TYPE_CHECKING:
    from lab.cluster import Lab

AGENT_COLUMNS = "NAME HEALTHY LAST_HEARTBEAT VERSION NODE NUM_PODS SUBNETS"
CONTROLLER_COLUMNS = "NAME HEALTHY LAST_HEARTBEAT VERSION CONNECTED_AGENTS NODE NUM_NETWORK_POLICIES"
ALL_WELL = dict.fromkeys(
    ("AgentHealthy", "OVSDBConnectionUp", "OpenflowConnectionUp", "ControllerConnectionUp"), "True"
)


def table(text: str) -> list[list[str]]:
    """Cells, the words of one joined."""
    return [re.sub(r"(?<=\S) (?=\S)", "_", line).split() for line in text.splitlines()]


def info(lab: Lab, where: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lab.api.kubectl("get", "aai", where, "-o", "json"))
    return found


def status(found: dict[str, Any]) -> dict[str, str]:
    return {c["type"]: c["status"] for c in found.get("agentConditions", [])}


def healthy(lab: Lab) -> bool:
    """Whether every agent has told of itself that it is healthy and hears the controller."""
    names = [machine.name for machine in lab.topology.nodes]
    return all(status(info(lab, name)) == ALL_WELL for name in names)


def wait_told(lab: Lab) -> None:
    for machine in lab.topology.nodes:
        wait_ready(lab, machine.name)
    wait_for("health of every agent", lambda: healthy(lab), seconds=60, step=0.5)


def test_kubectl_shows_agents_and_controller_in_upstreams_columns(lab: Lab) -> None:
    wait_told(lab)
    head, *rows = table(lab.api.kubectl("get", "aai", "-o", "wide"))
    assert head == AGENT_COLUMNS.split()
    assert [(row[0], row[1], row[4]) for row in rows] == [
        (machine.name, "True", machine.name) for machine in lab.topology.nodes
    ]
    head, *rows = table(lab.api.kubectl("get", "aci", "-o", "wide"))
    assert head == CONTROLLER_COLUMNS.split()
    assert [row[:2] for row in rows] == [["antrea-controller", "True"]]

    def connected() -> str:
        (row,) = json.loads(lab.api.kubectl("get", "aci", "-o", "json"))["items"]
        return str(row.get("connectedAgentNum"))

    wait_for("every agent to be counted", lambda: connected() == str(len(lab.topology.nodes)), seconds=60)
    assert table(lab.api.kubectl("get", "aai"))[0] == AGENT_COLUMNS.split()[:3]


def test_an_agents_object_is_what_its_own_api_answers_with_the_certificate_it_serves(lab: Lab) -> None:
    wait_told(lab)
    saved = info(lab, "node-1")
    told = json.loads(antctl(lab, "node-1", "get", "agentinfo", "-o", "json"))
    same = ("version", "podRef", "nodeRef", "nodeSubnets", "apiPort", "networkInfo")
    assert {key: saved[key] for key in same} == {key: told[key] for key in same}
    assert saved["ovsInfo"].keys() == told["ovsInfo"].keys() == {"version", "bridgeName", "flowTable"}
    assert status(saved) == ALL_WELL
    ca = base64.b64decode(saved["apiCABundle"]).decode()
    script = f"echo '{ca}' >/tmp/ca.pem; curl -s --cacert /tmp/ca.pem https://localhost:10350/healthz"
    assert node.execute(lab.record, "node-1", "sh", "-c", script).strip() == "ok"


READ = """
import ssl, urllib.request
token = open("/var/run/antrea/apiserver/loopback-client-token").read()
asked = urllib.request.Request("https://127.0.0.1:10350/metrics", headers={"Authorization": f"Bearer {token}"})
print(urllib.request.urlopen(asked, context=ssl._create_unverified_context()).read().decode())
"""


def counted(lab: Lab) -> tuple[dict[str, str], dict[str, Any]]:
    """Samples of the agent's metrics, and its own answer right after."""
    lines = in_agent(lab, "node-1", "python3", "-c", READ).splitlines()
    samples = dict(line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return samples, json.loads(antctl(lab, "node-1", "get", "agentinfo", "-o", "json"))


def test_an_agents_metrics_count_what_it_has(lab: Lab) -> None:
    wait_told(lab)

    def same() -> bool:
        samples, told = counted(lab)
        flows = sum(told["ovsInfo"]["flowTable"].values())
        counts = (samples["antrea_agent_local_pod_count"], samples["antrea_agent_ovs_total_flow_count"])
        return flows > 0 and counts == (str(told.get("localPodNum", 0)), str(flows))

    # Pods of other tests may just come or go
    wait_for("equal counts", same, seconds=60)
    samples, _ = counted(lab)
    assert int(samples['antrea_agent_ovs_flow_ops_count{operation="add"}']) > 0
    assert samples['antrea_agent_ovs_flow_ops_error_count{operation="add"}'] == "0"


def test_a_lost_ovsdb_is_told_within_seconds_and_so_is_its_return(lab: Lab) -> None:
    wait_told(lab)
    before = info(lab, "node-2")
    told = before["agentConditions"][0]["lastHeartbeatTime"]
    wait_for("another second, of which times are", lambda: stamp() > told, seconds=60)
    database = pid_of(lab, "node-2", "ovsdb-server")
    with stopped(parent_of(database)):  # start_ovs, which would start it again
        kill(database)
        began = time.monotonic()
        wait_for(
            "the condition", lambda: status(info(lab, "node-2"))["OVSDBConnectionUp"] == "False", seconds=60
        )
        took = time.monotonic() - began
        found = info(lab, "node-2")
        healthy = next(c for c in found["agentConditions"] if c["type"] == "AgentHealthy")
        assert healthy["status"] == "False"
        # ovs-vswitchd answers nothing without a database, which the report has too once its echo has timed out
        assert "disconnected from OVSDB" in healthy["message"]
        assert healthy["lastHeartbeatTime"] > told
        assert found["ovsInfo"]["version"] == before["ovsInfo"]["version"]
    print(f"figure: lost_ovsdb_reported {took:.1f} s")
    wait_told(lab)
    assert status(info(lab, "node-2"))["OVSDBConnectionUp"] == "True"
    assert took < 10


def test_a_switch_that_hangs_is_reported_within_ten_seconds(lab: Lab) -> None:
    wait_told(lab)

    def condition() -> str:
        return status(info(lab, "node-2"))["OpenflowConnectionUp"]

    wait_for("the condition", lambda: condition() == "True", seconds=60)
    began = time.monotonic()
    with stopped(pid_of(lab, "node-2", "ovs-vswitchd")):
        wait_for("the condition", lambda: condition() == "False", seconds=60, step=0.1)
        took = time.monotonic() - began
        said = "[-]switch failed: no answer of ovs-vswitchd to an echo request within 5 s"
        assert said in health(lab, "node-2"), health(lab, "node-2")
    print(f"figure: hung_switch_reported {took:.1f} s")
    wait_ready(lab, "node-2")
    wait_for("the condition", lambda: condition() == "True", seconds=60)
    assert took < 10


def test_agents_find_the_controllers_next_pod_and_fill_an_object_that_was_made_anew(lab: Lab) -> None:
    wait_told(lab)
    api, before = lab.api, connection(info(lab, "node-1"))
    api.kubectl("delete", "aai", "node-1")
    head = {"apiVersion": "crd.antrea.io/v1beta1", "kind": "AntreaAgentInfo", "metadata": {"name": "node-1"}}
    api.apply(json.dumps(head))
    api.kubectl("delete", "pod", "-n", "kube-system", "-l", "component=antrea-controller", "--now")
    api.kubectl("rollout", "status", "-n", "kube-system", "deployment/antrea-controller", "--timeout=60s")

    def again() -> bool:
        now = connection(info(lab, "node-1"))
        return now.get("status") == "True" and now["lastHeartbeatTime"] > before["lastHeartbeatTime"]

    wait_for("the connection", again, seconds=60, step=0.5)
    found = info(lab, "node-1")
    assert found["version"]
    assert found["nodeRef"] == {"kind": "Node", "name": "node-1"}


def connection(found: dict[str, Any]) -> dict[str, str]:
    """What the agent says of its connection to the controller."""
    rows = found.get("agentConditions", [])
    return next((row for row in rows if row["type"] == "ControllerConnectionUp"), {})
