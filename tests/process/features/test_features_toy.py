"""A feature plugs in whole: of one folder and one line come its definition, gate, rights, finding and command."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest
import yaml
from toy_checkout import ROOT, plug_in

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CHART = "build/charts/antrea"
WRITE_CHART = """
import sys
sys.path.insert(0, "build")
import chart
for file, text in chart.generated().items():
    file.write_text(text)
"""
FINDINGS = """
from antrea.antctl.doctor.agent_gates import KINDS
from antrea.antctl.doctor.checks import findings
from antrea.antctl.doctor.state import NodeState
for row in findings(NodeState(pod="kube-system/antrea-agent-x", conditions={"BeaconsUnlit": "2 Beacons have no flows"})):
    print(row.check, row.severity, row.finding, row.repair, sep="|")
print([kind.gate for kind in KINDS if kind.name == "Beacon"])
"""


class Checkout(NamedTuple):
    """A copy of the project with the toy, and the environment of its programs."""

    folder: Path
    env: Mapping[str, str]

    def run(self, *words: str, **env: str) -> str:
        done = subprocess.run(
            [sys.executable, *words], cwd=self.folder, env={**self.env, **env}, capture_output=True, text=True, check=False
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def rules(self, program: str) -> list[str]:
        text = (self.folder / CHART / f"templates/{program}/clusterrole.yaml").read_text()
        return [line.strip() for line in text.partition("\nrules:\n")[2].splitlines() if "beacons" in line]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    folder = tmp_path_factory.mktemp("checkout")
    found = Checkout(folder, plug_in(folder))
    shutil.copytree(ROOT / "build", folder / "build", ignore=shutil.ignore_patterns("out", "__pycache__"))
    (folder / "docs/generated").mkdir(parents=True)
    found.run("build/crds.py")
    found.run("-c", WRITE_CHART)
    return found


def test_the_chart_has_the_definition_the_gate_and_the_rights_of_a_feature(checkout: Checkout) -> None:
    chart = checkout.folder / CHART
    crd = yaml.safe_load((chart / "crds/beacon.yaml").read_text())
    assert (crd["metadata"]["name"], crd["spec"]["names"]["kind"]) == ("beacons.crd.antrea.io", "Beacon")
    assert "| Beacon | `beacons`" in (checkout.folder / "docs/generated/crds.md").read_text()
    for program in ("agent", "controller"):
        assert '"name" "Beacon" "default" true' in (chart / f"conf/antrea-{program}.conf").read_text()
    schema = json.loads((chart / "values.schema.json").read_text())
    assert "Beacon" in schema["properties"]["featureGates"]["properties"]
    assert checkout.rules("agent") == ["resources: [beacons]"]
    assert checkout.rules("controller") == ["resources: [beacons]", "resources: [beacons/status]"]
    assert "/validate/beacon" in (chart / "templates/webhooks.yaml").read_text()


def test_the_gate_of_a_feature_is_accepted_and_can_be_off(checkout: Checkout) -> None:
    resolved = "from antrea.features.framework.gate import resolve; print(*('Beacon' in resolve('agent', {'Beacon': on}) for on in (True, False)))"
    assert checkout.run("-c", resolved) == "True False\n"


def test_the_doctor_has_the_findings_of_a_feature(checkout: Checkout) -> None:
    *findings, gates = checkout.run("-c", FINDINGS).splitlines()
    repair = "kubectl -n kube-system logs antrea-agent-x -c antrea-agent"
    assert f"beacons|warning|2 Beacons have no flows|{repair}" in findings
    assert gates == "['Beacon']"


def test_antctl_lists_the_command_of_a_feature(checkout: Checkout) -> None:
    listed = checkout.run("-m", "antrea.antctl.main", "get", "--help", POD_NAME="antrea-agent-x")
    assert "Print Beacons of this Node" in listed
    assert "NAME" not in checkout.run(
        "-m", "antrea.antctl.main", "get", "bcn", "--help", POD_NAME="antrea-agent-x"
    )
