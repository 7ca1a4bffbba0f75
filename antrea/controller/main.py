"""The controller: reads its configuration and serves its API until it is told to end."""

from __future__ import annotations

import asyncio
import importlib.metadata
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import uvloop

from antrea.apis.agent_api import version_info
from antrea.config.controller import ControllerConfig
from antrea.config.load import Loaded, load
from antrea.errors import AntreaError
from antrea.features.accept import accept_controller
from antrea.features.gate import statuses
from antrea.outside import klog
from antrea.outside.serving import TOKEN_FILE, ApiServer, json_answer, self_signed, server_tls, write_token

if TYPE_CHECKING:
    from aiohttp import web

    from antrea.features.gate import EnabledGates
    from antrea.outside.serving import Handler

log = klog.logger(__name__)


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
@klog.flags
def main(path: Path, token_file: Path, log: klog.Options) -> None:
    """Compute what agents need to know."""
    klog.start(log, "antrea-controller")
    try:
        loaded = load(ControllerConfig, path)
        gates = accept_controller(loaded.config)
        uvloop.run(run(loaded, gates, token_file))
    except AntreaError as no:
        click.echo(f"antrea-controller: {no}", err=True)
        sys.exit(1)


async def run(loaded: Loaded[ControllerConfig], gates: EnabledGates, token_file: Path) -> None:
    """Until SIGTERM or SIGINT. Raises Invalid, Unavailable if the API cannot be served."""
    for key in loaded.unknown:
        log.warning(
            "The configuration has a key that is not read", file=loaded.config.file, problem=key.sentence
        )
    asked_to_end = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked_to_end.set)
    server = api_server(loaded.config, gates, token_file)
    log.info("Starting antrea-controller", version=importlib.metadata.version("antrea"))
    await server.start()
    try:
        await asked_to_end.wait()
        log.info("Stopping antrea-controller")
    finally:
        await server.stop()


def api_server(config: ControllerConfig, gates: EnabledGates, token_file: Path) -> ApiServer:
    """The controller's own API. Raises Invalid (tlsCipherSuites), Unavailable (token file)."""
    tls = server_tls(
        self_signed(("antrea-controller", "antrea", "localhost"), ("127.0.0.1", "::1")),
        min_version=config.tls_min_version,
        cipher_suites=config.tls_cipher_suites,
    )
    return ApiServer(
        config.api_port,
        tls,
        write_token(token_file),
        routes={
            "/version": _always(version_info(importlib.metadata.version("antrea"))),
            "/featuregates": _always(statuses(gates)),
        },
        checks={},
        metrics=config.enable_prometheus_metrics,
    )


def _always(body: object) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        return json_answer(body)

    return handler


if __name__ == "__main__":
    main()
