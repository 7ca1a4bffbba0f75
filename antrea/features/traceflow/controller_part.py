"""Effects of Traceflows in the controller: the leader gives them tags, and ends them.

All state is in their statuses, so that the next leader continues where this one stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from antrea.errors import Refused, Unavailable
from antrea.facts.cluster import Pod
from antrea.features.framework.controller_part import ControllerPart
from antrea.features.traceflow.phase import TIMEOUT, next_step
from antrea.features.traceflow.trace import FAILED, RUNNING, SUCCEEDED, TRACEFLOWS, TraceRow
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from antrea.apis.crd.traceflow import NodeResult, TraceflowStatus
    from antrea.features.framework.controller_part import ControllerContext
    from antrea.features.traceflow.phase import Change

log = klog.logger(__name__)
RETRY: Final = 1.0
"""Seconds until the next try after a failed write."""


class TraceflowPart(ControllerPart):
    """Part of all Traceflows."""

    def __init__(self, controller: ControllerContext, now: Callable[[], float] = time.time) -> None:
        self._facts, self._kube, self._now = controller.facts, controller.kube, now
        self._used: dict[int, float] = {}
        """Time of the last use of each tag."""
        self._ahead: dict[str, TraceRow] = {}
        """Written rows by UID, until the watch has delivered them; with the version that was overwritten."""

    async def run_while_leading(self) -> None:
        self._ahead.clear()
        with self._facts.watch(TraceRow) as heard:
            while not self._facts.feeds.has(TraceRow):
                heard.clear()
                await heard.wait()
            while True:
                heard.clear()
                again = await self._step()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(again):
                        await heard.wait()

    async def _step(self) -> float | None:
        """Write due changes. Return the seconds until the next check; None if at the next change."""
        stored = {row.uid: row for row in self._facts.all(TraceRow)}
        self._ahead = {
            uid: row
            for uid, row in self._ahead.items()
            if uid in stored and stored[uid].version == row.version
        }
        rows, now = list((stored | self._ahead).values()), self._now()
        # a clock that was set back: a tag rests from now on, not from a time to come
        self._used = {tag: min(at, now) for tag, at in self._used.items()}
        step = next_step(rows, self._used, now)
        tags = (row.status.dataplane_tag for row in rows if row.status.phase == RUNNING)
        self._used |= dict.fromkeys(tags, now)
        written = await asyncio.gather(*map(self._write, step.changes))
        if step.changes:
            return 0.0 if all(written) else RETRY
        return step.again

    async def _write(self, change: Change) -> bool:
        """Write a change; return whether it is written: not over a version that is no longer the last."""
        row, status = change.row, self._with_pods(self._with_missing_pod(change))
        fields: dict[str, Any] = {
            "phase": status.phase or None,
            "reason": status.reason or None,
            "startTime": status.start_time or None,
            "dataplaneTag": status.dataplane_tag or None,
        }
        if status.results != row.status.results:
            fields["results"] = msgspec.to_builtins(status.results)
        version = {"uid": row.uid, "resourceVersion": row.version}
        try:
            await self._kube.patch(f"{TRACEFLOWS}/{row.name}/status", {"metadata": version, "status": fields})
        except (Refused, Unavailable) as error:
            log.v(2).info("Failed to update the status of a Traceflow", traceflow=row.name, err=str(error))
            return False
        self._ahead[row.uid] = msgspec.structs.replace(row, status=status)
        if status.phase != row.status.phase:
            log.v(2).info(
                "Traceflow changed its phase", traceflow=row.name, phase=status.phase, reason=status.reason
            )
        return True

    def _with_missing_pod(self, change: Change) -> TraceflowStatus:
        """Return the status, which names a missing end once its time is over: no Node reports such a Pod."""
        status, spec = change.status, change.row.spec
        if status.phase != FAILED or not status.reason.startswith(TIMEOUT):
            return status
        for end in (spec.source, spec.destination):
            key = f"{end.namespace or 'default'}/{end.pod}"
            if end.pod and self._facts.get(Pod, key) is None:
                return msgspec.structs.replace(status, reason=f"{TIMEOUT}: Pod {key} does not exist")
        return status

    def _with_pods(self, status: TraceflowStatus) -> TraceflowStatus:
        """Return the status with the names of the Pods that Services chose, once the Traceflow has succeeded."""
        chosen = {
            observation.translated_dst_ip for result in status.results for observation in result.observations
        } - {""}
        if status.phase != SUCCEEDED or not chosen:
            return status
        pods = {ip: pod.key for pod in self._facts.all(Pod) if not pod.host_network for ip in pod.ips}
        return msgspec.structs.replace(
            status, results=tuple(_named(result, pods) for result in status.results)
        )


def _named(result: NodeResult, pods: Mapping[str, str]) -> NodeResult:
    observations = tuple(
        msgspec.structs.replace(observation, pod=pods.get(observation.translated_dst_ip, observation.pod))
        for observation in result.observations
    )
    return msgspec.structs.replace(result, observations=observations)


PART = TraceflowPart
