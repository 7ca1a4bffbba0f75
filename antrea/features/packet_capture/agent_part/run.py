"""Run of one capture of this Node: addresses, the capture process, the upload, and the reports."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.apis.core import Pod
from antrea.decoding import decode_json
from antrea.errors import AntreaError, Invalid, Refused, Unavailable
from antrea.facts.family import is_ipv6
from antrea.facts.ovs import PodInterface
from antrea.features.packet_capture.admission import SECRET
from antrea.features.packet_capture.agent_part.plan import CaptureOrder, CaptureReport, DroppedPacket
from antrea.features.packet_capture.capture import CaptureProgress, capture_point, file_name
from antrea.features.packet_capture.filter import capture_filter, check
from antrea.outside.kube.environment import own_namespace
from antrea.outside.kube.secret import secret_texts
from antrea.outside.log import klog
from antrea.outside.upload.plan import Credentials, UploadOrder
from antrea.outside.upload.uploader import UploadFailed, uploaded

if TYPE_CHECKING:
    from antrea.apis.crd.packet_capture import End
    from antrea.features.framework.agent_part import AgentContext
    from antrea.features.packet_capture.agent_part.part import CapturePart
    from antrea.features.packet_capture.capture import CaptureFile

log = klog.logger(__name__)

FULL = "PacketCapture running count reach limit"
EXPIRED = "context deadline exceeded"
# parity: pkg/agent/packetcapture/packetcapture_controller.go syncPacketCapture; Go's context.DeadlineExceeded
MAX_WAITING = 1 << 20
"""Maximum number of bytes of dropped packets that wait for the process."""
GRACE_SECONDS = 30.0
"""Seconds beyond a capture's own time, until its process is killed."""


class CaptureRun:
    """Run of a capture from its beginning until its file is in place."""

    def __init__(self, part: CapturePart, agent: AgentContext, entry: CaptureFile) -> None:
        self._part, self._agent, self._entry = part, agent, entry
        self._now = CaptureProgress(entry.name, entry.uid)
        self._process: asyncio.subprocess.Process | None = None
        self._lost = 0
        """Number of packets dropped by the switch that came faster than the process takes them."""

    @property
    def uid(self) -> str:
        return self._entry.uid

    def take_drop(self, packet: DroppedPacket) -> None:
        """Take a packet that the switch has dropped, for the file if it belongs to this capture."""
        pipe = self._process.stdin if self._process else None
        if pipe is None or pipe.is_closing():
            return
        if pipe.transport.get_write_buffer_size() > MAX_WAITING:
            self._lost += 1
            return
        pipe.write(msgspec.json.encode(packet) + b"\n")

    def _note(self, **changes: Any) -> None:
        self._now = msgspec.structs.replace(self._now, **changes)
        self._part.note(self._now)

    async def run(self) -> None:
        """Run until it is complete, or cancelled."""
        try:
            check(self._entry.spec)
        except Invalid as error:
            self._note(failure=str(error))
            return
        if self._part.room.locked():
            self._note(failure=FULL)
        async with self._part.room:
            self._part.running += 1
            try:
                await self._capture()
            except Exception as error:  # noqa: BLE001 (the capture ends with a status)
                log.error("Unexpected error while capturing packets", name=self._entry.name, error=error)
                self._note(phase="Complete", failure="internal error; see the agent log")
            finally:
                self._part.running -= 1

    async def _capture(self) -> None:
        name = self._entry.name
        deadline = time.monotonic() + self._entry.spec.timeout
        self._note(phase="Started", failure="")
        try:
            order = await self._order(deadline)
            log.info("Capturing packets", name=name, device=order.device, number=order.number)
            last = await self._captured(order)
        except (AntreaError, OSError) as error:
            last = CaptureReport(why=str(error))
        failure = EXPIRED if last.timed_out else last.why
        log.info("Captured packets", name=name, packets=last.captured, dropped=last.dropped, err=failure)
        if last.dropped:
            self._part.warn(
                self._entry, "PacketsNotCaptured",
                f"{last.dropped} packets came faster than they could be written; the file counts them, too",
            )  # fmt: skip
        if last.refused or self._lost:
            lost = f"; {self._lost} more came faster than they could be written" if self._lost else ""
            self._part.warn(
                self._entry, "CapturedPacketsDropped",
                f"the switch has dropped {last.refused} packets, which the file has with their reasons{lost}",
            )  # fmt: skip
        done: dict[str, Any] = {"phase": "Complete", "captured": last.captured, "failure": failure}
        done["timed_out"] = last.timed_out
        if last.captured:
            done["path"] = f"{self._part.pod}:{self._part.file(name)}"
            done |= await self._upload()
        self._note(**done)

    async def _order(self, deadline: float) -> CaptureOrder:
        """Make the order for the process. Raises AntreaError, OSError."""
        spec = self._entry.spec
        device = self._device()
        source, destination = [await self._address(end) for end in (spec.source, spec.destination)]
        path = self._part.file(self._entry.name)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.touch(mode=0o600, exist_ok=False)
        first = spec.capture_config.first_n
        return CaptureOrder(
            device=device,
            path=str(path),
            program=capture_filter(spec, source, destination),
            number=first.number if first else 0,
            seconds=max(0.0, deadline - time.monotonic()),
        )

    def _device(self) -> str:
        """Return the device. Raises Unavailable if the Pod has gone while the capture waited."""
        point = capture_point(self._entry.spec)
        rows = self._agent.facts.by(PodInterface, "pod", f"{point.namespace}/{point.name}") if point else ()
        for row in rows:
            return row.name
        which = f"{point.namespace}/{point.name}" if point else ""
        raise Unavailable(f"Pod {which} is not on Node {self._agent.node} any more")

    async def _address(self, end: End) -> str:
        """Return the address of an end; empty for any. Raises Unavailable in upstream's words, Refused."""
        if end.pod is None:
            return end.ip
        pod, family = end.pod, self._entry.spec.packet.ip_family
        rows = self._agent.facts.by(PodInterface, "pod", f"{pod.namespace}/{pod.name}")
        ips = next((row.ips for row in rows), None)
        if ips is None:
            path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
            stored = await self._agent.kube.get(path, Pod)
            if stored is None:
                message = f'failed to get Pod {pod.namespace}/{pod.name}: pods "{pod.name}" not found'
                raise Unavailable(message)
            ips = tuple(pod_ip.ip for pod_ip in stored.status.pod_ips)
        for ip in ips:
            if is_ipv6(ip) == (family == "IPv6"):
                return ip
        raise Unavailable(f"cannot find IP with {family} address family for Pod {pod.namespace}/{pod.name}")

    async def _captured(self, order: CaptureOrder) -> CaptureReport:
        """Return the last report of the process. Raises OSError, Unavailable."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "antrea.features.packet_capture.agent_part.program"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        if process.stdin is None or process.stdout is None:
            raise Unavailable("the capture process has no pipes")
        try:
            process.stdin.write(msgspec.json.encode(order) + b"\n")
            self._process = process
            async with asyncio.timeout(order.seconds + GRACE_SECONDS):
                async for line in process.stdout:
                    report = decode_json(line, CaptureReport, "report of the capture process")
                    if report.done:
                        return report
                    self._note(captured=report.captured)
            raise Unavailable("the capture process has ended unexpectedly")
        except TimeoutError as error:
            raise Unavailable("the capture process does not answer") from error
        except Invalid as error:
            raise Unavailable(str(error)) from error
        finally:
            self._process = None
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            await process.wait()

    async def _upload(self) -> dict[str, Any]:
        """Upload the file; return what is to be reported, nothing without a file server."""
        server = self._entry.spec.file_server
        if server is None:
            return {}
        name = file_name(self._entry.name)
        try:
            pair = await secret_texts(self._agent.kube, own_namespace(), SECRET, "username", "password")
            source = str(self._part.file(self._entry.name))
            await uploaded(
                UploadOrder(
                    server.url,
                    name,
                    source,
                    Credentials(*pair),
                    server.host_public_key,
                    self._entry.any_host_key,
                )
            )
        except UploadFailed as error:
            self._part.warn(self._entry, "PacketCaptureUploadFailed", f"{server.url}: {error.why}")
            return {"upload": "Failed", "upload_failure": str(error)}
        except (Unavailable, Refused) as error:
            return {"upload": "Failed", "upload_failure": str(error)}
        return {"upload": "Succeed", "path": f"{server.url}/{name}"}
