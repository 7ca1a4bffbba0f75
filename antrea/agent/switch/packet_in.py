"""Packets between switch and agent: their delivery by category, and counts of lost ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.outside.vswitch.appctl import counter
from antrea.outside.vswitch.packet_channel import OVERFLOW_COUNTER, Packets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from antrea.config.agent import AgentConfig
    from antrea.openflow.fields import PacketIn as Category
    from antrea.openflow.packet_in import PacketIn


class SwitchPackets:
    """Packets of the bridge with management socket `switch`."""

    def __init__(self, switch: Path, config: AgentConfig) -> None:
        self._control = switch.parent
        self._packets = Packets(switch, config.packet_in_rate)
        self.connected = self._packets.connected
        """Set once packet-ins have been requested from the switch."""
        self.send = self._packets.send
        """Send a packet through the switch."""
        self.resume = self._packets.resume
        """Resume a packet that the switch holds."""
        self.text = self._packets.text
        """Metrics of lost packets, in Prometheus' format."""

    def deliver(self, handlers: Mapping[Category, Callable[[PacketIn], None]]) -> None:
        """Set the handlers of packet-ins by category; to be called before `run`."""
        for category, handle in handlers.items():
            self._packets.deliver(category, handle)

    async def run(self) -> None:
        """Receive packets until cancelled."""
        await self._packets.run()

    async def overflow(self) -> int:
        """Count packets that the switch dropped because the agent did not take them in time. Raises Unavailable."""
        return await counter(self._control, OVERFLOW_COUNTER)
