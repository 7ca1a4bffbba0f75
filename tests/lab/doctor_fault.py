"""A fault that a lab is given, the doctor's answer, and the repair by the command that it names."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import workstation
import yaml
from agent_node import antctl, in_agent, kill, parent_of, pid_of, wait_ready
from config_map import ConfigMap, wait_value

from antrea.errors import Unavailable
from lab import antrea as installation
from lab import namespace, node, underlay
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.cluster import Lab

FOUND_SECONDS = 240.0
"""Within which kubelets, agents and the controller have reported a fault, or its end."""
SET = re.compile(r"# set ([\w.]+): (\S+) in (antrea-\w+\.conf)")
WRAPPER = """#!/bin/sh
exec {words} "$@"
"""


class Fault(NamedTuple):
    """`make` does it; `check` and `says` are of the first finding; without `repairs` its command names where to look."""

    name: str
    check: str
    says: str
    make: Callable[[Faulty], object]
    unmake: Callable[[Faulty], object] = lambda _: None
    node: str = ""
    """Where it is found; `*`: on any Node, or on none."""
    repairs: bool = True
    shows: str = ""
    """What that command prints where it repairs nothing."""
    again: bool = False
    """Whether kubelet ends it, so that it is made again before each look."""
    core: bool = False


class Faulty:
    """A lab in which faults are made."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.manifest = installation.manifest(lab, installation.MANIFEST.read_text())
        self._stopped: list[int] = []

    def kubectl(self, *words: str) -> str:
        return self.lab.api.kubectl(*words)

    def system(self, *words: str) -> str:
        """kubectl in Antrea's Namespace."""
        return self.kubectl("-n", "kube-system", *words)

    def patch(self, target: str, body: dict[str, Any], kind: str = "strategic") -> None:
        self.system("patch", target, f"--type={kind}", "-p", json.dumps(body))

    def shell(self, where: str, line: str) -> str:
        return node.execute(self.lab.record, where, "sh", "-c", line)

    def stop(self, where: str, program: str) -> None:
        """SIGSTOP."""
        pid = pid_of(self.lab, where, program)
        assert pid, f"{program} does not run on {where}"
        os.kill(pid, signal.SIGSTOP)
        self._stopped.append(pid)

    def end(self, where: str, program: str) -> None:
        """SIGKILL, while the program that would start it again is stopped."""
        pid = pid_of(self.lab, where, program)
        assert pid, f"{program} does not run on {where}"
        self._stopped.append(parent_of(pid))
        os.kill(parent_of(pid), signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)

    def restart_kubelet(self, where: str) -> None:
        """SIGKILL; its Node starts it again, with the configuration of now."""
        kill(pid_of(self.lab, where, "kubelet"))

    def at_switch(self, line: str) -> None:
        """A shell line where the switches are that Nodes are plugged into."""
        namespace.script(self.lab.record, namespace.path(self.lab.record, underlay.UNDERLAY), [line])

    def in_agent(self, where: str, line: str) -> None:
        in_agent(self.lab, where, "sh", "-c", line)

    def wait_effect(self, values: dict[str, Any]) -> None:
        """Wait until all agents run with these values, or with those of the manifest."""
        for key, section in values.items():
            rows = (
                {f"{key}.{name}": value for name, value in section.items()}
                if isinstance(section, dict)
                else {}
            )
            for path, wanted in ({key: section} if key == "featureGates" or not rows else rows).items():
                wait_value(self.lab, path, wanted)
        for machine in self.lab.topology.nodes:
            wait_ready(self.lab, machine.name)
            connected = partial(self._is_connected, machine.name)
            wait_for(f"connections of {machine.name}", connected, seconds=FOUND_SECONDS)

    def _is_connected(self, where: str) -> bool:
        """Whether the agent, which is built anew for some values, has connected to its switch and the controller again."""
        told = json.loads(antctl(self.lab, where, "get", "agentinfo", "-o", "json"))
        return all(row["status"] == "True" for row in told["agentConditions"])

    def go_on(self) -> None:
        """SIGCONT to those that are left."""
        while self._stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._stopped.pop(), signal.SIGCONT)

    def configure(self, file: str = "antrea-agent.conf", **values: object) -> None:
        ConfigMap(self.lab, file).change(**values)

    def restore(self) -> None:
        """Make what is missing, and give everything of the manifest its text back."""
        self.lab.api.apply(self.manifest)

    def findings(self) -> list[dict[str, str]]:
        command = workstation.command(self.lab, "doctor", "-o", "json")
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=300, env=workstation.environment()
        )
        rows: list[dict[str, str]] = json.loads(done.stdout or "[]")
        assert done.stdout, done.stderr
        return rows

    def wait(
        self,
        true: Callable[[list[dict[str, str]]], bool],
        what: str,
        before: Callable[[], object] = lambda: None,
    ) -> list[dict[str, str]]:
        """The findings once they are as wanted; `before` is called before each look."""
        end = time.monotonic() + FOUND_SECONDS
        while True:
            before()
            if true(rows := self.findings()):
                return rows
            if time.monotonic() > end:
                raise Unavailable(f"{what}: {json.dumps(rows, indent=1)}")
            time.sleep(1)

    @contextlib.contextmanager
    def made(self, fault: Fault) -> Iterator[None]:
        fault.make(self)
        try:
            yield
        finally:
            self.go_on()
            fault.unmake(self)

    def repair(self, row: dict[str, str]) -> str:
        """What an operator does who reads this finding; returns what the command prints."""
        command = row["repair"]
        if setting := SET.search(command):
            key, value, file = setting.groups()
            tree: Any = yaml.safe_load(value.rstrip(","))
            for name in reversed(key.split(".")):
                tree = {name: tree}
            config = ConfigMap(self.lab, file)
            config.write(yaml.safe_dump(installation.merged(yaml.safe_load(config.text), tree)))
        elif "edit configmap" in command:
            self.restore()
        elif command.startswith(("kubectl", "antctl", "helm")):
            return self._from_workstation(command)
        else:
            return self.shell(row.get("peer") or row["node"], command)
        return ""

    def _from_workstation(self, command: str) -> str:
        """Some of these commands fail though they repair: kubectl create, where objects exist."""
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            for manifest in ("antrea.yml", "antrea-crds.yml"):
                (folder / manifest).write_text(self.manifest)
            programs = {"kubectl": self.lab.api.command([]), "antctl": workstation.command(self.lab)}
            for name, words in programs.items():
                path = folder / name
                path.write_text(WRAPPER.format(words=shlex.join(str(word) for word in words)))
                path.chmod(0o755)
            environ = {**workstation.environment(), "PATH": f"{folder}:{os.environ['PATH']}"}
            line = ["sh", "-c", command]
            return subprocess.run(
                line, check=False, timeout=300, capture_output=True, text=True, env=environ, cwd=folder
            ).stdout


def is_first(fault: Fault) -> Callable[[list[dict[str, str]]], bool]:
    """Whether the first finding is that of the fault."""

    def judge(rows: list[dict[str, str]]) -> bool:
        row = rows[0] if rows else {}
        where = fault.node if fault.node != "*" else row.get("node")
        return (row.get("check"), row.get("node")) == (fault.check, where) and fault.says in row["finding"]

    return judge


def seed(faulty: Faulty, fault: Fault) -> dict[str, str]:
    """Make the fault, wait until it is found first, repair it by the named command, and wait until nothing is found."""
    with faulty.made(fault):
        again = partial(fault.make, faulty) if fault.again else lambda: None
        row = faulty.wait(is_first(fault), f"{fault.name} is not the first finding", again)[0]
        if fault.repairs:
            faulty.repair(row)
            faulty.wait(lambda rows: rows == [], f"{fault.name} is not repaired by {row['repair']!r}")
        elif fault.shows:
            assert fault.shows in faulty.repair(row)
    if not fault.repairs:
        faulty.wait(lambda rows: rows == [], f"{fault.name} does not end")
    return row
