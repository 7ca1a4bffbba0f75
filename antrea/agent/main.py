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
from antrea.agent.bootstrap import Prepared, prepare
from antrea.agent.nodes import own_node
from antrea.apis.core import ObjectReference
from antrea.config.agent import AgentConfig
from antrea.config.load import Loaded, load
from antrea.errors import AntreaError, Invalid, Refused, Unavailable
from antrea.features.accept import accept_agent
from antrea.outside import klog
from antrea.outside.kube import Kube
from antrea.outside.ovsdb import Ovsdb

if TYPE_CHECKING:
    from antrea.features.gate import EnabledGates

log = klog.logger(__name__)

PAUSE_SECONDS = 2.0
"""Between tries of what has to be there at start."""


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
    await _tell_unknown_keys(kube, loaded, name)
    config = loaded.config
    db, prepared = await _prepared(kube, config, name)
    try:
        await Agent(config, gates, kube, db, prepared).run()
    finally:
        await db.close()


async def _tell_unknown_keys(kube: Kube, loaded: Loaded[AgentConfig], name: str) -> None:
    """Where the user looks: the log and an Event on the Node."""
    for key in loaded.unknown:
        log.warning(
            "The configuration has a key that is not read", file=loaded.config.file, problem=key.sentence
        )
        about = ObjectReference(api_version="v1", kind="Node", name=name, uid=name)
        try:
            await kube.create_event(
                about, "UnknownConfigKey", f"{loaded.config.file}: {key.sentence}", warning=True, host=name
            )
        except (Refused, Unavailable) as no:
            log.error("Failed to create an Event", error=no)


async def _prepared(kube: Kube, config: AgentConfig, name: str) -> tuple[Ovsdb, Prepared]:
    """Try until Node, OVS and transport interface are there; what only the user can change ends the program."""
    path = Path(config.ovs_run_dir, "db.sock")
    last = ""
    while True:
        db: Ovsdb | None = None
        try:
            node = await own_node(kube, name)
            db = await Ovsdb.connect(path)
            return db, await prepare(config, node, db)
        except (Unavailable, Refused, Invalid) as no:
            if db is not None:
                await db.close()
            if isinstance(no, Invalid):
                raise
            if str(no) != last:
                log.warning("Waiting to start", **{"for": str(no)})
            last = str(no)
            await asyncio.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main()
