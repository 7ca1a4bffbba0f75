"""The agent: reads its configuration, prepares the Node, then runs feeds, engine and servers until it is told to end."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from antrea.agent.api_server import certificate
from antrea.agent.assembly import Agent
from antrea.agent.node_events import node_voice
from antrea.agent.sole import sole_agent
from antrea.config.agent import AgentConfig
from antrea.errors import AntreaError
from antrea.features.accept import accept_agent
from antrea.outside import klog
from antrea.outside.configuration import Configuration
from antrea.outside.kube import Kube
from antrea.outside.reload import Running, asked_to_end, through_changes

if TYPE_CHECKING:
    from antrea.agent.assembly import AgentConfiguration
    from antrea.features.gate import EnabledGates

log = klog.logger(__name__)
KEPT = Path("/var/run/antrea/antrea-agent.conf.good")
"""The last configuration that worked, in a Pod; else it is beside the file."""

WAY = ("client_connection", "kube_api_server_override")
"""What says where kube-apiserver is."""


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
        kept = KEPT if os.environ.get("POD_NAMESPACE") else path.with_name(f"{path.name}.good")
        configuration = Configuration(AgentConfig, _accept, path, kept)
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

    What this Node held for others goes to another one if it is to do without an agent (antrea.agent.handover).

    A configuration that changes ends one agent and starts the next in this process, for which the same holds.
    """
    node, pair = os.environ.get("NODE_NAME") or socket.gethostname(), certificate()

    def start() -> Running:
        config = configuration.now.config
        kube = Kube.connect(config.client_connection.kubeconfig, config.kube_api_server_override)
        agent = Agent(configuration, kube, node, pair)
        return Running(
            _work(kube, agent),
            agent.ready.wait,
            lambda: agent.ready.waiting,
            kube,
            farewell=agent.egress.handover.farewell,
            blameless=lambda: agent.ready.is_outside and configuration.keeps(*WAY),
        )

    await through_changes(configuration, start, node_voice(node), asked_to_end())
    log.info("Stopping antrea-agent")


async def _work(kube: Kube, agent: Agent) -> None:
    async with kube:
        await agent.run()


if __name__ == "__main__":
    main()
