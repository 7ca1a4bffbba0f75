"""Flags over a file over defaults; a file that cannot be understood is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from antrea.config.agent import AgentConfig
from antrea.config.load import parse
from antrea.errors import Invalid
from antrea.features.framework.config_validation import accept_agent
from lab.cluster import advice, crashing
from lab.settings import Settings, read
from lab.topology import Machine, Nic, StaticRoute

FILE = """
nodes: 2
family: dual
vlans: [100]
hosts:
- name: peer
  nics: [{name: eth0, switch: fabric, vlan: 100, addresses: [172.18.100.9/24]}]
  routes: [{dst: default, via: 172.18.100.1}]
loss: {node-1/eth1: 5}
agent: {tunnelType: vxlan}
"""


def test_flags_win_over_the_file_and_the_file_over_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(FILE)

    assert read(file, {"nodes": 4, "kubeProxy": None, "cni": "reference"}) == Settings(
        nodes=4,
        family="dual",
        cni="reference",
        vlans=(100,),
        hosts=(
            Machine(
                name="peer",
                nics=(Nic(name="eth0", switch="fabric", vlan=100, addresses=("172.18.100.9/24",)),),
                routes=(StaticRoute("default", "172.18.100.1"),),
            ),
        ),
        loss={"node-1/eth1": 5},
        agent={"tunnelType": "vxlan"},
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nodes: two", "Expected `int`, got `str` - at `$.nodes`"),
        ("family: ipv5", "Invalid enum value 'ipv5' - at `$.family`"),
        ("nodez: 2", "Object contains unknown field `nodez`"),
        ("- 1", "Expected `object`, got `array`"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(text)

    with pytest.raises(Invalid) as error:
        read(file, {})

    assert (error.value.path, error.value.why) == (str(file), why)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"lab\.yaml: No such file or directory"):
        read(tmp_path / "lab.yaml", {})


def test_the_documents_example_is_a_lab_that_comes_up(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs/lab.md").read_text()
    example = text.split("## A configuration file")[1].split("\n## ")[0]
    lines = [line[4:] for line in example.splitlines() if line.startswith("    ")]
    file = tmp_path / "lab.yaml"
    file.write_text("\n".join(lines))

    settings = read(file, {})

    assert settings.agent
    accept_agent(parse(AgentConfig, yaml.safe_dump(settings.agent)).config)


def test_a_container_that_ends_again_and_again_is_named() -> None:
    def pod(name: str, reason: str, restarts: int) -> dict[str, Any]:
        status = {"name": "c", "restartCount": restarts, "state": {"waiting": {"reason": reason}}}
        return {"metadata": {"name": name, "namespace": "ns"}, "status": {"containerStatuses": [status]}}

    running = {"name": "c", "restartCount": 9, "state": {"running": {}}}
    pods = [
        pod("starts", "ContainerCreating", 0),
        pod("once", "CrashLoopBackOff", 1),
        {"metadata": {"name": "well", "namespace": "ns"}, "status": {"containerStatuses": [running]}},
        {"metadata": {"name": "new", "namespace": "ns"}, "status": {}},
        pod("ill", "CrashLoopBackOff", 3),
    ]
    assert [*crashing(pods)] == [("ns", "ill", "c")]


def test_an_up_that_failed_tells_what_helps_and_that_the_machine_is_busy_if_it_is() -> None:
    assert advice("default", 15.9, 2) == [
        "`antrea-lab kubectl` and `antrea-lab logs` tell more; `antrea-lab down` removes the lab"
    ]
    assert advice("shop", 97.2, 2) == [
        (
            "`antrea-lab kubectl --name shop` and `antrea-lab logs --name shop` tell more;"
            " `antrea-lab down --name shop` removes the lab"
        ),
        "the machine is busy, a load of 97 on 2 cores: try `up` again when it is not",
    ]
