"""Container of an engine in this agent's own Pod, and the repair where the Pod lacks it."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from antrea.errors import Refused, Unavailable
from antrea.outside.kube.environment import own_namespace
from antrea.outside.log import klog

if TYPE_CHECKING:
    from antrea.outside.kube.client import Kube

log = klog.logger(__name__)
RETRY: Final = 10.0
"""Seconds between tries."""
REPAIR: Final = "kubectl -n {namespace} patch daemonset antrea-agent --patch-file build/yamls/{name}.yml"
"""Command that adds the container where Helm is not used."""


class Recorder(Protocol):
    """Writer of an Event about this Node."""

    def __call__(self, reason: str, message: str, *, warning: bool) -> None:
        """Write the Event."""


class NamedContainer(msgspec.Struct, frozen=True):
    """Fields read of a container."""

    name: str = ""


class PodContainers(msgspec.Struct, frozen=True):
    """Fields read of the spec of a Pod."""

    containers: tuple[NamedContainer, ...] = ()


class OwnPod(msgspec.Struct, frozen=True):
    """The agent's own Pod."""

    spec: PodContainers = PodContainers()


class EngineContainer:
    """Check for the container `name` in the agent's Pod; the chart adds it with the gate, the gate in the ConfigMap does not."""

    def __init__(self, kube: Kube, record: Recorder, name: str, gate: str, reason: str) -> None:
        """`reason` is that of the Event about a Pod without the container."""
        self._kube, self._record, self._name, self._gate, self._reason = kube, record, name, gate, reason
        self.missing = ""
        """Instruction to the user; empty: the Pod has the container, or that is not known yet."""

    async def check(self) -> None:
        """Read the Pod until kube-apiserver answers, since its containers never change. Records an Event if the container is
        missing.
        """
        pod, namespace = os.environ.get("POD_NAME", ""), own_namespace()
        while pod:
            try:
                own_pod = await self._kube.get(f"/api/v1/namespaces/{namespace}/pods/{pod}", OwnPod)
            except (Refused, Unavailable) as error:
                log.v(2).info("Failed to read the containers of the agent's Pod", pod=pod, err=str(error))
                await asyncio.sleep(RETRY)
                continue
            if own_pod is not None and self._name not in {
                container.name for container in own_pod.spec.containers
            }:
                self.missing = self._sentence(namespace)
                self._record(self._reason, self.missing, warning=True)
            return

    def _sentence(self, namespace: str) -> str:
        return (
            f"the agent's Pod has no container {self._name}, which featureGates.{self._gate} in the ConfigMap does not add: with Helm"
            f" upgrade the release with --set featureGates.{self._gate}=true; with kubectl run {REPAIR}"
        ).format(namespace=namespace, name=self._name)
