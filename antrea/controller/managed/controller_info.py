"""The controller about itself: the row of system.antrea.io and the AntreaControllerInfo object, renewed once a minute.

parity: pkg/monitor/controller.go
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.apis import system
from antrea.apis.meta import ObjectMetadata
from antrea.apis.shown import shortened
from antrea.errors import Refused, Unavailable
from antrea.outside.isolation import CONDITION
from antrea.outside.kube.client import PatchKind
from antrea.outside.kube.clock import stamp
from antrea.outside.kube.resource_feed import missing_rights
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from antrea.controller.apiserver.process import ApiServerProcess, Publisher
    from antrea.controller.leader.replica import Replica
    from antrea.outside.kube.client import Kube

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
        self, front: ApiServerProcess, publisher: Publisher, replica: Replica, version: str,
        rejected: Callable[[], str] = str, changed: asyncio.Event | None = None,
    ) -> None:  # fmt: skip
        """`rejected` is why a configuration is not in effect; empty if none was rejected. `changed` triggers an update."""
        self._front = front
        self._publisher = publisher
        self._replica = replica
        self._version = version
        self._rejected = rejected
        self._changed = changed or asyncio.Event()
        self.counts: Callable[[], system.NetworkPolicyControllerInfo] = system.NetworkPolicyControllerInfo
        """How much is computed for policies."""
        self.refused: Callable[[], Mapping[str, str]] = dict
        """kube-apiserver's words by resource that this controller may not read."""
        self.failed: Callable[[], str] = str
        """Which parts failed; empty: none."""
        self._said = ""
        front.changed = self._changed.set
        replica.lead.listeners.append(self._changed.set)

    async def run(self) -> None:
        """Write the AntreaControllerInfo once a minute and soon after a change, until cancelled."""
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
        """Return the present AntreaControllerInfo; Pod and Node come from the environment that the manifest sets."""
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
        refused = self.refused()
        yield system.ControllerCondition(
            type="ControllerHealthy",
            status="False" if refused else "True",
            last_heartbeat_time=now,
            reason="RightsMissing" if refused else "",
            message=shortened(missing_rights(refused)) if refused else "",
        )
        for kind, check in (("ConfigRejected", self._rejected), (CONDITION, self.failed)):
            if why := check():
                yield system.ControllerCondition(
                    type=kind, status="True", last_heartbeat_time=now, message=shortened(why)
                )

    async def _save(self, info: system.AntreaControllerInfo) -> None:
        kube = self._replica.kube
        if kube is None or not self._replica.lead.leads():
            return
        body = {"apiVersion": CRD, "kind": "AntreaControllerInfo", **msgspec.to_builtins(info)}
        said = ""
        try:
            await _apply(kube, body)
        except (Refused, Unavailable) as error:
            said = str(error)
        if said and said != self._said:
            log.warning("Failed to save AntreaControllerInfo", err=said)
        self._said = said


async def _apply(kube: Kube, body: dict[str, Any]) -> None:
    """Apply the object, its empty parts included, as upstream's has them. Raises Refused, Unavailable.

    kube-apiserver makes null of a part with applied fields that is applied as {}, and refuses it: that part goes first.
    """
    filled = {key: value for key, value in body.items() if value != {}}
    try:
        await kube.patch(PATH, body, PatchKind.APPLY, manager=NAME)
    except Refused:
        if filled == body:
            raise
        await kube.patch(PATH, filled, PatchKind.APPLY, manager=NAME)
        await kube.patch(PATH, body, PatchKind.APPLY, manager=NAME)
