"""The controller: reads its configuration, starts the process that serves, and computes until it is told to end."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from antrea.config.controller import ControllerConfig
from antrea.config.load import Loaded, load
from antrea.controller.agent_infos import AgentInfos
from antrea.controller.front_process import FrontProcess, publish_empty
from antrea.controller.info import ControllerInfo
from antrea.controller.upkeep import served_files, upkeep
from antrea.controller.wire import Start
from antrea.engine import Facts
from antrea.errors import AntreaError
from antrea.features.accept import accept_controller
from antrea.features.admission import wanted_gates
from antrea.features.gate import statuses
from antrea.outside import klog
from antrea.outside.kube import Kube
from antrea.outside.serving import TOKEN_FILE

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from antrea.controller.front_process import Publisher
    from antrea.features.gate import EnabledGates

log = klog.logger(__name__)
VERSION = importlib.metadata.version("antrea")


class Places(msgspec.Struct, frozen=True):
    """Files of this process."""

    token: Path
    certificates: Path | None = None
    """Directory of the serving certificate; None: the one that selfSignedCert stands for."""


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
@klog.flags
def main(path: Path, token_file: Path, certificate_dir: Path | None, log: klog.Options) -> None:
    """Compute what agents need to know."""
    klog.start(log, "antrea-controller")
    try:
        loaded = load(ControllerConfig, path)
        gates = accept_controller(loaded.config)
        asyncio.run(run(loaded, gates, Places(token_file, certificate_dir)))
    except AntreaError as no:
        click.echo(f"antrea-controller: {no}", err=True)
        sys.exit(1)


async def run(loaded: Loaded[ControllerConfig], gates: EnabledGates, places: Places) -> None:
    """Until SIGTERM or SIGINT. Raises Invalid, Unavailable if the API cannot be served or its process has ended."""
    for key in loaded.unknown:
        log.warning(
            "The configuration has a key that is not read", file=loaded.config.file, problem=key.sentence
        )
    asked_to_end = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked_to_end.set)
    log.info("Starting antrea-controller", version=VERSION)
    front = FrontProcess(Facts())
    publisher = await front.start(start_frame(loaded.config, gates, places))
    try:
        publish_empty(publisher)
        async with asyncio.TaskGroup() as tasks:
            parts = [tasks.create_task(front.run(), name="front")]
            parts += [tasks.create_task(part) for part in _parts(loaded.config, front, publisher, places)]
            await asked_to_end.wait()
            log.info("Stopping antrea-controller")
            for part in parts:
                part.cancel()
    except* AntreaError as group:
        raise group.exceptions[0] from None
    finally:
        await front.stop()


def _parts(
    config: ControllerConfig, front: FrontProcess, publisher: Publisher, places: Places
) -> list[Coroutine[Any, Any, None]]:
    """What runs beside the front; without an API server there is little."""
    kube = _kube(config)
    parts = [ControllerInfo(front, publisher, kube, f"v{VERSION}").run()]
    if kube is not None:
        tiers = "AntreaPolicy" in wanted_gates(config.feature_gates)
        directory = places.certificates
        own = config.self_signed_cert
        parts.append(AgentInfos(kube).run())
        parts.append(upkeep(kube, namespace(), self_signed=own, tiers=tiers, directory=directory))
    return parts


def namespace() -> str:
    """Where this Pod is."""
    return os.environ.get("POD_NAMESPACE", "kube-system")


def _kube(config: ControllerConfig) -> Kube | None:
    """None if this is no Pod and no kubeconfig is named; the front says so. Raises Invalid for a bad kubeconfig."""
    path, override = config.client_connection.kubeconfig, config.kube_api_server_override
    if path:
        return Kube.from_kubeconfig(path, override)
    if not os.environ.get("KUBERNETES_SERVICE_HOST") and not override:
        return None
    return Kube.in_cluster(override)


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
        namespace=namespace(),
        service_account=os.environ.get("SERVICEACCOUNT_NAME", "antrea-controller"),
        feature_gates=config.feature_gates,
        tls_min_version=config.tls_min_version,
        tls_cipher_suites=config.tls_cipher_suites,
        client_ca_file=config.client_ca_file,
        kubeconfig=config.client_connection.kubeconfig,
        kube_override=config.kube_api_server_override,
        metrics=config.enable_prometheus_metrics,
    )


if __name__ == "__main__":
    main()
