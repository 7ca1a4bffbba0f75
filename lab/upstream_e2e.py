"""Upstream's own end-to-end tests against a lab: which, by what command line, and what came of each."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from antrea.decoding import guarded
from image_build.step import bound
from lab import (
    antrea,
    control_plane,
    docker_command,
    namespace,
    node,
    outside_machine,
    upstream_e2e_flows,
    upstream_e2e_names,
)
from lab.cluster import COMMIT
from lab.conformance import Outcome, Skip, Spec
from lab.images import AGNHOST
from lab.topology import Family  # noqa: TC001 (msgspec resolves it)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lab.cluster import Lab

LIST = Path(__file__).with_name("upstream_e2e.yaml")
OBJECTS = Path(__file__).with_name("upstream_e2e_cluster.yaml")
RESULTS = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}
UNFINISHED = "not finished"
BEGUN = re.compile(r"=== (?:RUN|CONT|NAME)\s+(\S+)$")
ENDED = re.compile(r"\s*--- (PASS|FAIL|SKIP): (\S+) \((\d+\.\d+)s\)$")
SAID = re.compile(r"\s+\w+\.go:\d+: ?(.*)$")
ASSERTED = ("Error:", "expected:", "actual  :", "Messages:")
MACHINES = "vm"
"""How names of hosts begin that run an agent."""
CONTROL_PLANE = "node-role.kubernetes.io/control-plane="


class LeftOut(Skip, frozen=True, forbid_unknown_fields=True):
    """One for labs of these families, where it names some."""

    families: tuple[Family, ...] = ()


class Selection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The top-level tests of upstream's suite at this version, without the skipped ones, each with its reason."""

    version: str
    tests: tuple[str, ...]
    skip: tuple[LeftOut, ...] = ()

    def leaves_out(self, name: str) -> bool:
        """Whether `-test.skip` leaves out the test of this full name: each of a pattern's elements finds one of its parts."""
        parts = name.split("/")
        patterns = [skipped.match.split("/") for skipped in self.skip]
        return any(
            len(pattern) <= len(parts)
            and all(re.search(element, part) for element, part in zip(pattern, parts, strict=False))
            for pattern in patterns
        )

    def inside(self, family: Family) -> Selection:
        """The same for a lab of this family."""
        skip = tuple(skipped for skipped in self.skip if not skipped.families or family in skipped.families)
        return msgspec.structs.replace(self, skip=skip)

    def of(self, wanted: Sequence[str]) -> Selection:
        """The same for the top-level tests that the first elements of these patterns find; all of them without a pattern."""
        tops = [pattern.split("/")[0] for pattern in wanted]
        tests = tuple(t for t in self.tests if not tops or any(re.search(top, t) for top in tops))
        return msgspec.structs.replace(self, tests=tests)


def selection(file: Path = LIST) -> Selection:
    """Read a selection of tests, such as upstream_e2e.yaml or upstream_e2e_main.yaml. Raises Invalid."""
    return guarded(str(file), msgspec.yaml.decode, file.read_bytes(), type=Selection)


def arguments(pattern: str, skip: Sequence[Skip], *, seconds: int) -> list[str]:
    """The arguments of the test program besides kubeconfig and log directory.

    Source: `go help testflag`, test/e2e/fixtures.go testMain
    """
    left_out = [f"-test.skip={'|'.join(skipped.match for skipped in skip)}"] if skip else []
    return [
        "-provider=kind",
        "-deploy-antrea=false",
        "-prometheus",
        "-networkpolicy-evaluation",
        "-flow-visibility",
        "-test.v",
        f"-test.timeout={seconds}s",
        f"-test.run={pattern}",
        *left_out,
    ]


def exactly(names: Iterable[str]) -> str:
    """The pattern of `-test.run` for the tests of these full names."""
    return "|".join("/".join(f"^{re.escape(part)}$" for part in name.split("/")) for name in names)


def read(output: Iterable[str]) -> dict[str, Outcome]:
    """Results in the lines of a run with `-test.v` of each test that has no subtests, and of those that failed by themselves."""
    begun, ended, said, current = list[str](), dict[str, Outcome](), dict[str, list[str]](), ""
    for raw in output:
        line = raw.rstrip("\n")
        if match := BEGUN.match(line):
            current = match[1]
            if current not in begun:
                begun.append(current)
        elif match := ENDED.match(line):
            why = "" if match[1] == "PASS" else " ".join(" ".join(said.get(match[2], ())[-4:]).split())
            ended[match[2]] = Outcome(RESULTS[match[1]], float(match[3]), why)
        elif (match := SAID.match(line)) and current:
            said.setdefault(current, []).append(match[1].strip())
        elif line.strip().startswith(ASSERTED) and current:
            said.setdefault(current, []).append(line.strip())
    return {name: ended.get(name, Outcome(UNFINISHED, 0)) for name in begun if _has_row(name, begun, ended)}


def _has_row(name: str, begun: Iterable[str], ended: dict[str, Outcome]) -> bool:
    """Whether a row of its own is due to it: it has no subtests, or failed though none of them did."""
    below = [other for other in begun if other.startswith(f"{name}/")]
    if not below:
        return True
    bad = [other for other in below if other not in ended or ended[other].status == RESULTS["FAIL"]]
    return not bad and ended.get(name, Outcome(UNFINISHED, 0)).status in (RESULTS["FAIL"], UNFINISHED)


def specs(place: Path, chosen: Selection) -> list[Spec]:
    """The tests that have run, in the order of the selection, with the outcomes of their runs."""
    specs_read: list[Spec] = []
    for test in chosen.tests:
        runs = [read(log.read_text(errors="replace").splitlines()) for log in logs(place, test)]
        names = dict.fromkeys(name for outcomes in runs for name in outcomes)
        for name in (name for name in names if not chosen.leaves_out(name)):
            outcomes = tuple(outcomes[name] for outcomes in runs if name in outcomes)
            specs_read.append(_spec(name, outcomes))
    return specs_read


def _spec(name: str, runs: tuple[Outcome, ...]) -> Spec:
    last = runs[-1]
    return Spec(name, skipped=last.why) if last.status == RESULTS["SKIP"] else Spec(name, runs)


def logs(place: Path, test: str) -> list[Path]:
    """The outputs of the runs of a top-level test so far, in their order."""
    return sorted((place / test).glob("run-*/output.log"))


def commits(place: Path, chosen: Selection) -> list[str]:
    """Return the commits that the labs of these runs were made of, each commit once."""
    files = [log.parent / COMMIT for test in chosen.tests for log in logs(place, test)]
    return list(dict.fromkeys(file.read_text() for file in files))


def dress(lab: Lab) -> None:
    """Make the lab's first node what the suite calls the control-plane Node, and add the objects that it expects.

    It has an administrator's kubectl, and in its home directory the manifest, which the suite applies after a removal.
    """
    first = lab.topology.nodes[0].name
    lab.api.apply(OBJECTS.read_text().replace("CONTROL_PLANE", first).replace("AGNHOST", AGNHOST))
    lab.api.kubectl("label", "--overwrite", "node", first, CONTROL_PLANE)
    config = control_plane.kubeconfig(lab.record).read_text()
    script = "mkdir -p /root/.kube && umask 077 && cat > /etc/kubernetes/admin.conf"
    node.execute(lab.record, first, "sh", "-c", script, stdin=config)
    manifest = antrea.manifest(lab, antrea.MANIFEST.read_text())
    node.execute(lab.record, first, "sh", "-c", "cat > /root/antrea.yml", stdin=manifest)
    upstream_e2e_names.serve(lab)
    _dress_machines(lab)


def _dress_machines(lab: Lab) -> None:
    """Install agents on the lab's hosts that are to be machines outside the cluster."""
    there = outside_machine.machines(lab)
    new = [
        machine.name
        for machine in lab.topology.machines
        if machine.name.startswith(MACHINES) and machine.name not in there
    ]
    if new:
        outside_machine.serve(lab)
    resolver = upstream_e2e_names.resolver(lab.topology.family)
    for name in new:
        outside_machine.start(lab, name, "SupportBundleCollection", resolver=resolver)


def suite(
    lab: Lab,
    program: Path,
    chosen: Selection,
    wanted: Sequence[str],
    *,
    place: Path,
    seconds: int,
    say: Callable[[str], None],
) -> None:
    """Run each top-level test that has not passed in `place` yet, by itself, and its failed subtests once more, together.

    Of a test that patterns with subtests in `wanted` find, these are run.
    """
    dress(lab)
    if upstream_e2e_flows.wanted(chosen.tests):
        upstream_e2e_flows.serve(lab, say)

    def go(test: str, pattern: str) -> None:
        say(pattern)
        run(
            lab,
            program,
            arguments(pattern, chosen.skip, seconds=seconds),
            place=_next(place / test),
            say=say,
        )

    for test in chosen.tests:
        alone = msgspec.structs.replace(chosen, tests=(test,))
        before = specs(place, alone)
        given = [pattern for pattern in wanted if "/" in pattern and re.search(pattern.split("/")[0], test)]
        rest = _failed(before) if before else [test]
        for pattern in given or ([exactly(rest)] if rest else []):
            go(test, pattern)
        if failed := _failed(specs(place, alone)):
            say("once more, what failed:")
            go(test, exactly(failed))


def _failed(specs_run: Iterable[Spec]) -> list[str]:
    names = sorted(spec.name for spec in specs_run if not spec.settled)
    return names[:1] + [name for above, name in pairwise(names) if not name.startswith(f"{above}/")]


def run(lab: Lab, program: Path, options: Sequence[str], *, place: Path, say: Callable[[str], None]) -> None:
    """Run the test program in the control plane's network; its output and the lab's commit go to the directory `place`."""
    place.mkdir(parents=True)
    (place / COMMIT).write_bytes((lab.record.directory / COMMIT).read_bytes())
    exported = place / "exported"
    exported.mkdir()
    docker = place / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m {docker_command.__name__} "$@"\n')
    docker.chmod(0o755)
    config = control_plane.kubeconfig(lab.record)
    control = namespace.path(lab.record, lab.topology.control_plane.name)
    argv: list[str | Path] = [program, *options, f"-kind.kubeconfig={config}", f"-logs-export-dir={exported}"]
    if machines := outside_machine.machines(lab):
        argv.append(f"-linuxVMs={' '.join(machines)}")
    environment = {
        **os.environ,
        docker_command.LAB: lab.record.name,
        "PATH": f"{docker.parent}:{os.environ['PATH']}",
    }
    run_logged(namespace.inside(control, argv), place / "output.log", environment, say)


def run_logged(
    argv: Sequence[str | Path], log: Path, environment: Mapping[str, str], say: Callable[[str], None]
) -> int:
    """Run a test program of Go in the directory of its `log`; lines on tests that have ended are passed on. Return its status."""
    with (
        log.open("w") as output,
        subprocess.Popen(
            bound(argv),
            cwd=log.parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            output.write(line)
            output.flush()
            if ENDED.match(line.rstrip("\n")):
                say(line.strip())
    return process.returncode


def _next(place: Path) -> Path:
    taken = [int(folder.name.removeprefix("run-")) for folder in place.glob("run-*")]
    return place / f"run-{max(taken, default=0) + 1:03}"
