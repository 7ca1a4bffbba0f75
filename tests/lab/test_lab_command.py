"""The command `antrea-lab`: its exit status and its words."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from antrea.lab.cluster import Lab

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from antrea.lab.main import main; main()"]


def call(*words: str) -> tuple[int, str, str]:
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_kubectl_and_exec_pass_on_output_and_exit_status(lab: Lab) -> None:
    name = lab.record.name

    assert call("kubectl", "--name", name, "get", "nodes", "-o", "name")[:2] == (
        0,
        "node/node-1\nnode/node-2\n",
    )
    assert call("exec", "--name", name, "node-2", "--", "sh", "-c", "hostname; exit 7")[:2] == (7, "node-2\n")
    outside = call("exec", "--name", name, "outside", "--", "ip", "-4", "-br", "address", "show", "eth0")[1]
    assert outside.split()[-1] == "192.0.2.10/24"


def test_antctl_is_the_administrators_in_the_labs_network(lab: Lab) -> None:
    code, said, errors = call("antctl", "--name", lab.record.name, "get", "featuregates")
    assert (code, errors) == (0, "")
    assert said.startswith("Antrea Agent Feature Gates")


def test_the_script_prints_what_the_command_prints_and_nothing_else(lab: Lab) -> None:
    words = ["scripts/lab", "kubectl", "--name", lab.record.name, "get", "nodes", "-o", "json"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert len(json.loads(done.stdout)["items"]) == 2


def test_down_says_what_it_did_and_messages_name_the_command_that_people_use() -> None:
    assert call("down", "--name", "no-such")[:2] == (0, "there is no lab 'no-such'\n")
    words = ["scripts/lab", "status", "--name", "no-such"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (
        1,
        "scripts/lab: there is no lab 'no-such'; `scripts/lab up --name no-such` makes one\n",
    )


def test_a_lab_without_dev_refuses_to_reload(lab: Lab) -> None:
    why = "this lab runs our programs from the image; `antrea-lab up --dev` runs them from the source"
    assert call("reload", "--name", lab.record.name) == (1, "", f"antrea-lab: {why}\n")


def test_status_and_logs_name_every_machine_and_daemon(lab: Lab) -> None:
    status = {tuple(line.split()[:3]) for line in call("status", "--name", lab.record.name)[1].splitlines()}

    assert {(m, r, p) for m, r, p in status if p != "pid" and r != "pid"} == {
        ("control", "control-plane", "172.30.0.2/24"),
        ("node-1", "node", "on"),
        ("node-2", "node", "on"),
        ("gateway", "router", "172.30.0.1/24"),
        ("outside", "host", "192.0.2.10/24"),
    }
    assert call("logs", "--name", lab.record.name)[1].split() == [
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "node-1",
        "node-1/containerd",
        "node-1/kube-proxy",
        "node-1/kubelet",
        "node-2",
        "node-2/containerd",
        "node-2/kube-proxy",
        "node-2/kubelet",
    ]


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (
            ["status", "--name", "nobody"],
            1,
            "there is no lab 'nobody'; `antrea-lab up --name nobody` makes one",
        ),
        (
            ["up", "--name", "Big Lab"],
            2,
            "name: 'Big Lab' is not 1 to 20 lower-case letters, digits and inner dashes",
        ),
        (
            ["up", "--name", "x", "--nodes", "21"],
            2,
            "nodes: 21 is not between 0 (the control plane alone) and 20",
        ),
    ],
)
def test_what_cannot_be_done_is_one_sentence(words: list[str], status: int, sentence: str) -> None:
    assert call(*words) == (status, "", f"antrea-lab: {sentence}\n")


def test_a_wrong_configuration_file_is_refused_with_its_name_and_field(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text("nodes: 2\nfamiliy: dual\n")

    assert call("up", "--name", "x", "--config", str(file)) == (
        2,
        "",
        f"antrea-lab: {file}: Object contains unknown field `familiy`\n",
    )
