"""`antctl status`: programs, versions, feature gates and errors on one screen, and `--wait` until all is as desired."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from antrea import VERSION
from antrea.antctl.doctor.cause import split
from antrea.antctl.doctor.command import REQUEST_TIMEOUT, as_row
from antrea.antctl.doctor.control_plane.checks import findings
from antrea.antctl.doctor.control_plane.cluster_state import AGENT, collect, name_of
from antrea.antctl.doctor.control_plane.report import MAX_AGE, age_of
from antrea.antctl.doctor.control_plane.rollout import node_of
from antrea.antctl.doctor.text import blocks
from antrea.antctl.failure import Failure
from antrea.antctl.group import HELP, output_option
from antrea.antctl.output import echo, render
from antrea.config.shape import seconds
from antrea.decoding import guarded
from antrea.errors import Invalid
from antrea.features.framework.command import table
from antrea.features.framework.gate import GATES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from antrea.antctl.doctor.control_plane.cluster_state import ClusterState
    from antrea.antctl.doctor.state import Finding
    from antrea.antctl.main import Target
    from antrea.features.framework.command import Column

STEP_SECONDS: Final = 1.0
"""Between two looks while waiting."""
FILES: Final = {"agent": "antrea-agent.conf", "controller": "antrea-controller.conf"}
TEXT = """Print the state of Antrea on one screen: programs, versions, feature gates that are set, and errors.

Reads kube-apiserver alone, and no agent; `antctl doctor` asks these, too. Exit code 1: a program is not as desired, or a check
finds an error."""


class Program(NamedTuple):
    """A Deployment or a DaemonSet: how many of its Pods are wanted, Ready, and of the newest template."""

    name: str
    namespace: str
    desired: int
    ready: int
    updated: int
    image: str

    @property
    def is_complete(self) -> bool:
        """Whether all Pods are Ready, and of the newest template."""
        return self.ready == self.updated == self.desired

    def lack(self) -> str:
        """Return what the program lacks; empty: nothing."""
        if self.ready != self.desired:
            return f"{self.name} has {self.ready} of {self.desired} Pods ready"
        return "" if self.is_complete else f"{self.name} has {self.updated} of {self.desired} Pods updated"


class Status(NamedTuple):
    """All that is on the screen."""

    namespace: str
    programs: tuple[Program, ...]
    controller_version: str
    agent_versions: Mapping[str, int]
    """Number of agents by version."""
    agents: int
    """Pods of agents."""
    reporting: int
    """Agents whose report is not late."""
    connected_pods: int
    """Pods that agents have connected, by their reports."""
    gates: Mapping[str, Mapping[str, bool]]
    """Feature gates that the configuration sets to another value than their default, by program."""
    findings: tuple[Finding, ...]

    @property
    def is_ready(self) -> bool:
        """Whether every program is as desired and no check finds an error."""
        complete = bool(self.programs) and all(program.is_complete for program in self.programs)
        return complete and not any(row.severity == "error" for row in self.findings)


def command() -> click.Command:
    """The command `status`."""
    return click.Command(
        "status",
        context_settings=HELP,
        params=[
            click.Option(["--wait"], is_flag=True, help="wait until all programs are as desired and no check finds an error"),
            click.Option(["--wait-duration"], default="5m", show_default=True, help="how long to wait, such as 90s"),
            output_option(),
        ],
        callback=_callback,
        short_help="Print the state of Antrea on one screen",
        help=TEXT,
    )  # fmt: skip


def _callback(output: str, wait_duration: str, *, wait: bool) -> None:
    context = click.get_current_context()
    target: Target = context.obj
    try:
        limit = seconds(wait_duration) if wait else 0.0
    except ValueError as error:
        raise Failure(f"--wait-duration: {error}") from error
    kubernetes = target.find()
    kubernetes = kubernetes._replace(seconds=kubernetes.seconds or REQUEST_TIMEOUT)
    status = wait_ready(lambda: status_of(collect(kubernetes)), limit)
    if output == "table":
        echo(screen(status), nl=False)
    else:
        echo(render(as_tree(status), output, (), ordered=False), nl=False)
    context.exit(0 if status.is_ready else 1)


def wait_ready(look: Callable[[], Status], limit: float) -> Status:
    """Return the first status that is ready, or the last one within `limit` seconds; each change is a line on stderr."""
    end, shown = time.monotonic() + limit, ""
    while True:
        status = look()
        if status.is_ready or time.monotonic() >= end:
            return status
        if (line := summary(status)) != shown:
            echo(line, err=True)
            shown = line
        time.sleep(min(STEP_SECONDS, max(0.0, end - time.monotonic())))


def summary(status: Status) -> str:
    """Return one line on what is waited for."""
    counts = ", ".join(f"{program.name} {program.ready} of {program.desired}" for program in status.programs)
    first = next((f"; {row.check}: {row.finding}" for row in status.findings if row.severity == "error"), "")
    return f"waiting: {counts or 'nothing is installed'}{first}"


def status_of(state: ClusterState) -> Status:
    """Return what is on the screen. Raises Failure if nothing can be read."""
    if state.daemon_sets is None and state.deployments is None and state.pods is None:
        raise Failure(state.unseen["pods"])
    pods = {node_of(pod) for pod in state.pods_of(AGENT)}
    infos = [info for info in state.agent_infos or () if name_of(info) in pods]
    ages = [age_of(state, info.get("agentConditions", ())) for info in infos]
    return Status(
        namespace=state.namespace,
        programs=tuple(_program(item) for item in (*(state.daemon_sets or ()), *(state.deployments or ()))),
        controller_version=str((state.controller_info or {}).get("version", "")),
        agent_versions=dict(Counter(str(info.get("version", "")) for info in infos if info.get("version"))),
        agents=len(pods),
        reporting=sum(age is not None and age <= MAX_AGE for age in ages),
        connected_pods=sum(info.get("localPodNum", 0) for info in infos),
        gates={program: gates for program, file in FILES.items() if (gates := _gates(state, file))},
        findings=tuple(split(findings(state))[0]),
    )


def _program(item: Mapping[str, Any]) -> Program:
    """Return the counts; those of an older generation than the specification do not count."""
    status, spec = item.get("status", {}), item["spec"]
    is_daemon_set = "desiredNumberScheduled" in status or "replicas" not in spec
    current = status.get("observedGeneration", 0) >= item["metadata"].get("generation", 0)
    updated = status.get("updatedNumberScheduled" if is_daemon_set else "updatedReplicas", 0)
    images = {container["image"] for container in spec["template"]["spec"]["containers"]}
    return Program(
        name=name_of(item),
        namespace=item["metadata"]["namespace"],
        desired=status.get("desiredNumberScheduled", 0) if is_daemon_set else spec.get("replicas", 1),
        ready=status.get("numberReady" if is_daemon_set else "readyReplicas", 0),
        updated=updated if current else 0,
        image=", ".join(sorted(images)),
    )


def _gates(state: ClusterState, file: str) -> dict[str, bool]:
    """Return gates of a file that are not at their default; none of a file that cannot be read, which a check names."""
    import yaml  # noqa: PLC0415 (start-up time)

    try:
        tree = guarded(file, yaml.safe_load, (state.config or {}).get(file, "")) or {}
    except Invalid:
        return {}
    defaults = {gate.name: gate.default for gate in GATES}
    values = tree.get("featureGates") if isinstance(tree, dict) else None
    rows = values.items() if isinstance(values, dict) else ()
    return {str(name): bool(value) for name, value in sorted(rows) if bool(value) != defaults.get(name)}


PROGRAM_COLUMNS: tuple[Column, ...] = (
    ("PROGRAM", lambda row: str(row["name"])),
    ("NAMESPACE", lambda row: str(row["namespace"])),
    ("DESIRED", lambda row: str(row["desired"])),
    ("READY", lambda row: str(row["ready"])),
    ("UPDATED", lambda row: str(row["updated"])),
    ("IMAGE", lambda row: str(row["image"])),
)


def screen(status: Status) -> str:
    """Return the screen."""
    return "".join(_blocks(status))


def verdict(status: Status) -> str:
    """Return whether Antrea is ready, and what it lacks."""
    if not status.programs:
        return "not installed"
    lacks = [lack for program in status.programs if (lack := program.lack())]
    if errors := sum(row.severity == "error" for row in status.findings):
        lacks.append(f"{errors} error{'s' if errors > 1 else ''}")
    return f"not ready: {', '.join(lacks)}" if lacks else "ready"


def _blocks(status: Status) -> Iterator[str]:
    yield f"Antrea: {verdict(status)}\n"
    if status.programs:
        rows = [program._asdict() for program in status.programs]
        yield "\n" + table(rows, PROGRAM_COLUMNS, ordered=False)
    agents = ", ".join(f"{version} ({count})" for version, count in sorted(status.agent_versions.items()))
    yield f"\nVersions: antctl v{VERSION}, controller {status.controller_version or 'unreported'}, agents {agents or 'unreported'}\n"
    yield f"Reports: {status.reporting} of {status.agents} agents have reported within {MAX_AGE:.0f} s\n"
    yield f"Pods: {status.connected_pods} connected by agents\n"
    for program, gates in status.gates.items():
        yield f"Feature gates of the {program}: {', '.join(f'{name}={str(on).lower()}' for name, on in gates.items())}\n"
    if status.findings:
        yield f"\n{blocks(status.findings)}"
    else:
        yield "Errors and warnings: none\n"


def as_tree(status: Status) -> dict[str, Any]:
    """Return the status as JSON has it."""
    return {
        "ready": status.is_ready,
        "namespace": status.namespace,
        "programs": [program._asdict() for program in status.programs],
        "versions": {
            "antctl": f"v{VERSION}",
            "controller": status.controller_version,
            "agents": dict(status.agent_versions),
        },
        "agents": status.agents,
        "reportingAgents": status.reporting,
        "connectedPods": status.connected_pods,
        "featureGates": {program: dict(gates) for program, gates in status.gates.items()},
        "findings": [as_row(row) for row in status.findings],
    }
