"""What an agent says of the container of an engine that its Pod does not have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

import antrea
from antrea.antctl.doctor.checks import findings
from antrea.antctl.doctor.state import NodeState
from antrea.errors import Unavailable
from antrea.features.l7_flow_export import agent_part as flow_export
from antrea.features.l7_flow_export.agent import GATE as FLOW_GATE
from antrea.features.l7_network_policy.agent_part import part as network_policy
from antrea.features.network_policy.l7.tenant import GATE as POLICY_GATE
from antrea.outside.kube import engine_container
from antrea.outside.kube.engine_container import EngineContainer, OwnPod

YAMLS = Path(antrea.__file__).parents[1] / "build/yamls"
ENGINES = {flow_export.CONTAINER: FLOW_GATE, network_policy.CONTAINER: POLICY_GATE}


class Agent:
    """What of the agent is used: an API server that has its Pod with these containers, and its Events."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.events: list[tuple[str, str]] = []
        self.kube = self

    async def get(self, path: str, kind: type[Any]) -> Any:
        assert (path, kind) == ("/api/v1/namespaces/kube-system/pods/antrea-agent-x", OwnPod)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return msgspec.convert({"spec": {"containers": [{"name": name} for name in answer]}}, OwnPod)

    def record(self, reason: str, message: str, *, warning: bool) -> None:
        assert warning
        self.events.append((reason, message))


async def looked(
    monkeypatch: pytest.MonkeyPatch, container: str, *answers: Any
) -> tuple[EngineContainer, Agent]:
    monkeypatch.setenv("POD_NAME", "antrea-agent-x")
    monkeypatch.setenv("POD_NAMESPACE", "kube-system")
    monkeypatch.setattr(engine_container, "RETRY", 0.0)
    agent: Any = Agent(*answers)
    found = EngineContainer(agent.kube, agent.record, container, ENGINES[container], "Missing")
    await found.check()
    return found, agent


@pytest.mark.parametrize("container", ENGINES)
async def test_a_pod_without_the_container_is_reported_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, container: str
) -> None:
    found, agent = await looked(monkeypatch, container, Unavailable("away"), ["antrea-agent", "antrea-ovs"])
    assert agent.events == [("Missing", found.missing)]
    assert f"--set featureGates.{ENGINES[container]}=true" in found.missing
    repair = f"kubectl -n kube-system patch daemonset antrea-agent --patch-file build/yamls/{container}.yml"
    assert found.missing.endswith(repair)
    condition = {"antrea-l7-engine": "L7EngineDown", "antrea-l7-flow-engine": "L7FlowEngineMissing"}[
        container
    ]
    node = NodeState("n1", pod="kube-system/antrea-agent-x", conditions={condition: found.missing})
    assert [one.repair for one in findings(node) if one.check == "l7-engine"] == [repair]


@pytest.mark.parametrize("container", ENGINES)
async def test_a_pod_with_the_container_is_fine(monkeypatch: pytest.MonkeyPatch, container: str) -> None:
    found, agent = await looked(monkeypatch, container, ["antrea-agent", container])
    assert (found.missing, agent.events) == ("", [])


@pytest.mark.parametrize("container", ENGINES)
def test_the_patch_adds_the_container_to_agents(container: str) -> None:
    patch = yaml.safe_load((YAMLS / f"{container}.yml").read_text())
    (row,) = patch["spec"]["template"]["spec"]["containers"]
    folder = {"antrea-l7-engine": network_policy.FOLDER, "antrea-l7-flow-engine": flow_export.FOLDER}[
        container
    ]
    assert (row["name"], row["volumeMounts"][0]["mountPath"]) == (container, f"/var/run/antrea/{folder}")
    agents = next(
        item
        for item in yaml.load_all((YAMLS / "antrea.yml").read_text(), yaml.CSafeLoader)
        if (item["kind"], item["metadata"]["name"]) == ("DaemonSet", "antrea-agent")
    )
    volumes = {one["name"] for one in agents["spec"]["template"]["spec"]["volumes"]}
    assert {one["name"] for one in row["volumeMounts"]} <= volumes
