"""The command `antrea-lab`: its exit status and its words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lab.cluster import Lab

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from lab.main import main; main()"]


def call(*words: str, state: Path | None = None) -> tuple[int, str, str]:
    environment = {**os.environ, **({"ANTREA_LAB_STATE": str(state)} if state else {})}
    done = subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, check=False, timeout=300, env=environment
    )
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
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)
    assert len(json.loads(done.stdout)["items"]) == 2


def test_a_lab_that_is_up_is_kept_or_refused_as_asked(lab: Lab) -> None:
    name = lab.record.name
    assert call("up", "--keep", "--name", name) == (0, f"the lab {name!r} is up already\n", "")
    assert call("up", "--name", name)[0] == 2


def test_down_says_what_it_did_and_messages_name_the_command_that_people_use() -> None:
    assert call("down", "--name", "no-such")[:2] == (0, "there is no lab 'no-such'\n")
    words = ["scripts/lab", "status", "--name", "no-such"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        1,
        "scripts/lab: there is no lab 'no-such'; `scripts/lab up --name no-such` makes one",
    )


def test_a_wrong_name_is_answered_with_the_labs_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "kubectl").touch()
    (tmp_path / "just-begun").mkdir()
    there = "labs that are there (choose one with --name): shop\n"

    no_lab = "antrea-lab: there is no lab 'ship'; `antrea-lab up --name ship` makes one\n"
    assert call("status", "--name", "ship", state=tmp_path) == (1, "", no_lab + there)
    assert call("down", "--name", "ship", state=tmp_path) == (0, "there is no lab 'ship'\n", there)
    assert call("status", "--name", "ship", state=tmp_path / "none") == (1, "", no_lab)


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
    proxy = [] if lab.settings.kube_proxy == "none" else ["kube-proxy"]
    daemons = ["containerd", *proxy, "kubelet"]
    nodes = [[name, *(f"{name}/{daemon}" for daemon in daemons)] for name in ("node-1", "node-2")]
    assert call("logs", "--name", lab.record.name)[1].split() == [
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        *nodes[0],
        *nodes[1],
    ]


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
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
