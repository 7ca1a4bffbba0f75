"""The agent: reads its configuration, prepares the Node, then runs feeds, engine and servers until it is told to end."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from antrea.agent.assembly import Agent
from antrea.agent.news import Node, listen
from antrea.agent.sole import sole_agent
from antrea.config.agent import AgentConfig
from antrea.errors import AntreaError, Invalid
from antrea.features.accept import accept_agent
from antrea.outside import klog
from antrea.outside.configuration import Configuration
from antrea.outside.kube import Kube

if TYPE_CHECKING:
    from antrea.agent.news import AgentConfiguration
    from antrea.features.gate import EnabledGates

log = klog.logger(__name__)
KEPT = Path("/var/run/antrea/antrea-agent.conf.good")
"""The last configuration that worked."""
PROOF_SECONDS = 30
"""How long a changed configuration may take to make the Node's network stand, before it is taken back."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    default=Path("/etc/antrea/antrea-agent.conf"),
    show_default=True,
    help="configuration file",
)
@klog.flags
def main(path: Path, log: klog.Options) -> None:
    """Connect the Pods of this Node."""
    klog.start(log, "antrea-agent")
    try:
        configuration = Configuration(AgentConfig, _accept, path, KEPT)
        with sole_agent(Path(configuration.now.config.cni_socket).parent):
            asyncio.run(run(configuration))
    except AntreaError as no:
        click.echo(f"antrea-agent: {no}", err=True)
        sys.exit(1)


def _accept(config: AgentConfig) -> EnabledGates:
    free = os.environ.get("ALLOW_NO_ENCAP_WITHOUT_ANTREA_PROXY") == "true"
    return accept_agent(config, encap_free_without_proxy=free)


async def run(configuration: AgentConfiguration) -> None:
    """Until SIGTERM or SIGINT; flows, routes and ports stay, so that packets go on while the next agent starts.

    A configuration that changes ends one agent and starts the next in this process, for which the same holds.
    """
    asked_to_end = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked_to_end.set)
    while not asked_to_end.is_set():
        try:
            async with _kube(configuration.now.config) as kube:
                await _until_changed(Node(kube, _node_name()), configuration, asked_to_end)
        except Invalid as no:
            if not configuration.fails(no):
                raise
            # the next agent makes an Event of it
            log.error("The configuration does not work, the one before goes on", error=no)
        # the engine keeps the collector away from what lives as long as its agent: that one has ended
        gc.unfreeze()
        gc.collect()
    log.info("Stopping antrea-agent")


def _node_name() -> str:
    return os.environ.get("NODE_NAME") or socket.gethostname()


def _kube(config: AgentConfig) -> Kube:
    path = config.client_connection.kubeconfig
    override = config.kube_api_server_override
    return Kube.from_kubeconfig(path, override) if path else Kube.in_cluster(override)


async def _until_changed(node: Node, configuration: AgentConfiguration, asked_to_end: asyncio.Event) -> None:
    """Run one agent until the configuration changes, or all is to end. Raises what ended it."""
    agent = Agent(configuration, node.kube, node.name)
    work = asyncio.create_task(_work(agent), name="agent")
    tasks = {
        work,
        asyncio.create_task(listen(node, configuration), name="configuration"),
        asyncio.create_task(_prove(agent, configuration), name="proof of the configuration"),
        asyncio.create_task(asked_to_end.wait(), name="signal"),
    }
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


async def _prove(agent: Agent, configuration: AgentConfiguration) -> None:
    """Keep a configuration that works. Raises Invalid where a changed one does not within PROOF_SECONDS."""
    try:
        async with asyncio.timeout(PROOF_SECONDS if configuration.is_new else None):
            await agent.ready.wait()
    except TimeoutError as why:
        waits = f"after {PROOF_SECONDS} s the agent still waits for {agent.ready.waiting}"
        raise Invalid(AgentConfig.file, waits) from why
    configuration.works()
    await asyncio.Event().wait()


async def _work(agent: Agent) -> None:
    """Raises what ended it, if that is one of our sentences, else the group that a bug is in."""
    try:
        await agent.run()
    except BaseExceptionGroup as group:
        ours, bugs = group.split(AntreaError)
        if ours is None or bugs is not None:
            raise
        raise _first(ours) from group


def _first(group: BaseExceptionGroup[AntreaError]) -> AntreaError:
    """What went wrong first; the rest was cancelled, or follows from it."""
    found = group.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found


if __name__ == "__main__":
    main()
