"""Prober of all other Nodes at the interval of the NodeLatencyMonitor, which reports round-trip times to the controller.

parity: pkg/agent/monitortool/monitor.go; round trips are measured to the kernel's time of receipt
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from antrea.apis.stats import GROUP, VERSION
from antrea.errors import Refused, Unavailable
from antrea.facts.family import is_ipv6
from antrea.features.node_latency.agent_part.measurement import (
    IN_A_ROW,
    SECOND,
    Measurement,
    latency_stats,
    milliseconds,
)
from antrea.features.node_latency.monitor import LatencyMonitor
from antrea.features.node_latency.target import LatencyTarget
from antrea.outside.log import klog
from antrea.outside.log.metrics import Histogram, Metric, Sample

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.apis.stats import NodeLatencyStats
    from antrea.engine import Facts
    from antrea.outside.icmp.echo import EchoReply
    from antrea.outside.kube.client import Kube

log = klog.logger(__name__)

PATH: Final = f"/apis/{GROUP}/{VERSION}/nodelatencystats"
REPORT_SECONDS: Final = 10.0
"""Minimum seconds between two reports; one more second passes, so that answers to the last probes are in."""
FIRST_REPORT_SECONDS: Final = 2.0
RETRY_SECONDS: Final = 10.0
SLICE: Final = 64
"""Number of probes that are sent before other tasks may run."""
TOKEN: Final = 16
"""Number of random bytes in each probe, so that only a host that received it can answer."""
BOUNDS: Final = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Bounds in milliseconds."""
LATENCY = Metric(
    "antrea_agent_node_latency_milliseconds", "histogram", "ALPHA",
    "Round-trip times to the gateways of other Nodes.",
)  # fmt: skip
UNANSWERED = Metric(
    "antrea_agent_node_latency_unanswered_count", "counter", "ALPHA",
    "Number of probes of other Nodes that had no answer before the next one.",
)  # fmt: skip
NAMES: Final = {False: "v4", True: "v6"}


class Echo(Protocol):
    """The methods of `EchoSocket` that are needed here."""

    def send(self, ip: str, sequence: int, data: bytes) -> int: ...

    def close(self) -> None: ...


class LatencyProber:
    """Prober of one Node. `sockets` opens one of a family, with a callback for each reply; raises OSError."""

    def __init__(
        self,
        facts: Facts,
        node: str,
        *,
        sockets: Callable[[bool, Callable[[EchoReply], None]], Echo],
        controller: Callable[[], Kube | None],
        record: Callable[[str, str, bool], None],
        lasting: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`record` writes an Event of the Node: reason, message, whether it is a warning. `lasting` is a clock that never jumps."""
        self._lasting = lasting
        self._facts, self._node = facts, node
        self._open, self._controller, self._record = sockets, controller, record
        self._sockets: dict[bool, Echo] = {}
        self._measured: dict[str, Measurement] = {}
        self._histograms = {ipv6: Histogram(BOUNDS) for ipv6 in NAMES}
        self._unanswered: Counter[bool] = Counter()
        self._reported = True
        """Whether the controller may have a report of this Node."""
        self._trouble = ""

    async def run(self) -> None:
        """Run until cancelled."""
        clock = asyncio.get_running_loop().time
        with self._facts.watch(LatencyMonitor) as changed:
            while not self._facts.feeds.has(LatencyMonitor):
                changed.clear()
                await changed.wait()
            ping = report = clock()
            interval: float | None = None
            while True:
                changed.clear()
                monitor = self._facts.get(LatencyMonitor)
                if monitor is None:
                    interval = None
                    await self._stop()
                    await self._wait(changed, RETRY_SECONDS if self._reported else None)
                    continue
                if monitor.interval != interval:
                    interval, ping, report = monitor.interval, clock(), clock() + FIRST_REPORT_SECONDS
                if clock() >= ping:
                    await self.probe(monitor)
                    ping += max(interval, clock() - ping)
                if clock() >= report:
                    await self.report()
                    report = clock() + max(interval, REPORT_SECONDS) + 1
                await self._wait(changed, max(min(ping, report) - clock(), 0))

    async def _wait(self, changed: asyncio.Event, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await changed.wait()
        except TimeoutError:
            return

    async def probe(self, monitor: LatencyMonitor) -> None:
        """Probe each address once; one that has not answered since the last time counts as lost."""
        targets = {row.ip: row for row in self._facts.all(LatencyTarget)}
        self._measured = {ip: measurement for ip, measurement in self._measured.items() if ip in targets}
        for number, target in enumerate(targets.values(), 1):
            current = self._measured.setdefault(target.ip, Measurement())
            if current.token:
                self._unanswered[is_ipv6(target.ip)] += 1
                self._judge(monitor, target, current, None)
            self._send(target.ip, current)
            if number % SLICE == 0:
                await asyncio.sleep(0)

    def _send(self, ip: str, measurement: Measurement) -> None:
        measurement.sequence, measurement.token = (
            (measurement.sequence + 1) & 0xFFFF,
            secrets.token_bytes(TOKEN),
        )
        ipv6 = is_ipv6(ip)
        try:
            if ipv6 not in self._sockets:
                self._sockets[ipv6] = self._open(ipv6, self.receive)
            began = self._lasting()
            measurement.sent = self._sockets[ipv6].send(ip, measurement.sequence, measurement.token)
            measurement.began = began
        except OSError as error:
            log.v(2).info("Failed to send an echo request", ip=ip, err=str(error))

    def receive(self, reply: EchoReply) -> None:
        """Process a reply; one that comes twice, late, or from elsewhere is ignored."""
        measurement, target = self._measured.get(reply.ip), self._facts.get(LatencyTarget, reply.ip)
        monitor = self._facts.get(LatencyMonitor)
        if measurement is None or target is None or monitor is None or not measurement.token:
            return
        if reply.sequence != measurement.sequence or not secrets.compare_digest(
            reply.data, measurement.token
        ):
            return
        measurement.token = b""
        rtt, lasted = reply.at - measurement.sent, self._lasting() - measurement.began
        if not 0 < rtt <= lasted:
            log.v(2).info("The clock was set during a round trip", ip=reply.ip)
            rtt = max(lasted, 1)  # with the time until this process saw the reply
        measurement.received, measurement.rtt = reply.at, rtt
        self._histograms[is_ipv6(reply.ip)].note(rtt / 10**6)
        self._judge(monitor, target, measurement, rtt)

    def _judge(
        self, monitor: LatencyMonitor, target: LatencyTarget, measurement: Measurement, rtt: int | None
    ) -> None:
        limit = int(monitor.threshold * SECOND)
        if not (outcome := measurement.judge(rtt, limit)):
            return
        whom, times = f"Node {target.node} by {target.ip}", f"{IN_A_ROW} probes in a row"
        if measurement.slow:
            message = f"{times} of {whom} were above the threshold of {milliseconds(limit)}, the last one: {outcome}"
            log.warning(
                "Latency of a Node is above the threshold", peer=target.node, ip=target.ip, rtt=outcome
            )
            self._record("NodeLatencyHigh", message, True)
        else:
            message = f"{times} of {whom} were below the threshold of {milliseconds(limit)} again, the last one: {outcome}"
            log.info("Latency of a Node is below the threshold again", peer=target.node, ip=target.ip)
            self._record("NodeLatencyNormal", message, False)

    @property
    def stats(self) -> NodeLatencyStats:
        """Make the current report."""
        targets = sorted(self._facts.all(LatencyTarget), key=lambda row: (row.node, is_ipv6(row.ip)))
        return latency_stats(self._node, targets, self._measured)

    async def report(self) -> None:
        """Report to the controller; a failure is logged, and the next report has all of it."""
        whole: dict[str, Any] = msgspec.to_builtins(self.stats)
        body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "NodeLatencyStats", **whole}
        try:
            if (controller := self._controller()) is None:
                raise Unavailable("no connection to antrea-controller")
            self._reported = True
            await controller.create(PATH, body)
        except (Refused, Unavailable) as error:
            if str(error) != self._trouble:
                log.warning("Failed to report latencies of Nodes", err=str(error))
            self._trouble = str(error)
        else:
            self._trouble = ""

    async def _stop(self) -> None:
        """End the measurement; the controller drops its report of this Node."""
        self.close()
        self._measured.clear()
        controller = self._controller()
        if not self._reported or controller is None:
            return
        try:
            await controller.delete(f"{PATH}/{self._node}")
        except (Refused, Unavailable) as error:
            log.v(2).info("Failed to withdraw latencies of this Node", err=str(error))
        else:
            self._reported = False

    def metrics(self) -> str:
        """In Prometheus' format."""
        samples = [
            sample
            for ipv6, name in NAMES.items()
            for sample in self._histograms[ipv6].samples({"ip_family": name})
        ]
        lost = [Sample(self._unanswered[ipv6], {"ip_family": name}) for ipv6, name in NAMES.items()]
        return LATENCY.text(samples) + UNANSWERED.text(lost)

    def close(self) -> None:
        """Close the sockets."""
        for socket in self._sockets.values():
            socket.close()
        self._sockets.clear()
