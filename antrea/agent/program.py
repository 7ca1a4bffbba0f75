"""Run of the agent: its configuration, its preparation, then feeds, engine and servers until it is terminated.

Imported by antrea.agent.main, which has the command line, once an agent is to run.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from antrea import VERSION
from antrea.agent.api.certificate import ApiCertificate
from antrea.agent.assembly import Agent
from antrea.agent.rebuild import Rebuild
from antrea.agent.role import full_name
from antrea.config.agent import AgentConfig
from antrea.engine.core import IMPLEMENTATION
from antrea.errors import Unavailable
from antrea.features.framework.config_validation import accept_agent
from antrea.outside.kube.client import Kube
from antrea.outside.kube.node_recorder import node_recorder
from antrea.outside.log import klog
from antrea.outside.reload.configuration import Configuration
from antrea.outside.reload.correction import Correction, configured
from antrea.outside.reload.supervisor import Running, asked_to_end, through_changes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.agent.assembly import AgentConfiguration
    from antrea.features.framework.gate import EnabledGates
    from antrea.outside.tls.server_context import SelfSigning

log = klog.logger(__name__)
KEPT = Path("/var/run/antrea/antrea-agent.conf.good")
"""File of the last configuration that worked, in a Pod; elsewhere it is beside the configuration."""

WAY = ("client_connection", "kube_api_server_override")
"""Keys that locate kube-apiserver."""
LOCK = "antrea-agent.lock"
ENDED = "antrea-agent.ended"
"""File beside OVSDB's socket while no agent runs: start_ovs then gives the transport interface back as the switch ends."""


@contextlib.contextmanager
def instance_lock(directory: Path) -> Iterator[None]:
    """Hold the Node's lock; the kernel releases it when the process ends, in any way.

    Raises Unavailable if another agent holds it or the directory cannot be written to.
    """
    path = directory / LOCK
    with contextlib.ExitStack() as stack:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Unavailable(f"lock {path}: another antrea-agent runs on this Node") from error
        except OSError as error:
            raise Unavailable(f"lock {path}: {error.strerror}") from error
        yield


@contextlib.contextmanager
def end_marker(directory: Path) -> Iterator[None]:
    """Remove the file ENDED, and create it at the end; best effort, as without it the interface waits for the next switch."""
    file = directory / ENDED
    with contextlib.suppress(OSError):
        file.unlink(missing_ok=True)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            file.touch()


def serve(path: Path, signing: SelfSigning) -> None:
    """Run with the configuration in this file until terminated; `signing` makes the certificate of the API.

    In a Pod wait for the correction of a configuration that is refused. Raises Invalid, Unavailable.
    """
    kept = KEPT if os.environ.get("POD_NAMESPACE") else path.with_name(f"{path.name}.good")
    node = os.environ.get("NODE_NAME") or socket.gethostname()
    configuration = configured(
        lambda corrected: Configuration(AgentConfig, _accept, path, kept, corrected=corrected),
        Correction(AgentConfig, _accept, path, node_recorder(node)),
    )
    if configuration is None:
        return
    config = configuration.now.config
    with instance_lock(Path(config.cni_socket).parent), end_marker(Path(config.ovs_run_dir)):
        asyncio.run(run(configuration, signing))


def _accept(config: AgentConfig) -> EnabledGates:
    free = os.environ.get("ALLOW_NO_ENCAP_WITHOUT_ANTREA_PROXY") == "true"
    return accept_agent(config, encap_free_without_proxy=free)


async def run(configuration: AgentConfiguration, signing: SelfSigning) -> None:
    """Run until SIGTERM or SIGINT; flows, routes and ports remain, so that packets are forwarded while the next agent starts.

    Addresses that this Node held are handed over if it will be without an agent (antrea.features.egress.agent_part.graceful_handover).

    A configuration that changes ends one agent and starts the next in this process, with the same effects.
    """
    log.info("Starting antrea-agent", version=VERSION, engine=IMPLEMENTATION)
    node, certificate = os.environ.get("NODE_NAME") or socket.gethostname(), ApiCertificate(signing.result())
    rebuild = Rebuild()

    def start() -> Running:
        config = configuration.now.config
        kube = Kube.connect(config.client_connection.kubeconfig, config.kube_api_server_override)
        agent = Agent(configuration, kube, node, certificate, rebuild)
        return Running(
            _work(kube, agent),
            agent.ready.wait,
            lambda: agent.ready.waiting,
            kube,
            farewell=agent.farewell,
            blameless=lambda: agent.ready.is_outside and configuration.keeps(*WAY),
        )

    with contextlib.closing(rebuild.listener):
        recorder = node_recorder(full_name(configuration.now.config, node))
        await through_changes(configuration, start, recorder, asked_to_end())
    log.info("Stopping antrea-agent")


async def _work(kube: Kube, agent: Agent) -> None:
    async with kube:
        await agent.run()
