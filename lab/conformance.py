"""Kubernetes' own end-to-end specs against a lab: which, by what command line, and what came of each."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path
from typing import IO, TYPE_CHECKING
from xml.etree import ElementTree

import msgspec

from antrea.errors import Unavailable
from image_build.step import bound, last_words
from lab import control_plane, namespace
from lab.cluster import COMMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lab.cluster import Lab
    from lab.topology import Family

LIST = Path(__file__).with_name("conformance.yaml")
LEAF = "[It] "
PASSED, SKIPPED = "passed", "skipped"
OWN_SKIP = "skipped - "
NO_RESULT = (SKIPPED, "interrupted")
BEGIN, END = "[sig-", ("• ", "S [SKIPPED]")
"""How the suite begins a line with the name of the spec that runs, and one on its end."""


class Skip(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Specs whose name this regular expression finds are not run, and why."""

    match: str
    why: str


class Selection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The specs whose name `focus` finds, without the skipped ones."""

    focus: str
    skip: tuple[Skip, ...] = ()
    without_kube_proxy: tuple[Skip, ...] = ()
    """More that is not run in labs in which there is none."""
    without_second_family: tuple[Skip, ...] = ()
    """More that is not run in labs of IPv4 or IPv6 alone."""
    without_load_balancer: tuple[Skip, ...] = ()
    """More that is not run where Services of type LoadBalancer get no address."""

    def why_not(self, name: str) -> str:
        """Why this spec of the focus is not run; empty if it is."""
        return next((skip.why for skip in self.skip if re.search(skip.match, name)), "")


class Outcome(msgspec.Struct, frozen=True):
    """Outcome of one run of a spec: the suite's word (passed, failed, timedout, panicked), seconds, first words of a failure."""

    status: str
    seconds: float
    why: str = ""


class Spec(msgspec.Struct, frozen=True):
    """A spec by its full name, with its runs, first to last, and the reason if it is never run."""

    name: str
    runs: tuple[Outcome, ...] = ()
    skipped: str = ""

    @property
    def result(self) -> str:
        """Return the result of the last run with the outcomes of earlier runs."""
        if not self.runs:
            return SKIPPED if self.skipped else "not run"
        last = self.runs[-1].status
        before = [run.status for run in self.runs[:-1]]
        return f"{last} (before: {', '.join(before)})" if before else last

    @property
    def settled(self) -> bool:
        """Nothing is left to do: it passed, or is skipped."""
        return bool(self.skipped) or (bool(self.runs) and self.runs[-1].status == PASSED)


class Program(msgspec.Struct, frozen=True):
    """The suite, and for several processes at a time the program that runs it so, ginkgo."""

    suite: Path
    ginkgo: Path | None = None
    processes: int = 1

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command line with these arguments of the suite; those on the choice of specs are ginkgo's where it runs it."""
        if self.ginkgo is None:
            return [str(self.suite), *argv]
        its = [word.replace("--ginkgo.", "--") for word in argv if word.startswith("--ginkgo.")]
        rest = [word for word in argv if not word.startswith("--ginkgo.")]
        return [str(self.ginkgo), f"--procs={self.processes}", *its, str(self.suite), "--", *rest]


def selection(kube_proxy: str, family: Family, *, load_balancer: bool = False) -> Selection:
    """The committed one, conformance.yaml, for a lab with kube-proxy of this mode, or `none`, and of this family."""
    selection = msgspec.yaml.decode(LIST.read_bytes(), type=Selection)
    more = selection.without_kube_proxy if kube_proxy == "none" else ()
    more += selection.without_second_family if family != "dual" else ()
    more += () if load_balancer else selection.without_load_balancer
    return Selection(selection.focus, selection.skip + more)


def arguments(chosen: Selection, *, nodes: int, seconds: int) -> list[str]:
    """Options of e2e.test besides kubeconfig and report directory; `seconds` bound the whole run.

    Of several processes one alone counts the Nodes by itself.

    Source: `e2e.test --help`, k8s.io/kubernetes/test/e2e/framework/test_context.go
    """
    return [
        "--provider=skeleton",
        f"--num-nodes={nodes}",
        f"--ginkgo.focus={chosen.focus}",
        *(f"--ginkgo.skip={skip.match}" for skip in chosen.skip),
        f"--ginkgo.timeout={seconds}s",
        "--ginkgo.v",
        "--ginkgo.no-color",
        "--dump-logs-on-failure=false",
    ]


def command_line(program: Program, chosen: Selection, *, nodes: int, seconds: int) -> str:
    """The same as a person would type it."""
    place = ("--kubeconfig=FILE", "--report-dir=DIRECTORY")
    argv = program.command([*arguments(chosen, nodes=nodes, seconds=seconds), *place])
    return shlex.join(word.rpartition("/")[2] if word.startswith("/") else word for word in argv)


def alone(name: str) -> Selection:
    """Exactly the spec of this name."""
    return Selection(re.escape(name) + "$")


def run(lab: Lab, program: Program, argv: Sequence[str], place: Path, say: Callable[[str], None]) -> bool:
    """Run the suite; its JUnit report, its output and the lab's commit go to the directory `place`. Return whether to continue.

    Failed specs are not an error; interrupted, it still writes the report. Raises Unavailable when there is no report.
    """
    place.mkdir(parents=True)
    shutil.copy(lab.record.directory / COMMIT, place)
    where = [f"--kubeconfig={control_plane.kubeconfig(lab.record)}", f"--report-dir={place}"]
    control = namespace.path(lab.record, lab.topology.control_plane.name)
    argv = bound(namespace.inside(control, program.command([*argv, *where])))
    with (
        (place / "output.log").open("w") as log,
        # a session of its own: a ^C of the terminal reaches it once, from here; at a second one it would not clean up
        subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as suite,
    ):
        assert suite.stdout is not None
        try:
            follow(suite.stdout, log, say)
            whole = True
        except KeyboardInterrupt:
            suite.send_signal(signal.SIGINT)
            follow(suite.stdout, log, say)
            whole = False
    if not (place / "junit_01.xml").exists():
        raise Unavailable(f"e2e.test ended without a report:\n{last_words(place / 'output.log')}")
    return whole


def follow(lines: Iterable[str], log: IO[str], say: Callable[[str], None]) -> None:
    """All lines into the log; of each spec that has ended, result, seconds and name are printed.

    The name comes first; from several processes, whose output is in order, it comes after the result.
    """
    name = result = ""
    for line in lines:
        log.write(line)
        log.flush()
        if line.startswith(BEGIN):
            name = line.strip()
        elif line.startswith(END):
            result = line.strip()
        if name and result:
            say(f"{result} {name}")
            name = result = ""


def read(reports: Iterable[Path], chosen: Selection) -> list[Spec]:
    """The specs of the focus by name, with their runs in the order of the reports."""
    names, runs, skip_reasons = set[str](), dict[str, list[Outcome]](), dict[str, str]()
    for report in reports:
        for case in ElementTree.parse(report).iter("testcase"):
            name = case.get("name", "")
            if not name.startswith(LEAF) or not re.search(chosen.focus, name):
                continue
            name = name.removeprefix(LEAF)
            names.add(name)
            if (status := case.get("status", "")) not in NO_RESULT:
                runs.setdefault(name, []).append(
                    Outcome(status, float(case.get("time", 0)), _failure_text(case))
                )
            elif why := _skipped(case):
                skip_reasons[name] = why
    return [
        Spec(
            name,
            tuple(runs.get(name, ())),
            chosen.why_not(name) or ("" if name in runs else skip_reasons.get(name, "")),
        )
        for name in sorted(names)
    ]


def _skipped(case: ElementTree.Element) -> str:
    """Why the suite itself skipped it; empty if it was not of the selection."""
    element = case.find("skipped")
    return "" if element is None else element.get("message", "").partition(OWN_SKIP)[2]


def _failure_text(case: ElementTree.Element) -> str:
    for kind in ("failure", "error"):
        if (element := case.find(kind)) is not None:
            lines = ((element.text or "").strip() or element.get("message", "")).splitlines()
            return lines[0] if lines else ""
    return ""


def suite(
    lab: Lab, program: Program, chosen: Selection, *, place: Path, seconds: int, say: Callable[[str], None]
) -> list[Spec]:
    """All specs of the selection that have not passed in `place` yet, then each one that failed once more, alone."""
    nodes = len(lab.topology.nodes)
    before = read(reports(place), chosen)
    done = [Skip(f"{re.escape(spec.name)}$", "has passed") for spec in before if spec.runs and spec.settled]
    rest = msgspec.structs.replace(chosen, skip=(*chosen.skip, *done))
    whole = bool(before) and all(spec.settled for spec in before)
    if not whole:
        whole = run(lab, program, arguments(rest, nodes=nodes, seconds=seconds), _next(place), say)
    failed = [spec for spec in read(reports(place), chosen) if spec.runs and not spec.settled]
    alone_program = Program(program.suite)
    for spec in failed if whole else ():
        say(f"once more, alone: {spec.name}")
        argv = arguments(alone(spec.name), nodes=nodes, seconds=seconds)
        if not run(lab, alone_program, argv, _next(place), say):
            break
    return read(reports(place), chosen)


def reports(place: Path) -> list[Path]:
    """The JUnit reports of the runs so far, in their order."""
    return sorted(place.glob("run-*/junit_01.xml"))


def commits(place: Path, chosen: Selection) -> list[str]:
    """Return the commits that the labs of runs with results were made of, each commit once."""
    some = [report for report in reports(place) if any(spec.runs for spec in read([report], chosen))]
    return list(dict.fromkeys((report.parent / COMMIT).read_text() for report in some))


def _next(place: Path) -> Path:
    taken = [int(folder.name.removeprefix("run-")) for folder in place.glob("run-*")]
    return place / f"run-{max(taken, default=0) + 1:03}"


def clear(place: Path) -> None:
    """Forget earlier runs."""
    for folder in place.glob("run-*"):
        shutil.rmtree(folder)
