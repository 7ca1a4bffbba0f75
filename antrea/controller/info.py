"""The controller about itself: the row of system.antrea.io and the AntreaControllerInfo object, renewed once a minute.

parity: pkg/monitor/controller.go
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

import msgspec

from antrea.apis import system
from antrea.apis.meta import ObjectMetadata
from antrea.errors import Refused, Unavailable
from antrea.outside import klog
from antrea.outside.clock import stamp
from antrea.outside.kube import PatchKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from antrea.controller.front_process import FrontProcess, Publisher
    from antrea.controller.replica import Replica

log = klog.logger(__name__)

NAME, SERVICE = "antrea-controller", "antrea"
HEARTBEAT_SECONDS = 60.0
SETTLE_SECONDS = 1.0
"""Agents come and go in crowds."""
CRD = "crd.antrea.io/v1beta1"
PATH = f"/apis/{CRD}/antreacontrollerinfos/{NAME}"


class ControllerInfo:
    """Publishes, and saves where this replica leads and there is an API server."""

    def __init__(
        self, front: FrontProcess, publisher: Publisher, replica: Replica, version: str,
        rejected: Callable[[], str] = str, changed: asyncio.Event | None = None,
    ) -> None:  # fmt: skip
        """`rejected` says why a configuration is not in effect; empty if none was refused. `changed` asks to look."""
        self._front = front
        self._publisher = publisher
        self._replica = replica
        self._version = version
        self._rejected = rejected
        self._changed = changed or asyncio.Event()
        self.counts: Callable[[], system.NetworkPolicyControllerInfo] = system.NetworkPolicyControllerInfo
        """How much is computed for policies."""
        self._said = ""
        front.changed = self._changed.set
        replica.lead.listeners.append(self._changed.set)

    async def run(self) -> None:
        """Until cancelled: once a minute, and soon after a change."""
        while True:
            self._changed.clear()
            info = self.now()
            self._publisher.put(system.GROUP, "controllerinfos", NAME, info)
            await self._save(info)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await self._changed.wait()
                    await asyncio.sleep(SETTLE_SECONDS)

    def now(self) -> system.AntreaControllerInfo:
        """What is true now; Pod and Node come from the environment that the manifest sets."""
        namespace, pod = os.environ.get("POD_NAMESPACE", ""), os.environ.get("POD_NAME", "")
        return system.AntreaControllerInfo(
            metadata=ObjectMetadata(name=NAME),
            version=self._version,
            pod_ref=system.ObjectReference(kind="Pod", namespace=namespace, name=pod),
            node_ref=system.ObjectReference(kind="Node", name=os.environ.get("NODE_NAME", "")),
            service_ref=system.ObjectReference(kind="Service", name=SERVICE),
            network_policy_controller_info=self.counts(),
            connected_agent_num=self._front.agents,
            controller_conditions=tuple(self._conditions()),
            api_port=self._front.port,
        )

    def _conditions(self) -> Iterator[system.ControllerCondition]:
        now = stamp()
        yield system.ControllerCondition(type="ControllerHealthy", status="True", last_heartbeat_time=now)
        if why := self._rejected():
            yield system.ControllerCondition(
                type="ConfigRejected", status="True", last_heartbeat_time=now, message=why
            )

    async def _save(self, info: system.AntreaControllerInfo) -> None:
        kube = self._replica.kube
        if kube is None or not self._replica.lead.leads():
            return
        # applied as {}, what had counts before would become null, which the definition does not allow
        told = {key: value for key, value in msgspec.to_builtins(info).items() if value != {}}
        body = {"apiVersion": CRD, "kind": "AntreaControllerInfo", **told}
        said = ""
        try:
            await kube.patch(PATH, body, PatchKind.APPLY, manager="antrea-controller")
        except (Refused, Unavailable) as why:
            said = str(why)
        if said and said != self._said:
            log.warning("AntreaControllerInfo cannot be saved", err=said)
        self._said = said
