"""antctl as a plugin of kubectl: its name in help and errors, and the answers by which kubectl completes command lines."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the entry point of a program with this name, as its script does."""
    module, _, function = PROJECT["scripts"][program].partition(":")
    code = f"import sys; sys.argv[0] = {program!r}; from {module} import {function}; {function}()"
    words = [sys.executable, "-P", "-c", code, *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)


def test_every_program_of_the_package_exists() -> None:
    names = [entry.partition(":")[::2] for entry in PROJECT["scripts"].values()]
    assert all(callable(getattr(import_module(module), function)) for module, function in names)


def test_the_plugin_is_called_as_kubectl_calls_it() -> None:
    usage = run("kubectl-antrea", "--help")
    assert (usage.returncode, usage.stdout.splitlines()[0]) == (
        0,
        "Usage: kubectl antrea [OPTIONS] COMMAND [ARGS]...",
    )
    wrong = run("kubectl-antrea", "get", "nothing")
    assert wrong.returncode == 1
    assert wrong.stderr.startswith('Error: unknown command "nothing" for "kubectl antrea get"\n')


@pytest.mark.parametrize(
    ("arguments", "completions", "directive"),
    [
        (("get", "controlleri"), ["controllerinfo\tPrint basic information on the controller"], 4),
        (("traceflow", "--now"), ["--nowait\tstart it, and neither wait for the results nor delete it"], 4),
        (("get", "zzz"), [], 4),
        (("-k", ""), [], 0),
    ],
)
def test_the_completion_has_values_descriptions_and_a_directive(
    arguments: tuple[str, ...], completions: list[str], directive: int
) -> None:
    done = run("kubectl_complete-antrea", *arguments)
    assert done.stdout.splitlines() == [*completions, f":{directive}"], done.stderr


def test_the_completion_lists_all_commands_without_an_argument() -> None:
    lines = run("kubectl_complete-antrea").stdout.splitlines()
    assert {"check", "doctor", "get", "status"} <= {line.partition("\t")[0] for line in lines}
