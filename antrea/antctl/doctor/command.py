"""`antctl doctor`: in an agent's container its Node, from a workstation every Node, by the doctors of their agents."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from antrea.antctl.doctor.agent_gates import CHECK as AGENT_GATES
from antrea.antctl.doctor.agent_gates import GatedObjects, agent_gates
from antrea.antctl.doctor.cause import split
from antrea.antctl.doctor.checks import CHECKS, controller, findings, pod_mtus
from antrea.antctl.doctor.control_plane import checks as control_plane
from antrea.antctl.doctor.control_plane.cluster_state import AGENT as AGENT_COMPONENT
from antrea.antctl.doctor.control_plane.cluster_state import collect, read_reports
from antrea.antctl.doctor.control_plane.report import confirmed
from antrea.antctl.doctor.control_plane.rollout import node_of, runs
from antrea.antctl.doctor.flow_aggregator import CHECK as FLOW_AGGREGATOR
from antrea.antctl.doctor.flow_aggregator import flow_aggregator
from antrea.antctl.doctor.metadata import CHECKS as METADATA
from antrea.antctl.doctor.metadata import metadata
from antrea.antctl.doctor.node_latency import CHECK as NODE_LATENCY
from antrea.antctl.doctor.node_latency import node_latency
from antrea.antctl.doctor.objects import KINDS, objects
from antrea.antctl.doctor.policies import CHECK as POLICIES
from antrea.antctl.doctor.policies import policies
from antrea.antctl.doctor.progress import Progress
from antrea.antctl.doctor.rights import CHECK as MISSING_RIGHTS
from antrea.antctl.doctor.rights import CHECKS as RIGHTS
from antrea.antctl.doctor.rights import missing_rights
from antrea.antctl.doctor.state import UNANSWERED, Finding, findings_of
from antrea.antctl.doctor.text import blocks, total
from antrea.antctl.failure import Failure
from antrea.antctl.group import HELP, output_option
from antrea.antctl.mode import AGENT
from antrea.antctl.output import echo, render
from antrea.antctl.pod_exec import run_in_pod
from antrea.antctl.remote import cluster
from antrea.antctl.request import Server
from antrea.apis.shown import one_line
from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from antrea.antctl.doctor.control_plane.cluster_state import ClusterState
    from antrea.antctl.main import Target

MAX_CONCURRENT: Final = 16
"""Agents that are asked at the same time."""
NODE_TIMEOUT: Final = 60.0
"""Seconds for the doctor of one Node."""
REQUEST_TIMEOUT: Final = 10.0
"""Seconds for one request to kube-apiserver, where no option sets another limit."""
AGENT_TIMEOUT: Final = 5.0
"""Seconds for one request to the agent of the same Pod."""

OF_CLUSTER = (
    *control_plane.CHECKS,
    *RIGHTS,
    POLICIES,
    *KINDS,
    AGENT_GATES,
    *METADATA,
    NODE_LATENCY,
    FLOW_AGGREGATOR,
)
"""Checks that are made from a workstation."""
TEXT = f"""Find what is wrong with Antrea, and the command that repairs each: {", ".join((*CHECKS, *OF_CLUSTER))}.

In the agent's container it looks at that Node, from a workstation at the control plane and at all Nodes or those that are
named. Findings that follow from another one are left out; --all shows them. Commands are for a root shell of the Node, unless
they begin with kubectl, helm or antctl. Exit code 1: there are findings."""


def command() -> click.Command:
    """The command `doctor`."""
    return click.Command(
        "doctor",
        context_settings=HELP,
        params=[
            click.Argument(["nodes"], nargs=-1, metavar="[NODE]..."),
            click.Option(
                ["--all", "everything"], is_flag=True, help="also show findings that follow from others"
            ),
            output_option(),
        ],
        callback=_callback,
        short_help="Find what is wrong with Antrea, and how to repair it",
        help=TEXT,
    )


def _callback(nodes: tuple[str, ...], output: str, *, everything: bool) -> None:
    context = click.get_current_context()
    target: Target = context.obj
    if target.mode is AGENT:
        if nodes:
            raise Failure("Nodes can be named in remote mode only; here it is this Node")
        looked, rows, checks = 1, this_node(target, os.environ), len(CHECKS)
    else:
        looked, rows = all_nodes(target.find(), nodes)
        checks = len({*CHECKS, *OF_CLUSTER})
    extent = f"{checks} checks on {looked} Node{'' if looked == 1 else 's'}"
    shown, consequences = split(rows)
    if everything or (target.mode is AGENT and output != "table"):
        # whoever asks all agents tells causes of the cluster from those of a Node
        shown, consequences = [*shown, *consequences], []
    if nodes:
        shown = [row for row in shown if not row.node or row.node in nodes]
    if output != "table":
        echo(render([as_row(row) for row in shown], output, (), ordered=False), nl=False)
    elif shown:
        echo(f"{blocks(shown)}\n{total(shown)} found by {extent}.")
    else:
        echo(f"Nothing found by {extent}.")
    if consequences and shown and output == "table":
        echo(f"{len(consequences)} more follow from these; --all shows them.", err=True)
    if shown:
        context.exit(1)


def as_row(row: Finding) -> dict[str, str]:
    """Return a finding as JSON has it: `peer` only where there is one."""
    return {key: value for key, value in row._asdict().items() if value or key != "peer"}


def this_node(target: Target, environ: Mapping[str, str]) -> list[Finding]:
    """Return the findings about the Node of this container."""
    from antrea.antctl.doctor.gather import gather  # noqa: PLC0415 (start-up time)

    def kubernetes(config: Mapping[str, Any]) -> Server:
        override = target.override._replace(server=str(config.get("kubeAPIServerOverride") or ""))
        return Server(cluster(target.kubeconfig, override), target.seconds or REQUEST_TIMEOUT, target.verbose)

    agent = target.find()
    agent = agent._replace(seconds=agent.seconds or AGENT_TIMEOUT)
    return findings(gather(agent, kubernetes, environ))


def all_nodes(kubernetes: Server, names: Sequence[str]) -> tuple[int, list[Finding]]:
    """Return the number of Nodes, and the findings about them and the control plane. Raises Failure."""
    kubernetes = kubernetes._replace(seconds=kubernetes.seconds or REQUEST_TIMEOUT)
    with Progress() as progress, ThreadPoolExecutor(MAX_CONCURRENT) as pool:

        def answer(name: str, work: Callable[[], list[Finding]]) -> list[Finding]:
            try:
                return work()
            finally:
                progress.done(name)

        progress.begin("kube-apiserver")
        state = confirmed(collect(kubernetes), partial(read_reports, kubernetes), time.sleep)
        progress.done("kube-apiserver")
        pods = _agents(state, names)
        work: dict[str, Callable[[], list[Finding]]] = {
            node: partial(_ask_agent, kubernetes, node, pod) for node, pod in pods.items() if runs(pod)
        }
        if not names:
            work["objects"] = partial(_of_cluster, kubernetes, pods, state.namespace)
            work[MISSING_RIGHTS] = partial(
                _answered, MISSING_RIGHTS, lambda: missing_rights(kubernetes, state)
            )
        for name in work:
            progress.begin(name)
        answers = list(pool.map(answer, work, work.values()))
    rows = [*control_plane.findings(state), *(row for group in answers for row in group)]
    rows += (row for row in pod_mtus(state.agent_infos or (), state.namespace) if row.node in pods)
    rows += controller(state.controller_info or {})
    return len(names) or len(state.nodes or pods), [control_plane.at_owner(state, row) for row in rows]


def _agents(state: ClusterState, names: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Return the agents' Pods by Node. Raises Failure if nothing can be read, nothing is installed, or a name is none of a Node."""
    if state.pods is None and state.daemon_sets is None and state.deployments is None:
        raise Failure(state.unseen["pods"])
    if state.daemon_sets == [] and not state.pods:
        raise Failure("no agents found: is Antrea installed?")
    pods = {node: pod for pod in state.pods_of(AGENT_COMPONENT) if (node := node_of(pod))}
    nodes = {item["metadata"]["name"] for item in state.nodes or ()}
    if missing := sorted(set(names) - set(pods) - nodes):
        raise Failure(f"no agent runs on Node {', '.join(missing)}")
    return {node: pod for node, pod in pods.items() if not names or node in names}


def _of_cluster(kubernetes: Server, pods: Mapping[str, Mapping[str, Any]], namespace: str) -> list[Finding]:
    """Findings of checks that read objects; `pods` are agents by Node. A check that gets no answer is an error."""
    try:
        gated = agent_gates(kubernetes, pods)
    except Failure as error:
        gated = GatedObjects((_unanswered(AGENT_GATES, error),))
    nodes = [] if "NodeLatencyMonitor" in gated.kinds else sorted(pods)
    checks: Mapping[str, Callable[[], Iterable[Finding]]] = {
        POLICIES: lambda: policies(kubernetes, namespace),
        "objects": lambda: objects(kubernetes, gated.named),
        **{check: partial(metadata, kubernetes, check) for check in METADATA},
        NODE_LATENCY: lambda: node_latency(kubernetes, nodes),
        FLOW_AGGREGATOR: lambda: flow_aggregator(kubernetes),
    }
    with ThreadPoolExecutor(len(checks)) as pool:
        groups = pool.map(_answered, checks, checks.values())
        return [*gated.findings, *(row for group in groups for row in group)]


def _answered(check: str, judge: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Findings of a check; that it gets no answer is one, too."""
    try:
        return list(judge())
    except Failure as error:
        return [_unanswered(check, error)]


def _unanswered(check: str, error: Failure) -> Finding:
    return Finding("", "error", check, f"{UNANSWERED}{one_line(error.format_message())}", "")


def _ask_agent(kubernetes: Server, node: str, pod: Mapping[str, Any]) -> list[Finding]:
    """Findings of the doctor in the agent's container; a failure to run it is a finding."""
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    command = ("antctl", "doctor", "-o", "json")
    try:
        done = run_in_pod(
            *(kubernetes, f"{namespace}/{name}", command), container="antrea-agent", seconds=NODE_TIMEOUT
        )
        if done.code not in (0, 1) or not done.stdout.startswith("["):
            raise Failure(done.stderr.strip() or f"exit code {done.code}")
        return findings_of(done.stdout, node)
    except (Failure, Invalid) as error:
        message = error.format_message() if isinstance(error, Failure) else str(error)
        text = f"the doctor in Pod {namespace}/{name} cannot be asked: {message}"
        return [Finding(node, "error", "agent", text, f"kubectl -n {namespace} logs {name} -c antrea-agent")]
