"""A meter as a value: a rate above which packets are dropped."""

from __future__ import annotations

from enum import Enum
from typing import ClassVar, Final

import msgspec

from antrea.openflow.purpose import Purposed
from antrea.rank import Rank


class PacketInMeter(Purposed):
    """Meters of packets to the agent; 1 to 255 are Egress QoS, the id being the SNAT mark."""

    NETWORK_POLICY = 256, "Packets that a policy logs, rejects or exports."
    TRACEFLOW = 257, "Traced packets."
    DNS = 258, "DNS answers that a policy by name waits for."
    PACKET_CAPTURE = 259, "Dropped packets of Pods whose packets are captured."
    UNSERVED_PORT = 260, "Packets to ports that no Service has."


POD_DNS_METERS: Final = 1024
"""Added to the number of a Pod's port: the meter of DNS answers to this Pod alone."""


class Rate(Enum):
    """Unit of a meter's rate per second."""

    KBPS = "kbps"
    PKTPS = "pktps"


class Meter(msgspec.Struct, frozen=True):
    """Drops what exceeds `rate` (in `unit`) after a burst of `burst` kilobits or packets.

    Meters cannot be in a bundle, so a sink sends them before the flows that name them.
    """

    id: int
    unit: Rate
    rate: int
    burst: int
    category: int

    rank: ClassVar[int] = Rank.METER

    @property
    def key(self) -> int:
        return self.id

    @property
    def text(self) -> str:
        """The line that `ovs-ofctl add-meter` and `mod-meter` read."""
        return (
            f"meter={self.id},{self.unit.value},burst,band=type=drop,rate={self.rate},burst_size={self.burst}"
        )


def packet_in_meter(meter: int, rate: int, category: int) -> Meter:
    """`rate` packets per second, twice as many in a burst (pkg/agent/openflow/client.go)."""
    return Meter(int(meter), Rate.PKTPS, rate, 2 * rate, category)
