"""Measurement of the round trips to each address: the last probe, the last answer, and whether it is too slow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from antrea.apis.meta import ObjectMetadata
from antrea.apis.stats import NodeLatencyStats, PeerNodeLatencyStats, TargetIPLatencyStats
from antrea.outside.kube.clock import stamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from antrea.features.node_latency.target import LatencyTarget

IN_A_ROW: Final = 3
"""Number of probes whose outcome has to agree before an Event reports it: one slow answer is not a change."""
SECOND: Final = 10**9


class Measurement(msgspec.Struct):
    """Measurement of one address; times are nanoseconds since the epoch, 0 for never."""

    sent: int = 0
    received: int = 0
    began: int = 0
    """Time of the last probe, by a monotonic clock."""
    rtt: int = 0
    """Nanoseconds of the last round trip."""
    sequence: int = 0
    token: bytes = b""
    """Content of the last probe; none while no answer is expected."""
    bad: int = 0
    """Number of consecutive probes that were above the threshold, or had no answer."""
    good: int = 0
    slow: bool = False
    """Whether an Event has reported it."""

    def judge(self, rtt: int | None, limit: int) -> str:
        """Count the outcome of a probe, None without an answer; return what is to be reported now, empty if nothing."""
        if not limit:
            self.bad = self.good = 0
            self.slow = False
            return ""
        bad = rtt is None or rtt > limit
        self.bad, self.good = (self.bad + 1, 0) if bad else (0, self.good + 1)
        if bad and self.bad >= IN_A_ROW and not self.slow:
            self.slow = True
            return "no answer" if rtt is None else milliseconds(rtt)
        if not bad and self.good >= IN_A_ROW and self.slow:
            self.slow = False
            return milliseconds(rtt or 0)
        return ""


def milliseconds(nanoseconds: int) -> str:
    """Format a duration for a log line."""
    return f"{nanoseconds / 10**6:.3f} ms"


def latency_stats(
    node: str, targets: Iterable[LatencyTarget], measurements: Mapping[str, Measurement]
) -> NodeLatencyStats:
    """Make the report to the controller; an address that was never probed is left out, as upstream.

    # parity: pkg/agent/monitortool/latency_store.go ConvertList
    """
    peers: dict[str, list[TargetIPLatencyStats]] = {}
    for target in targets:
        known, measurement = peers.setdefault(target.node, []), measurements.get(target.ip)
        if measurement is not None and measurement.sent:
            known.append(
                TargetIPLatencyStats(
                    target_ip=target.ip,
                    last_send_time=stamp(measurement.sent / SECOND),
                    last_recv_time=stamp(measurement.received / SECOND) if measurement.received else None,
                    last_measured_rtt_nanoseconds=measurement.rtt,
                )
            )
    return NodeLatencyStats(
        metadata=ObjectMetadata(name=node),
        peer_node_latency_stats=tuple(
            PeerNodeLatencyStats(node_name=name, target_ip_latency_stats=tuple(stats_of_node))
            for name, stats_of_node in sorted(peers.items())
        ),
    )
