"""The agent: reads its configuration, prepares the Node, then runs feeds, engine and servers until it is told to end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from antrea.agent.assembly import Agent
from antrea.agent.node_events import warn
from antrea.agent.sole import sole_agent
from antrea.config.agent import AgentConfig
from antrea.config.load import Loaded, load
from antrea.errors import AntreaError
from antrea.features.accept import accept_agent
from antrea.outside import klog
from antrea.outside.kube import Kube

if TYPE_CHECKING:
    from antrea.features.gate import EnabledGates

log = klog.logger(__name__)


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
        loaded = load(AgentConfig, path)
        gates = accept_agent(
            loaded.config,
            encap_free_without_proxy=os.environ.get("ALLOW_NO_ENCAP_WITHOUT_ANTREA_PROXY") == "true",
        )
        with sole_agent(Path(loaded.config.cni_socket).parent):
            asyncio.run(run(loaded, gates))
    except AntreaError as no:
        click.echo(f"antrea-agent: {no}", err=True)
        sys.exit(1)


async def run(loaded: Loaded[AgentConfig], gates: EnabledGates) -> None:
    """Until SIGTERM or SIGINT; flows, routes and ports stay, so that packets go on while the next agent starts."""
    config = loaded.config
    name = os.environ.get("NODE_NAME") or socket.gethostname()
    asked_to_end = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked_to_end.set)
    async with _kube(config) as kube:
        work = asyncio.create_task(_work(kube, loaded, gates, name), name="agent")
        end = asyncio.create_task(asked_to_end.wait(), name="signal")
        done, _ = await asyncio.wait({work, end}, return_when=asyncio.FIRST_COMPLETED)
        for task in (work, end):
            task.cancel()
        await asyncio.gather(work, end, return_exceptions=True)
        if work in done:
            work.result()
        log.info("Stopping antrea-agent")


def _kube(config: AgentConfig) -> Kube:
    path = config.client_connection.kubeconfig
    override = config.kube_api_server_override
    return Kube.from_kubeconfig(path, override) if path else Kube.in_cluster(override)


async def _work(kube: Kube, loaded: Loaded[AgentConfig], gates: EnabledGates, name: str) -> None:
    """Raises what ended it, if that is one of our sentences, else the group that a bug is in."""
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_tell_unknown_keys(kube, loaded, name), name="Events of configuration")
            tasks.create_task(Agent(loaded.config, gates, kube, name).run(), name="agent")
    except BaseExceptionGroup as group:
        ours, bugs = group.split(AntreaError)
        if ours is None or bugs is not None:
            raise
        raise _first(ours) from group


def _first(group: BaseExceptionGroup[AntreaError]) -> AntreaError:
    """What went wrong first; the rest was cancelled, or follows from it."""
    found = group.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found


async def _tell_unknown_keys(kube: Kube, loaded: Loaded[AgentConfig], name: str) -> None:
    """Where the user looks: the log and an Event on the Node."""
    for key in loaded.unknown:
        log.warning(
            "The configuration has a key that is not read", file=loaded.config.file, problem=key.sentence
        )
        await warn(kube, name, "UnknownConfigKey", f"{loaded.config.file}: {key.sentence}")


if __name__ == "__main__":
    main()
