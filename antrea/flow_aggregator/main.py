"""antrea-flow-aggregator: takes the records of agents, joins those of both Nodes, and passes them on until it is terminated."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from antrea import VERSION
from antrea.apis.core import ObjectReference
from antrea.errors import AntreaError, Invalid
from antrea.flow_aggregator.aggregator import Aggregator
from antrea.flow_aggregator.cluster_identity import ClusterIdentity
from antrea.flow_aggregator.configuration import ConfigurationFile
from antrea.outside.http.loopback_token import TOKEN_FILE
from antrea.outside.kube.client import Kube
from antrea.outside.kube.environment import own_namespace
from antrea.outside.kube.event_recorder import EventQueue, EventRecorder
from antrea.outside.log import klog
from antrea.outside.pflag import GoCommand, config_option, token_file_option
from antrea.outside.reload.supervisor import asked_to_end

if TYPE_CHECKING:
    from pathlib import Path

    from antrea.config.flow_aggregator import FlowAggregatorConfig

log = klog.logger(__name__)

CONFIG_MAP: Final = "flow-aggregator-configmap"
EVENT_SECONDS: Final = 10.0
"""For the Event on a configuration with which the program cannot start."""


async def run(path: Path, token_file: Path, kubeconfig: str = "") -> None:
    """Run until SIGTERM or SIGINT, through changes of the file. Raises Invalid, Unavailable."""
    log.info("Starting antrea-flow-aggregator", version=VERSION)
    about = ObjectReference(api_version="v1", kind="ConfigMap", namespace=own_namespace(), name=CONFIG_MAP)
    recorder = EventRecorder(about, "flow-aggregator")
    async with contextlib.AsyncExitStack() as last:
        kube: Kube | None = None
        if kubeconfig or os.environ.get("KUBERNETES_SERVICE_HOST"):
            kube = await last.enter_async_context(Kube.connect(kubeconfig))
        events = EventQueue(recorder)
        try:
            file = ConfigurationFile(path, events)
        except Invalid as error:
            if kube:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(EVENT_SECONDS):
                        await recorder.warn(
                            kube, "ConfigRejected", f"{error}; the flow aggregator does not start"
                        )
            raise
        recording = asyncio.create_task(events.run(kube), name="Events")
        try:
            await _through_changes(file, token_file, kubeconfig)
        finally:
            recording.cancel()
            await asyncio.gather(recording, return_exceptions=True)


async def _through_changes(file: ConfigurationFile, token_file: Path, kubeconfig: str) -> None:
    end = asked_to_end()
    identity = ClusterIdentity(kubeconfig)
    if not file.config.cluster_id:
        await identity.settle()
    while not end.is_set():
        aggregator = Aggregator(
            identity.named(file.config), token_file, kubeconfig,
            more_metrics=lambda: file.metrics, rejected=lambda: file.rejected,
        )  # fmt: skip
        tasks = [
            asyncio.create_task(aggregator.run(), name="aggregator"),
            asyncio.create_task(file.follow(partial(_change, aggregator, identity)), name="configuration"),
            asyncio.create_task(end.wait(), name="signals"),
        ]
        if not (file.config.cluster_id or identity.is_settled):
            tasks.append(asyncio.create_task(identity.read(), name="cluster identity"))
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
        if not end.is_set():
            log.info("Starting anew with the changed configuration")
    log.info("Stopping antrea-flow-aggregator")


async def _change(aggregator: Aggregator, identity: ClusterIdentity, config: FlowAggregatorConfig) -> bool:
    return await aggregator.change(identity.named(config))


@click.command(cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@config_option("/etc/flow-aggregator/flow-aggregator.conf")
@token_file_option(TOKEN_FILE)
@click.option(
    "--kubeconfig",
    default="",
    help="kubeconfig file, outside of a Pod; certificates for tls are kept in the cluster",
)
@klog.flags
def main(path: Path, token_file: Path, kubeconfig: str, *, log: klog.Options) -> None:
    """Join and pass on flow records."""
    klog.start(log, "antrea-flow-aggregator")
    try:
        asyncio.run(run(path, token_file, kubeconfig))
    except* AntreaError as error:
        click.echo(f"antrea-flow-aggregator: {error.exceptions[0]}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
