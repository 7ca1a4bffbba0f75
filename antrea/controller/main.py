"""The controller: reads its configuration, starts the process that serves, and computes until it is told to end."""

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
from antrea.controller.agent_infos import AgentInfos
from antrea.controller.certificates import PROVIDED, PROVIDED_SECONDS, provided
from antrea.controller.compute import Computation, active, published
from antrea.controller.front_process import FrontProcess, publish_empty
from antrea.controller.info import ControllerInfo
from antrea.controller.replica import Replica, replica
from antrea.controller.traffic_counts import COUNTED
from antrea.controller.upkeep import served_files, upkeep
from antrea.controller.wire import Start
from antrea.engine import Facts
from antrea.errors import AntreaError
from antrea.features.accept import accept_controller
from antrea.features.admission import wanted_gates
from antrea.features.gate import statuses
from antrea.outside import klog
from antrea.outside.configuration import Configuration
from antrea.outside.environment import own_config_map, own_namespace
from antrea.outside.kube import Kube
from antrea.outside.loopback_token import TOKEN_FILE
from antrea.outside.reload import PROOF_SECONDS, Running, asked_to_end, through_changes
from antrea.outside.voice import Voice

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from antrea.features.gate import EnabledGates

    ControllerConfiguration = Configuration[ControllerConfig, EnabledGates]

log = klog.logger(__name__)


class Places(msgspec.Struct, frozen=True):
    """Files of this process."""

    token: Path
    certificates: Path | None = None
    """Directory of the serving certificate; None: the one that selfSignedCert stands for."""
    elect: bool = False
    """Whether there are other replicas, of which one leads."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    default=Path("/etc/antrea/antrea-controller.conf"),
    show_default=True,
    help="configuration file",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    default=TOKEN_FILE,
    show_default=True,
    help="where the token of antctl in this Pod is written",
)
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
        configuration = Configuration(ControllerConfig, accept_controller, path, kept)
        asyncio.run(run(configuration, Places(token_file, certificate_dir, leader_elect)))
    except AntreaError as no:
        click.echo(f"antrea-controller: {no}", err=True)
        sys.exit(1)


async def run(configuration: ControllerConfiguration, places: Places) -> None:
    """Until SIGTERM or SIGINT. Raises Invalid, Unavailable if the API cannot be served or its process has ended."""
    log.info("Starting antrea-controller", version=VERSION)

    def start() -> Running:
        kube, moments = _kube(configuration.now.config), Moments(asyncio.Event(), asyncio.Event())
        own = configuration.now.config.self_signed_cert or kube is None
        return Running(
            _work(configuration, kube, places, moments),
            moments.works.wait,
            lambda: "the process that serves",
            kube,
            moments.heard.set,
            # longer than the wait for a certificate, which ends with a word on what is missing
            patience=PROOF_SECONDS if own else PROOF_SECONDS + PROVIDED_SECONDS,
        )

    about = ObjectReference(
        api_version="v1", kind="ConfigMap", namespace=own_namespace(), name=own_config_map()
    )
    await through_changes(configuration, start, Voice(about, "antrea-controller"), asked_to_end())
    log.info("Stopping antrea-controller")


class Moments(NamedTuple):
    """What happens to one controller."""

    works: asyncio.Event
    """Its API is served."""
    heard: asyncio.Event
    """There is a new text of its configuration."""


async def _work(
    configuration: ControllerConfiguration, kube: Kube | None, places: Places, moments: Moments
) -> None:
    """Until cancelled. Raises Invalid, Unavailable."""
    config, gates = configuration.now.same_for_the_program
    features = active(wanted_gates(config.feature_gates)) if kube else ()
    facts = Facts()
    front = FrontProcess(facts)
    ours = replica(kube, elect=places.elect, namespace=own_namespace(), port=config.api_port)
    async with kube or contextlib.nullcontext(), ours.kube or contextlib.nullcontext():
        publisher = await front.start(start_frame(config, gates, places))
        try:
            publish_empty(publisher, but=published(features) | COUNTED)
            async with asyncio.TaskGroup() as tasks:
                ours.tells(publisher)
                info = ControllerInfo(
                    front, publisher, ours, f"v{VERSION}", lambda: configuration.now.rejected, moments.heard
                )
                if ours.kube:
                    computation = Computation(features, facts, ours, publisher)
                    info.counts, front.metrics = computation.counts, computation.metrics
                    front.catch_up = lambda: ours.now(computation.caught_up)
                    tasks.create_task(computation.run(), name="computing")
                for part in (front.run(), info.run(), *_parts(config, ours, places)):
                    tasks.create_task(part)
                if ours.kube and not config.self_signed_cert:
                    await provided(places.certificates or PROVIDED)
                moments.works.set()
        finally:
            await front.stop()


def _parts(config: ControllerConfig, ours: Replica, places: Places) -> list[Coroutine[Any, Any, None]]:
    """What writes to the API server, if there is one."""
    kube, lead = ours.kube, ours.lead
    if kube is None:
        return []
    tiers = "AntreaPolicy" in wanted_gates(config.feature_gates)
    own, directory = config.self_signed_cert, places.certificates
    return [
        *([ours.election.run()] if ours.election else []),
        lead.meanwhile(lambda: AgentInfos(kube).run()),
        upkeep(kube, lead, own_namespace(), self_signed=own, tiers=tiers, directory=directory),
    ]


def _kube(config: ControllerConfig) -> Kube | None:
    """None if this is no Pod and no kubeconfig is named; the front says so. Raises Invalid for a bad kubeconfig."""
    path, override = config.client_connection.kubeconfig, config.kube_api_server_override
    if not path and not override and not os.environ.get("KUBERNETES_SERVICE_HOST"):
        return None
    return Kube.connect(path, override)


def start_frame(config: ControllerConfig, gates: EnabledGates, places: Places) -> Start:
    """What the front needs to know."""
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
    )


if __name__ == "__main__":
    main()
