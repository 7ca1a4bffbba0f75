"""The controller: reads its configuration, starts the API server process, and computes until it is terminated."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from antrea import VERSION
from antrea.apis.core import ObjectReference
from antrea.config.controller import ControllerConfig
from antrea.controller.apiserver.feature_gates import compare_files
from antrea.controller.apiserver.ipc import Start
from antrea.controller.apiserver.process import ApiServerProcess, publish_empty
from antrea.controller.apiserver.traffic_statistics import COUNTED
from antrea.controller.compute.runtime import Computation, active, folders_on, published
from antrea.controller.leader.replica import Replica, replica
from antrea.controller.managed.agent_infos import AgentInfos
from antrea.controller.managed.certificates import PROVIDED, PROVIDED_SECONDS, provided
from antrea.controller.managed.controller_info import ControllerInfo
from antrea.controller.managed.runtime import keep_managed_objects, served_files
from antrea.engine import Facts
from antrea.engine.core import IMPLEMENTATION
from antrea.errors import AntreaError
from antrea.features.framework.admission import wanted_gates
from antrea.features.framework.config_validation import accept_controller
from antrea.features.framework.controller_part import ControllerContext, make_parts
from antrea.features.framework.gate import statuses
from antrea.outside.http.loopback_token import TOKEN_FILE
from antrea.outside.isolation import Isolation
from antrea.outside.kube.client import Kube
from antrea.outside.kube.environment import own_config_map, own_namespace
from antrea.outside.kube.event_recorder import EventRecorder
from antrea.outside.listener.listening_socket import SharedListener
from antrea.outside.log import klog
from antrea.outside.pflag import GoCommand, config_option, token_file_option
from antrea.outside.reload.configuration import Configuration
from antrea.outside.reload.correction import Correction, configured
from antrea.outside.reload.supervisor import PROOF_SECONDS, Running, asked_to_end, through_changes

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from antrea.features.framework.gate import EnabledGates

    ControllerConfiguration = Configuration[ControllerConfig, EnabledGates]

log = klog.logger(__name__)
WEBHOOK_CLIENTS = "WEBHOOK_CLIENTS"
"""Environment: common names of the client certificates that kube-apiserver shows to webhooks, if it is configured to."""


class Places(msgspec.Struct, frozen=True):
    """Resources that do not depend on the configuration: files, and the listening socket."""

    token: Path
    certificates: Path | None = None
    """Directory of the serving certificate; None: the one that selfSignedCert stands for."""
    elect: bool = False
    """Whether there are other replicas, of which one leads."""
    listener: SharedListener = msgspec.field(default_factory=SharedListener)
    """Listener that outlives a server: clients that connect while a changed configuration takes effect wait for the next server."""


@click.command(cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@config_option("/etc/antrea/antrea-controller.conf")
@token_file_option(TOKEN_FILE)
@click.option(
    "--certificate-dir",
    type=click.Path(path_type=Path),
    help="directory of the serving certificate, instead of the one that selfSignedCert stands for",
)
@click.option(
    "--leader-elect",
    is_flag=True,
    help="there are other replicas: write only while the Lease says that this one leads",
)
@klog.flags
def main(
    path: Path, token_file: Path, certificate_dir: Path | None, *, leader_elect: bool, log: klog.Options
) -> None:
    """Compute what agents need to know."""
    klog.start(log, "antrea-controller")
    try:
        kept = token_file.with_name(f"{ControllerConfig.file}.good")
        configuration = configured(
            lambda corrected: Configuration(
                ControllerConfig, accept_controller, path, kept, compare_files, corrected=corrected
            ),
            Correction(ControllerConfig, accept_controller, path, _recorder()),
        )
        if configuration is not None:
            asyncio.run(run(configuration, Places(token_file, certificate_dir, leader_elect)))
    except AntreaError as error:
        click.echo(f"antrea-controller: {error}", err=True)
        sys.exit(1)


async def run(configuration: ControllerConfiguration, places: Places) -> None:
    """Run until SIGTERM or SIGINT. Raises Invalid, Unavailable if the API cannot be served or its process has ended."""
    log.info("Starting antrea-controller", version=VERSION, engine=IMPLEMENTATION)

    def start() -> Running:
        kube, moments = _kube(configuration.now.config), Moments(asyncio.Event(), asyncio.Event())
        self_signed = configuration.now.config.self_signed_cert or kube is None
        return Running(
            _work(configuration, kube, places, moments),
            moments.works.wait,
            lambda: "the process that serves",
            kube,
            moments.heard.set,
            # longer than the wait for a certificate, which ends with a word on what is missing
            patience=PROOF_SECONDS if self_signed else PROOF_SECONDS + PROVIDED_SECONDS,
        )

    with contextlib.closing(places.listener):
        await through_changes(configuration, start, _recorder(), asked_to_end())
    log.info("Stopping antrea-controller")


def _recorder() -> EventRecorder:
    """Return the recorder of Events on the ConfigMap of the configuration."""
    about = ObjectReference(
        api_version="v1", kind="ConfigMap", namespace=own_namespace(), name=own_config_map()
    )
    return EventRecorder(about, "antrea-controller")


class Moments(NamedTuple):
    """Events in the life of a controller."""

    works: asyncio.Event
    """Its API is served."""
    heard: asyncio.Event
    """There is a new text of its configuration."""


async def _work(
    configuration: ControllerConfiguration, kube: Kube | None, places: Places, moments: Moments
) -> None:
    """Run until cancelled. Raises Invalid, Unavailable."""
    config, gates = configuration.now.same_for_the_program
    wanted = wanted_gates(config.feature_gates)
    features = active(wanted) if kube else ()
    facts = Facts()
    front = ApiServerProcess(facts, places.listener)
    ours = replica(kube, elect=places.elect, namespace=own_namespace(), port=config.api_port)
    async with kube or contextlib.nullcontext(), ours.kube or contextlib.nullcontext():
        publisher = await front.start(start_frame(config, gates, places))
        try:
            publish_empty(publisher, but=published(features) | COUNTED)
            async with asyncio.TaskGroup() as tasks:
                ours.publish_to(publisher)
                info = ControllerInfo(
                    front, publisher, ours, f"v{VERSION}", lambda: configuration.now.rejected, moments.heard
                )
                if ours.kube:
                    context = ControllerContext(
                        config=config, gates=wanted, facts=facts, kube=ours.kube, lead=ours.lead,
                        namespace=own_namespace(),
                    )  # fmt: skip
                    parts = (*make_parts(context, folders_on(wanted)), AgentInfos(context))
                    alone = Isolation(moments.heard.set)
                    computation = Computation(features, facts, ours, publisher, parts, alone)
                    info.counts, info.failed = computation.counts, alone.failed
                    info.refused, front.metrics = facts.feeds.refused, computation.metrics
                    front.catch_up = lambda: ours.now(computation.caught_up)
                    tasks.create_task(computation.run(), name="computing")
                for work in (front.run(), info.run(), *_managed(config, ours, places)):
                    tasks.create_task(work)
                if ours.kube and not config.self_signed_cert:
                    await provided(places.certificates or PROVIDED)
                moments.works.set()
        finally:
            await front.stop()


def _managed(config: ControllerConfig, ours: Replica, places: Places) -> list[Coroutine[Any, Any, None]]:
    """Return the tasks that write to the API server, if there is one."""
    kube, lead = ours.kube, ours.lead
    if kube is None:
        return []
    self_signed, directory = config.self_signed_cert, places.certificates
    return [
        *([ours.election.run()] if ours.election else []),
        keep_managed_objects(kube, lead, own_namespace(), self_signed=self_signed, directory=directory),
    ]


def _kube(config: ControllerConfig) -> Kube | None:
    """None outside a Pod without a kubeconfig; the API server process logs that. Raises Invalid for a bad kubeconfig."""
    path, override = config.client_connection.kubeconfig, config.kube_api_server_override
    if not path and not override and not os.environ.get("KUBERNETES_SERVICE_HOST"):
        return None
    return Kube.connect(path, override)


def start_frame(config: ControllerConfig, gates: EnabledGates, places: Places) -> Start:
    """Return the settings with which the serving process starts."""
    certificate, key = served_files(self_signed=config.self_signed_cert)
    if places.certificates:
        certificate = places.certificates / certificate.name
        key = places.certificates / key.name if key else None
    return Start(
        port=config.api_port,
        token_file=str(places.token),
        verbosity=klog.verbosity(),
        gates=tuple(statuses(gates)),
        certificate_file=str(certificate),
        key_file=str(key or ""),
        namespace=own_namespace(),
        service_account=os.environ.get("SERVICEACCOUNT_NAME", "antrea-controller"),
        feature_gates=config.feature_gates,
        tls_min_version=config.tls_min_version,
        tls_cipher_suites=config.tls_cipher_suites,
        client_ca_file=config.client_ca_file,
        kubeconfig=config.client_connection.kubeconfig,
        kube_override=config.kube_api_server_override,
        metrics=config.enable_prometheus_metrics,
        ca_file=str(certificate.with_name("ca.crt") if key else certificate),
        elected=places.elect,
        webhook_clients=tuple(filter(None, os.environ.get(WEBHOOK_CLIENTS, "").split(","))),
    )


if __name__ == "__main__":
    main()
