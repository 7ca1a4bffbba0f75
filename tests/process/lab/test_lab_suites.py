"""scripts/conformance, scripts/test-starved and scripts/half: what they run, and with which options."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
STUB = '#!/bin/sh\necho "$(basename "$0") $*" >>"$CALLS"\n[ "$1" != "${FAILING:-}" ]\n'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout whose programs note their arguments and do nothing."""
    for script in ("conformance", "test-starved", "half"):
        (tmp_path / "scripts").mkdir(exist_ok=True)
        shutil.copy(ROOT / "scripts" / script, tmp_path / "scripts")
    for stub in (".venv/bin/antrea-lab", ".venv/bin/e2e.test", "scripts/starved"):
        (tmp_path / stub).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / stub).write_text(STUB)
        (tmp_path / stub).chmod(0o755)
    return tmp_path


def run(tree: Path, *command: str, **variables: str) -> tuple[int, list[str]]:
    """Exit status of a script, and the programs that it ran."""
    calls = tree / "calls"
    calls.unlink(missing_ok=True)
    environment = {"PATH": os.environ["PATH"], "CALLS": str(calls), **variables}
    done = subprocess.run([tree / "scripts" / command[0], *command[1:]], env=environment, check=False)
    return done.returncode, calls.read_text().splitlines() if calls.exists() else []


def test_the_specs_of_kubernetes_run_in_a_lab_that_ends_after_them(tree: Path) -> None:
    page = "--reports build/out/conformance --page docs/generated/conformance.md"
    assert run(tree, "conformance", "kubernetes") == (
        0,
        [
            "antrea-lab up --name conformance --nodes 2 --family ipv4 --kube-proxy none --proxy-all",
            f"antrea-lab conformance --name conformance --processes 4 {page}",
            "antrea-lab down --name conformance",
        ],
    )


def test_options_of_a_suite_come_from_variables(tree: Path) -> None:
    variables = {
        "BESIDE": "iptables",
        "FAMILY": "dual",
        "FOCUS": "a b",
        "CONFORMANCE_OPTIONS": "--resume --seconds 9",
    }
    page = "--reports build/out/conformance-iptables-dual --page docs/generated/conformance-iptables-dual.md"
    assert run(tree, "conformance", "kubernetes", **variables)[1][:2] == [
        "antrea-lab up --name conformance --nodes 2 --family dual --kube-proxy iptables",
        f"antrea-lab conformance --name conformance --focus a b --resume --seconds 9 --processes 4 {page}",
    ]


def test_a_suite_that_fails_ends_its_lab_and_a_lab_that_does_not_start_is_left(tree: Path) -> None:
    status, calls = run(tree, "conformance", "policy", FAILING="policy-conformance")
    assert (status, [call.split()[1] for call in calls]) == (1, ["up", "policy-conformance", "down"])
    status, calls = run(tree, "conformance", "policy", FAILING="up")
    assert (status, [call.split()[1] for call in calls]) == (1, ["up"])


def test_tests_of_upstream_need_their_program(tree: Path) -> None:
    program = str(tree / ".venv/bin/e2e.test")
    assert run(tree, "conformance", "upstream") == (2, [])
    status, calls = run(tree, "conformance", "upstream", ANTREA_E2E=program, TESTS="A.* B", NODES="3")
    assert status == 0
    assert calls[0] == "antrea-lab up --name upstream-e2e --config lab/upstream_e2e_lab.yaml --nodes 3"
    assert calls[1].startswith(
        f"antrea-lab upstream-e2e --name upstream-e2e --program {program} --test A.* --test B --resume"
    )


def test_rounds_that_fail_on_a_slow_machine_are_named(tree: Path) -> None:
    tier = " -m pytest tests/vm -m not wide --timeout 9200"
    assert run(tree, "test-starved", TIER="vm", STARVED_ROUNDS="2", STARVED_PERCENT="20") == (
        0,
        [f"starved 20 python{tier}"] * 2,
    )
    assert run(tree, "test-starved", STARVED_ROUNDS="1", FAILING="50")[0] == 1


@pytest.mark.parametrize("tier", ["unit", "process", "ovs"])
def test_the_halves_of_a_tier_are_all_of_it(tier: str) -> None:
    first, second = (
        subprocess.run(
            [ROOT / "scripts/half", tier, half], check=True, capture_output=True, text=True
        ).stdout.split()
        for half in ("first", "second")
    )
    assert second == [f"tests/{tier}", *(f"--ignore={path}" for path in first)]
    assert all((ROOT / path).exists() for path in first)
