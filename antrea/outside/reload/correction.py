"""Wait for the correction of a configuration that a program cannot start with, in place of ending.

A Pod that ends is restarted by kubelet after up to 5 minutes, and its mounted file stays as it was. The process that waits answers the
probes of kubelet, alive and not ready, with what is wrong, and starts with the text of the ConfigMap as soon as that can work.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from antrea.config.effect import begin
from antrea.config.load import read
from antrea.errors import Invalid
from antrea.outside.apiserver.authentication import Authentication
from antrea.outside.apiserver.authorization import Authorization
from antrea.outside.apiserver.server import Server
from antrea.outside.http.handlers import HEALTH, health
from antrea.outside.kube.client import Kube
from antrea.outside.kube.config_map import contents
from antrea.outside.kube.environment import own_config_map
from antrea.outside.kube.event_recorder import EventQueue
from antrea.outside.listener.listening_socket import listen
from antrea.outside.log import klog
from antrea.outside.reload.supervisor import asked_to_end
from antrea.outside.tls.server_context import self_signed, server_tls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from aiohttp import web

    from antrea.config.agent import AgentConfig
    from antrea.config.controller import ControllerConfig
    from antrea.outside.apiserver.attributes import Attributes
    from antrea.outside.kube.event_recorder import EventRecorder

C = TypeVar("C")
log = klog.logger(__name__)

# from a text that may be no YAML; the chart writes each key on a line of its own
_PORT = re.compile(r"^apiPort:[ \t]*(\d{1,5})[ \t]*$", re.MULTILINE)
_OVERRIDE = re.compile(r"""^kubeAPIServerOverride:[ \t]*["']?([^\s"'#]+)""", re.MULTILINE)
_KUBECONFIG = re.compile(r"""^[ \t]+kubeconfig:[ \t]*["']?([^\s"'#]+)""", re.MULTILINE)
MAX_PORT = 65535


class Correction(NamedTuple):
    """The configuration to wait for, and the recorder of Events about it."""

    kind: type[AgentConfig | ControllerConfig]
    accept: Callable[[Any], object]
    """Raises Invalid for a configuration that the program cannot work with."""
    path: Path
    """File that the program reads at start."""
    recorder: EventRecorder


def configured(make: Callable[[str | None], C], correction: Correction) -> C | None:
    """Return `make(None)`, or, if that raises Invalid in a Pod, `make` of the corrected text of the ConfigMap.

    None if the process is asked to end while it waits. Raises Invalid outside of a Pod or where kube-apiserver is not configured, Unavailable if the API's port is taken.
    """
    try:
        return make(None)
    except Invalid as error:
        namespace = os.environ.get("POD_NAMESPACE", "")
        if not namespace:
            raise
        text = _text(correction.path)
        why = str(error)
        corrected = asyncio.run(_corrected(correction, _connect(text), namespace, text, why))
    return None if corrected is None else make(corrected)


def _text(path: Path) -> str:
    with contextlib.suppress(Invalid):
        return read(path)
    return ""


def _connect(text: str) -> Kube:
    """Connect by the keys of the refused configuration, or as this Pod where those cannot be used. Raises Invalid."""
    kubeconfig, override = _KUBECONFIG.search(text), _OVERRIDE.search(text)
    try:
        return Kube.connect(kubeconfig[1] if kubeconfig else "", override[1] if override else "")
    except Invalid:
        return Kube.in_cluster()


def _port(kind: type[AgentConfig | ControllerConfig], text: str) -> int:
    match = _PORT.search(text)
    port = int(match[1]) if match else 0
    return port if 0 < port <= MAX_PORT else kind().api_port


class _NoResources:
    """No resources, since the program has not started."""

    resources = ()

    async def answer(self, _: web.Request, attributes: Attributes) -> web.StreamResponse:
        raise Invalid(attributes.resource, "the program has not started: its configuration was refused")


class _Wait:
    """One wait; `why` is what is wrong with the latest text."""

    def __init__(self, correction: Correction, why: str) -> None:
        self._correction = correction
        self._events = EventQueue(correction.recorder)
        self.why = ""
        self._refuse(why)

    def _refuse(self, why: str) -> None:
        """Report in the log and by an Event what is new."""
        if why != self.why:
            self.why = why
            log.error(
                "The configuration was refused; waiting for its correction",
                err=why,
                configmap=own_config_map(),
            )
            message = f"{why}; {self._correction.recorder.component} waits for the correction of ConfigMap {own_config_map()}"
            self._events.record("ConfigRejected", message, warning=True)

    async def text(self, kube: Kube, namespace: str) -> str:
        """Return the first text of the ConfigMap that can work."""
        kind = self._correction.kind
        async for data in contents(kube, namespace, own_config_map()):
            text = data.get(kind.file)
            if text is None:
                continue
            try:
                begin(kind, self._correction.accept, text)
            except Invalid as error:
                self._refuse(str(error))
            else:
                return text
        raise AssertionError("a watch does not end")

    async def record_events(self, kube: Kube) -> None:
        """Record Events until cancelled."""
        await self._events.run(kube)

    async def serve(self, port: int) -> None:
        """Answer probes until cancelled. Raises Unavailable if the port is taken."""
        checks: Mapping[str, Mapping[str, Callable[[], str]]] = {
            "readyz": {"configuration": lambda: self.why}
        }
        handlers = {
            ("GET", path): handler
            for name in HEALTH
            for path, handler in health(name, checks.get(name, {})).items()
        }
        authorization = Authorization((f"/{name}" for name in HEALTH), None)
        authentication = Authentication(secrets.token_hex(32), None)
        server = Server(authentication, authorization, _NoResources(), handlers=handlers, openapi={})
        pair = await asyncio.to_thread(self_signed, ("localhost",), ("127.0.0.1", "::1"))
        with contextlib.closing(listen(port)) as listening:
            await server.run(listening, server_tls(pair))


async def _corrected(correction: Correction, kube: Kube, namespace: str, text: str, why: str) -> str | None:
    """Return the text that can work; None once the process is asked to end. Raises Unavailable if the port is taken."""
    wait, end = _Wait(correction, why), asked_to_end()
    async with kube:
        reading = asyncio.create_task(wait.text(kube, namespace), name="ConfigMap")
        tasks: tuple[asyncio.Task[Any], ...] = (
            reading,
            asyncio.create_task(wait.serve(_port(correction.kind, text)), name="probes"),
            asyncio.create_task(wait.record_events(kube), name="Events"),
            asyncio.create_task(end.wait(), name="signal"),
        )
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()
    if reading not in done:
        return None
    log.info("The configuration was corrected", configmap=own_config_map())
    return reading.result()
