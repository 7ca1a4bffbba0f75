"""`antctl doctor`: in an agent's container its Node, from a workstation every Node, by the doctors of their agents."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import click

from antrea.antctl.doctor.agent_gates import CHECK as AGENT_GATES
from antrea.antctl.doctor.agent_gates import agent_gates
from antrea.antctl.doctor.checks import CHECKS, controller, findings, pod_mtus
from antrea.antctl.doctor.flow_aggregator import CHECK as FLOW_AGGREGATOR
from antrea.antctl.doctor.flow_aggregator import flow_aggregator
from antrea.antctl.doctor.node_latency import CHECK as NODE_LATENCY
from antrea.antctl.doctor.node_latency import node_latency
from antrea.antctl.doctor.objects import KINDS, objects
from antrea.antctl.doctor.policies import CHECK as POLICIES
from antrea.antctl.doctor.policies import policies
from antrea.antctl.doctor.state import Finding
from antrea.antctl.doctor.workloads import CHECK as WORKLOADS
from antrea.antctl.doctor.workloads import workloads
from antrea.antctl.failure import Failure
from antrea.antctl.group import HELP
from antrea.antctl.mode import AGENT
from antrea.antctl.output import render
from antrea.antctl.pod_exec import run_in_pod
from antrea.antctl.remote import AGENT_INFOS, CONTROLLER_INFO, cluster
from antrea.antctl.request import ErrorResponse, Server, ask
from antrea.decoding import guarded
from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from antrea.antctl.main import Target
    from antrea.antctl.output import Column

MAX_CONCURRENT = 8
"""Nodes that are looked at at the same time."""
NODE_SECONDS = 60.0
AGENT_PODS = "app=antrea,component=antrea-agent"


def _cell(field: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: str(row[field])


COLUMNS: tuple[Column, ...] = tuple((field.upper(), _cell(field)) for field in Finding._fields)
OF_CLUSTER = (POLICIES, *KINDS, AGENT_GATES, WORKLOADS, NODE_LATENCY, FLOW_AGGREGATOR)
"""Checks without a Node."""
TEXT = f"""Find leftovers and conflicts on Nodes, and the command that repairs each: {", ".join((*CHECKS, *OF_CLUSTER))}.

In the agent's container it looks at that Node, from a workstation at all Nodes or at those that are named.
Commands are for a root shell of the Node, unless they begin with kubectl. Exit code 1: something was found."""


def command() -> click.Command:
    """The command `doctor`."""
    return click.Command(
        "doctor",
        context_settings=HELP,
        params=[
            click.Argument(["nodes"], nargs=-1, metavar="[NODE]..."),
            click.Option(
                ["-o", "--output"],
                default="table",
                show_default=True,
                type=click.Choice(["table", "json", "yaml"]),
                help="output format",
            ),
        ],
        callback=_callback,
        short_help="Find leftovers and conflicts on Nodes, and how to repair them",
        help=TEXT,
    )


def _callback(nodes: tuple[str, ...], output: str) -> None:
    context = click.get_current_context()
    target: Target = context.obj
    if target.mode is AGENT:
        if nodes:
            raise Failure("Nodes can be named in remote mode only; here it is this Node")
        looked, found, checks = 1, this_node(target, os.environ), len(CHECKS)
    else:
        looked, found = all_nodes(target.find(), nodes)
        checks = len(CHECKS) + (0 if nodes else len(OF_CLUSTER))
    rows = [row._asdict() for row in found]
    if rows or output != "table":
        click.echo(render(rows, output, COLUMNS, ordered=True), nl=False)
    else:
        click.echo(f"Nothing found by {checks} checks on {looked} Node{'' if looked == 1 else 's'}.")
    if rows:
        context.exit(1)


def this_node(target: Target, environ: Mapping[str, str]) -> list[Finding]:
    """What is wrong with the Node of this container."""
    from antrea.antctl.doctor.gather import gather  # noqa: PLC0415 (start-up time)

    def kubernetes(config: Mapping[str, Any]) -> Server:
        override = config.get("kubeAPIServerOverride") or None
        return Server(cluster(target.kubeconfig, override), target.seconds or 10.0, target.verbose)

    return findings(gather(target.find(), kubernetes, environ))


def all_nodes(kubernetes: Server, names: Sequence[str]) -> tuple[int, list[Finding]]:
    """How many Nodes were looked at, and what is wrong with them. Raises Failure."""
    listed = ask(kubernetes, "/api/v1/pods", {"labelSelector": AGENT_PODS})["items"]
    pods = {pod["spec"].get("nodeName", ""): pod for pod in listed if pod["spec"].get("nodeName")}
    if missing := sorted(set(names) - set(pods)):
        raise Failure(f"no agent runs on Node {', '.join(missing)}")
    if not pods:
        raise Failure("no agents found: is Antrea installed?")
    chosen = {node: pod for node, pod in pods.items() if not names or node in names}
    with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
        told = pool.map(lambda row: _ask_agent(kubernetes, *row), chosen.items())
    found = [finding for one in told for finding in one]
    infos = ask(kubernetes, AGENT_INFOS, {})["items"]
    found += [finding for finding in pod_mtus(infos) if finding.node in chosen]
    found += [] if names else _of_cluster(kubernetes, pods)
    return len(chosen), [*found, *_controller(kubernetes, set(names))]


def _of_cluster(kubernetes: Server, pods: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """Findings without a Node; `pods` are agents by Node. Raises Failure."""
    yield from policies(kubernetes)
    gated = agent_gates(kubernetes, pods)
    yield from objects(kubernetes, gated.named)
    yield from gated.findings
    yield from workloads(kubernetes)
    yield from node_latency(kubernetes, [] if "NodeLatencyMonitor" in gated.kinds else sorted(pods))
    yield from flow_aggregator(kubernetes)


def _controller(kubernetes: Server, names: set[str]) -> Iterator[Finding]:
    """What is wrong with the controller, if its Node is among `names` or these are none. Raises Failure."""
    try:
        info = ask(kubernetes, CONTROLLER_INFO, {})
    except ErrorResponse as error:
        if error.status != 404:
            raise
        return
    yield from (row for row in controller(info) if not names or row.node in names)


def _findings(text: str) -> list[Finding]:
    return [Finding(**row) for row in json.loads(text)]


def _ask_agent(kubernetes: Server, node: str, pod: Mapping[str, Any]) -> list[Finding]:
    """Findings of the doctor in the agent's container; a failure to run it is a finding."""
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    words = ("antctl", "doctor", "-o", "json")
    try:
        done = run_in_pod(
            *(kubernetes, f"{namespace}/{name}", words), container="antrea-agent", seconds=NODE_SECONDS
        )
        if done.code not in (0, 1) or not done.stdout.startswith("["):
            raise Failure(done.stderr.strip() or f"exit code {done.code}")
        return guarded("its answer", _findings, done.stdout)
    except (Failure, Invalid) as error:
        words_of = error.format_message() if isinstance(error, Failure) else str(error)
        told = f"the doctor in Pod {namespace}/{name} cannot be asked: {words_of}"
        return [
            Finding(node, "unknown", "agent", told, f"kubectl -n {namespace} logs {name} -c antrea-agent")
        ]
